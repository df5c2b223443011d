package ranks

import "fmt"

// barsView is a chart of bars that lie: names on the left, values on the right. It is
// made of boxes and not of lines, so that it fits any width and its words stay as large
// as those around it.
type barsView struct {
	Keys []key
	Bars []barView
	// Grouped says that some belong together.
	Grouped bool
	most    float64
}

// key is what a colour stands for.
type key struct{ Class, Name string }

type barView struct {
	Name, Value string
	Follows     bool // it belongs to the one above
	Parts       []partView
	parts       []part
}

// part is a piece of a bar.
type part struct {
	class string
	value float64
}

type partView struct {
	Class string
	Width string // in per cent
}

func (b *barsView) add(name, value string, parts ...part) {
	sum := 0.0
	for _, p := range parts {
		sum += p.value
	}
	b.most, b.Grouped = max(b.most, sum), b.Grouped || name == ""
	b.Bars = append(b.Bars, barView{Name: name, Value: value, Follows: name == "", parts: parts})
}

// scaled has the longest bar take all the room there is; nil if there is none.
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
