package kit

import "fmt"

// Bars is a horizontal bar chart: names on the left, values on the right. It consists
// of HTML boxes, and fits any width.
type Bars struct {
	Keys []Key
	Bars []bar
	// Grouped reports that some bars form groups.
	Grouped bool
	most    float64
}

// Key is a legend entry.
type Key struct{ Class, Name string }

type bar struct {
	Name, Value string
	Follows     bool // same group as the bar above
	Parts       []partWidth
	parts       []Segment
}

// Segment is a segment of a bar or a column.
type Segment struct {
	Class string
	Value float64
}

type partWidth struct {
	Class string
	Width string // in percent
}

// Add adds a bar with its value as text. A bar without a name belongs to the group of the
// bar above.
func (b *Bars) Add(name, value string, parts ...Segment) {
	sum := 0.0
	for _, p := range parts {
		sum += p.Value
	}
	b.most, b.Grouped = max(b.most, sum), b.Grouped || name == ""
	b.Bars = append(b.Bars, bar{Name: name, Value: value, Follows: name == "", parts: parts})
}

// Scaled scales the bars to the longest; nil if all are empty.
func (b *Bars) Scaled() *Bars {
	if b.most == 0 {
		return nil
	}
	for i := range b.Bars {
		for _, p := range b.Bars[i].parts {
			if p.Value > 0 {
				b.Bars[i].Parts = append(b.Bars[i].Parts, partWidth{p.Class, fmt.Sprintf("%.3f", max(100*p.Value/b.most, 0.2))})
			}
		}
	}
	return b
}
