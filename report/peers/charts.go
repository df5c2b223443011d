package peers

import (
	"fmt"
	"slices"

	"github.com/fabrictest/fabrictest/report/internal/kit"
)

// Names and CSS classes of the lines of our runtime. Those of peers are k1, k2, …
const (
	oursName    = "ours"
	noICRCName  = "ours, no ICRC"
	oursClass   = "k0"
	noICRCClass = "k0 one"
)

// peerClass returns the CSS class of a peer, the same in all charts of the page.
func (r *Run) peerClass(name string) string {
	const classes = 5 // besides that of ours
	return fmt.Sprintf("k%d", 1+max(0, slices.IndexFunc(r.Peers, func(p Peer) bool { return p.Name == name }))%classes)
}

// figuresChart draws the figures of ours and of each peer by size.
func (r *Run) figuresChart(all []Comparison) kit.Chart {
	first := &all[0]
	c := kit.Chart{Title: capital(first.Metric)}
	if len(r.Summaries) > 0 {
		c.Title = fmt.Sprintf("%d ranks", first.Ranks)
	}
	d := newDrawing(c.Title, all)
	ours, noICRC := d.line(oursClass), d.line(noICRCClass)
	c.Keys = []kit.Key{{Class: oursClass, Name: oursName}, {Class: noICRCClass, Name: noICRCName}}
	for _, peer := range inOrder(all, func(c *Comparison) string { return c.Peer }) {
		class := r.peerClass(peer)
		c.Keys = append(c.Keys, kit.Key{Class: class, Name: peer})
		line := d.line(class)
		for i := range all {
			if p := &all[i]; p.Peer == peer {
				d.add(line, p, p.Theirs, peer, figureText(p.Theirs, p.Unit))
			}
		}
	}
	for _, size := range inOrder(all, func(c *Comparison) int { return c.Bytes }) {
		p := &all[slices.IndexFunc(all, func(c Comparison) bool { return c.Bytes == size })]
		d.add(ours, p, p.Ours, oursName, figureText(p.Ours, p.Unit))
		d.add(noICRC, p, p.NoICRC, noICRCName, figureText(p.NoICRC, p.Unit))
	}
	d.Y = func(start, length float64) kit.Scale { return kit.Linear(d.values, start, length) }
	d.YText = func(v float64) string { return figureText(v, first.Unit) }
	if first.LessWins { // times span powers of ten
		d.Y = func(start, length float64) kit.Scale { return kit.Decades(d.values, start, length) }
	}
	c.Drawing = d.Draw()
	return c
}

// ratiosChart draws the ratios of ours, with ICRC, to each peer by size, and the target.
func (r *Run) ratiosChart(all []Comparison) kit.Chart {
	c := kit.Chart{Title: "Ours, with ICRC, divided by the peer's"}
	d := newDrawing(c.Title, all)
	for _, peer := range inOrder(all, func(c *Comparison) string { return c.Peer }) {
		class := r.peerClass(peer)
		c.Keys = append(c.Keys, kit.Key{Class: class, Name: peer})
		line := d.line(class)
		for i := range all {
			if p := &all[i]; p.Peer == peer {
				d.add(line, p, p.Ratio, peer, ratioText(p.Ratio))
			}
		}
	}
	if i := slices.IndexFunc(all, func(c Comparison) bool { return c.Want > 0 }); i >= 0 {
		c.Keys = append(c.Keys, kit.Key{Class: "limit", Name: limitText(all, &all[i])})
		d.Limits = []kit.Limit{{Y: all[i].Want}}
		d.values = append(d.values, all[i].Want)
	}
	d.Y = func(start, length float64) kit.Scale { return kit.Linear(d.values, start, length) }
	c.Drawing = d.Draw()
	return c
}

// limitText describes a target, with the sizes that have it unless all have it.
func limitText(all []Comparison, first *Comparison) string {
	text, largest, others := fmt.Sprintf("target beside %s", first.Peer), 0, false
	for i := range all {
		if p := &all[i]; p.Peer == first.Peer {
			others = others || p.Want == 0
			if p.Want > 0 {
				largest = p.Bytes
			}
		}
	}
	if others {
		text += fmt.Sprintf(", up to %s", sizeText(largest))
	}
	return text
}

// drawing is a chart by size that is being made, with its values.
type drawing struct {
	kit.LineChart
	values []float64
}

// newDrawing returns a chart without lines, with the sizes on its x axis.
func newDrawing(title string, all []Comparison) *drawing {
	d := &drawing{LineChart: kit.LineChart{
		Left: 56, Width: 440, Height: 230, Label: title + ", by size", XLabel: "size", LogX: true, YText: func(v float64) string { return fmt.Sprintf("%.4g", v) },
	}}
	sizes := inOrder(all, func(c *Comparison) int { return c.Bytes })
	slices.Sort(sizes)
	for _, size := range sizes {
		d.Ticks = append(d.Ticks, kit.XTick{X: float64(max(1, size)), Text: sizeText(size)})
	}
	return d
}

// line adds a line, and returns its index.
func (d *drawing) line(class string) int {
	d.Lines = append(d.Lines, kit.Line{Class: class})
	return len(d.Lines) - 1
}

// add adds a point to a line, hollow if it is of ours without ICRC.
func (d *drawing) add(line int, at *Comparison, value float64, name, text string) {
	d.values = append(d.values, value)
	l := &d.Lines[line]
	l.Points = append(l.Points, kit.LinePoint{
		X: float64(max(1, at.Bytes)), Y: value, Hollow: l.Class == noICRCClass, Title: fmt.Sprintf("%s, %s: %s", name, sizeText(at.Bytes), text),
	})
}

// bars draws the figures of ours and of each peer at one size.
func (r *Run) bars(all []Comparison) *kit.Bars {
	b := new(kit.Bars)
	add := func(name, class string, v float64) {
		b.Add(name, figureText(v, all[0].Unit), kit.Segment{Class: class, Value: v})
	}
	add(oursName, oursClass, all[0].Ours)
	add(noICRCName, noICRCClass, all[0].NoICRC)
	for i := range all {
		add(all[i].Peer, r.peerClass(all[i].Peer), all[i].Theirs)
	}
	return b.Scaled()
}
