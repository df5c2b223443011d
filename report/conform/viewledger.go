package conform

import (
	"strings"

	"github.com/fabrictest/fabrictest/internal/cli"
	"github.com/fabrictest/fabrictest/report/internal/kit"
)

// States of a requirement without a verdict.
const (
	notTested  = "not-asked"  // has cases, none was run
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
	IDs           string // public IDs, as text
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
	string(Broken), string(Fail), string(Stale), string(Starved), string(Deviates), string(Pass), string(Unsupported), notTested, open, untestable,
}

// stateNames are the names of the states.
var stateNames = map[string]string{
	string(Pass): "met", string(Fail): "not met", string(Unsupported): "not supported", string(Deviates): "deviating", string(Stale): "stale",
	string(Broken): "broken", string(Starved): "starved", notTested: "not tested", untestable: "untestable", open: "without a case",
}

// bar returns the segments of a bar for numbers of requirements by state, and the numbers as text.
func bar(n map[string]int) (shares []kit.Share, summary string) {
	shares, text := kit.Bar(n, barOrder, stateNames)
	return shares, strings.Join(text, ", ")
}

// addDocs adds the documents, which are specifications, to the page: those with tested requirements
// (rows) to Docs, the rest to Others. A section with a bad verdict is shown expanded. cases are the
// views of results by case ID.
func (p *htmlPage) addDocs(r *Run, cases map[string][]*caseView) {
	ids := kit.Anchors{}
	for i := range r.Documents {
		d := &r.Documents[i]
		doc := &docView{ID: ids.Of("d", d.Key), Title: d.Title, Revision: d.Revision}
		doc.Name, doc.Rest, _ = strings.Cut(d.Title, ": ")
		all := make(map[string]int)
		tested := false
		for j := range d.Sections {
			s := &d.Sections[j]
			sec := &sectionView{ID: ids.Of("s", d.Key, s.Title), Title: s.Title}
			n := make(map[string]int)
			for k := range s.Rows {
				row := p.newRowView(&s.Rows[k], cases)
				sec.Rows = append(sec.Rows, row)
				n[row.State]++
				all[row.State]++
				hasVerdict := row.State != notTested && row.State != untestable && row.State != open
				tested = tested || hasVerdict
				sec.Open = sec.Open || hasVerdict && Verdict(row.State).Bad()
			}
			sec.Bar, sec.Summary = bar(n)
			doc.Sections = append(doc.Sections, sec)
		}
		doc.Bar, doc.Summary = bar(all)
		if tested {
			p.Docs = append(p.Docs, doc)
		} else {
			p.Others = append(p.Others, doc)
		}
	}
}

// newRowView returns the view of a requirement. Its state is the verdict of the cases that
// ran, or the reason why there is none.
func (p *htmlPage) newRowView(r *Row, cases map[string][]*caseView) *rowView {
	v := &rowView{ID: r.ID, Level: r.Level, Clause: r.Clause, IDs: strings.Join(r.IDs, ", "), Paragraph: r.Text}
	if anchor := p.rows[r.ID].Href; !p.usedAnchors[anchor] { // the first row with the ID gets the anchor
		v.Anchor = anchor
		p.usedAnchors[anchor] = true
	}
	var verdicts []Verdict
	for _, id := range r.Cases {
		views := cases[id]
		if len(views) == 0 {
			v.Cases = append(v.Cases, &caseRef{Name: id, State: notTested})
		}
		for _, c := range views {
			verdicts = append(verdicts, c.Verdict)
			ref := &caseRef{Name: id, State: string(c.Verdict), Href: c.ID}
			if len(views) > 1 || len(c.On) > 1 {
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
		v.State = notTested
	default:
		v.State, v.Why = open, "no case checks it yet"
	}
	return v
}

// devices lists the devices on which the case has the verdict of the view.
func (c *caseView) devices() string {
	var names []string
	for _, o := range c.On {
		if o.Verdict == c.Verdict {
			names = append(names, o.Device)
		}
	}
	return strings.Join(names, ", ")
}

// Requirements returns the number of requirements of a document, as text.
func (d *docView) Requirements() string {
	n := 0
	for _, s := range d.Sections {
		n += len(s.Rows)
	}
	return cli.Plural(n, "requirement")
}
