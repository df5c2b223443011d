package ranks

import "fmt"

// barsView is a horizontal bar chart: names on the left, values on the right. It consists
// of HTML boxes, and fits any width.
type barsView struct {
	Keys []key
	Bars []barView
	// Grouped reports that some bars form groups.
	Grouped bool
	most    float64
}

// key is a legend entry.
type key struct{ Class, Name string }

type barView struct {
	Name, Value string
	Follows     bool // same group as the bar above
	Parts       []partView
	parts       []part
}

// part is a segment of a bar.
type part struct {
	class string
	value float64
}

type partView struct {
	Class string
	Width string // in percent
}

func (b *barsView) add(name, value string, parts ...part) {
	sum := 0.0
	for _, p := range parts {
		sum += p.value
	}
	b.most, b.Grouped = max(b.most, sum), b.Grouped || name == ""
	b.Bars = append(b.Bars, barView{Name: name, Value: value, Follows: name == "", parts: parts})
}

// scaled scales the bars to the longest; nil if all are empty.
func (b *barsView) scaled() *barsView {
	if b.most == 0 {
		return nil
	}
	for i := range b.Bars {
		for _, p := range b.Bars[i].parts {
			if p.value > 0 {
				b.Bars[i].Parts = append(b.Bars[i].Parts, partView{p.class, fmt.Sprintf("%.3f", max(100*p.value/b.most, 0.2))})
			}
		}
	}
	return b
}
