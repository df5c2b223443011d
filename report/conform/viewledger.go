package conform

import (
	"strings"

	"github.com/fabrictest/fabrictest/internal/textfmt"
	"github.com/fabrictest/fabrictest/report/internal/kit"
)

// States of a requirement without a verdict.
const (
	notAsked   = "not-asked"  // has cases, none was run
	untestable = "untestable" // no case can test it
	open       = "open"       // no case yet
)

// docView is a document of the ledger with its results.
type docView struct {
	ID, Title  string
	Name, Rest string // the title before and after its colon
	Revision   string
	Bar        []kit.Share
	Summary    string // requirements by state
	Sections   []*sectionView
}

// sectionView is a section of a document.
type sectionView struct {
	ID, Title string
	Bar       []kit.Share
	Summary   string // requirements by state
	Rows      []*rowView
	Open      bool
}

// rowView is a requirement with its state.
type rowView struct {
	ID, Anchor    string
	Level, Clause string
	Paragraph     string
	State         string
	Why           string // reason why there is no verdict
	Cases         []*caseRef
}

// caseRef is a case of a requirement, with the devices it ran on.
type caseRef struct {
	Name    string
	State   string
	Href    string
	Devices string
}

// barOrder is the order of segments in a bar: the worst states first.
var barOrder = []string{
	string(Broken), string(Fail), string(Stale), string(Deviates), string(Pass), string(Unsupported), notAsked, open, untestable,
}

// stateNames are the names of the states.
var stateNames = map[string]string{
	string(Pass): "met", string(Fail): "not met", string(Unsupported): "not supported", string(Deviates): "deviating", string(Stale): "stale",
	string(Broken): "broken", notAsked: "not asked", untestable: "untestable", open: "without a case",
}

// bar returns the segments of a bar for numbers of requirements by state, and the numbers as
// text.
func bar(n map[string]int) (shares []kit.Share, summary string) {
	shares, text := kit.Bar(n, barOrder, stateNames)
	return shares, strings.Join(text, ", ")
}

// addDocs adds the documents of the ledger: those with tested requirements to Docs, the rest to
// Others.
func (p *htmlPage) addDocs(r *Run, cases map[string][]*caseView) {
	ids := kit.Anchors{}
	for i := range r.Documents {
		d := &r.Documents[i]
		doc := &docView{ID: ids.Of("d", d.Key), Title: d.Title, Revision: d.Revision}
		doc.Name, doc.Rest, _ = strings.Cut(d.Title, ": ")
		all := make(map[string]int)
		asked := false
		for j := range d.Sections {
			s := &d.Sections[j]
			sec := &sectionView{ID: ids.Of("s", d.Key, s.Title), Title: s.Title}
			n := make(map[string]int)
			for k := range s.Rows {
				row := p.newRowView(&s.Rows[k], cases)
				sec.Rows = append(sec.Rows, row)
				n[row.State]++
				all[row.State]++
				_, ran := stateOfVerdict(row.State)
				asked = asked || ran
				sec.Open = sec.Open || Verdict(row.State).Bad() && ran
			}
			sec.Bar, sec.Summary = bar(n)
			doc.Sections = append(doc.Sections, sec)
		}
		doc.Bar, doc.Summary = bar(all)
		if asked {
			p.Docs = append(p.Docs, doc)
		} else {
			p.Others = append(p.Others, doc)
		}
	}
}

// stateOfVerdict reports whether a state is a verdict.
func stateOfVerdict(state string) (Verdict, bool) {
	switch state {
	case notAsked, untestable, open:
		return "", false
	}
	return Verdict(state), true
}

// newRowView returns a requirement with its state, which follows from the cases that ran.
func (p *htmlPage) newRowView(r *Row, cases map[string][]*caseView) *rowView {
	v := &rowView{ID: r.ID, Level: r.Level, Clause: r.Clause, Paragraph: r.Text}
	if at := p.rows[r.ID].Href; !p.placed[at] { // the first row with the ID gets the anchor
		v.Anchor = at
		p.placed[at] = true
	}
	var verdicts []Verdict
	for _, id := range r.Cases {
		ran := cases[id]
		if len(ran) == 0 {
			v.Cases = append(v.Cases, &caseRef{Name: id, State: notAsked})
		}
		for _, c := range ran {
			verdicts = append(verdicts, c.Verdict)
			ref := &caseRef{Name: id, State: string(c.Verdict), Href: c.ID}
			if len(ran) > 1 || len(c.On) > 1 {
				ref.Devices = c.devices()
			}
			v.Cases = append(v.Cases, ref)
		}
	}
	switch {
	case len(verdicts) > 0:
		v.State = string(RowVerdict(verdicts))
	case r.Untestable != "":
		v.State, v.Why = untestable, r.Untestable
	case len(r.Cases) > 0:
		v.State = notAsked
	default:
		v.State, v.Why = open, "no case checks it yet"
	}
	return v
}

// devices lists the devices of a case's verdict.
func (c *caseView) devices() string {
	var names []string
	for _, o := range c.On {
		if o.Verdict == c.Verdict {
			names = append(names, o.Device)
		}
	}
	return strings.Join(names, ", ")
}

// Asked describes how many requirements of a document were tested.
func (d *docView) Asked() string {
	n := 0
	for _, s := range d.Sections {
		n += len(s.Rows)
	}
	return textfmt.Plural(n, "requirement")
}
