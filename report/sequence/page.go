package sequence

import (
	_ "embed"
	"fmt"
	"html/template"
	"io"
	"strings"

	"github.com/fabrictest/fabrictest/explore"
	"github.com/fabrictest/fabrictest/internal/cli"
	"github.com/fabrictest/fabrictest/report/internal/kit"
)

var (
	//go:embed page/page.gohtml
	pageText string
	//go:embed page/page.css
	pageCSS string
	//go:embed page/page.js
	pageJS string

	layout = kit.NewLayout(pageCSS, pageJS, nil, pageText)
)

// htmlPage is the template's data.
type htmlPage struct {
	kit.Page
	Failure  string
	Findings []findingView
	Lanes    []string
	Views    []view
}

// findingView is a finding with its places as text.
type findingView struct {
	Kind, Text string
	Places     []string
}

// view is a drawing with its list of steps.
type view struct {
	ID, Name   string
	First      bool
	Head, Body template.HTML
	Steps      []stepView
}

// stepView is a line of the list of steps.
type stepView struct {
	At, Text, Place, Source, Class string
}

// maxRowsWithPackets is the number of rows up to which a page shows packets at first.
const maxRowsWithPackets = 250

// WriteHTML writes the diagram as one self-contained page.
func (d *Diagram) WriteHTML(w io.Writer) error {
	p := &htmlPage{Page: kit.Page{About: "sequence diagram of a run", Headline: d.Program, Facts: d.facts()}}
	p.Title = "fabrictest: " + p.Headline
	p.Failure = d.Failure
	for i := range d.Findings {
		p.Findings = append(p.Findings, viewOf(&d.Findings[i]))
	}
	all, calls := newTimeline(d, true), newTimeline(d, false)
	for _, l := range all.lanes {
		p.Lanes = append(p.Lanes, l.name)
	}
	withPackets := d.view("packets", "Calls and packets", all)
	p.Views = []view{withPackets, d.view("calls", "Calls only", calls)}
	rows, _, _ := all.layOut()
	first := 0
	if len(rows) > maxRowsWithPackets || len(d.Packets) == 0 {
		first = 1
	}
	p.Views[first].First = true
	return layout.Write(w, p, "")
}

func viewOf(f *explore.Finding) findingView {
	v := findingView{Kind: f.Kind, Text: f.Text}
	for i := range f.Places {
		at := &f.Places[i]
		v.Places = append(v.Places, fmt.Sprintf("rank %d: %s at %s", at.Rank, at.Call, place(at)))
	}
	return v
}

// facts returns the names and values at the head of the page.
func (d *Diagram) facts() (all kit.Facts) {
	all.Add("Ranks", fmt.Sprint(len(d.Ranks)))
	all.Add("Fabric", d.Fabric)
	all.Add("Calls", fmt.Sprint(len(d.Calls)))
	all.Add("Messages", fmt.Sprint(len(d.Messages)))
	all.Add("Packets", fmt.Sprint(len(d.Packets)))
	all.Add("Choices that differ from the default", fmt.Sprint(len(d.Choices)))
	all.AddCommand("Again", d.Command)
	return all
}

// view draws a timeline.
func (d *Diagram) view(id, name string, t *timeline) view {
	g := newDrawing(t)
	v := view{ID: id, Name: name, Head: g.head(), Body: g.body()}
	for i := range t.events {
		if e := &t.events[i]; t.isStep(e) {
			v.Steps = append(v.Steps, t.step(i))
		}
	}
	return v
}

// step returns the line of an event in the list of steps.
func (t *timeline) step(i int) stepView {
	e := &t.events[i]
	s := stepView{At: shortTime(e.at), Text: t.describe(e)}
	switch e.kind {
	case callBegan:
		c := &t.d.Calls[e.index]
		s.Place, s.Source = place(&c.Place), strings.TrimSpace(c.Source)
		if why := t.d.bad(c); why != "" {
			s.Class = "wrong"
			s.Text += ": " + cli.PrintableLine(why)
		}
	case callEnded:
		if from := t.sender(i); from >= 0 {
			s.Text += " with the message of " + t.lanes[from].name
		}
		s.Class = "soft"
	case packetArrived, packetSent, omitted:
		s.Class = "soft"
	case choiceMade:
		s.Class = "choice"
	case failed:
		s.Class = "wrong"
	case rankEnded:
		if t.d.Ranks[e.index].Err != "" {
			s.Class = "wrong"
		}
	}
	return s
}
