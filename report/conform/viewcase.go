package conform

import (
	"html/template"
	"net/url"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/fabrictest/fabrictest/internal/units"
)

// deviceView is a device, and its cases by area.
type deviceView struct {
	Label, Title string
	Quirks       []string
	Areas        []*areaView
}

// areaView is the cases of one area.
type areaView struct {
	Name  string
	Cases []*caseView
	Open  bool
}

// caseView is what the template sees of a result.
type caseView struct {
	ID             string // where it is on the page
	Name           string
	Device         string
	Verdict        Verdict
	Title          string
	Level, Cite    string
	Rows           []rowText
	Labels         []string
	Sends, Expects string
	Reason, Detail string
	Want, Got      []word
	Took           string
	Replay         string
	Ladder         template.HTML
	Capture, Href  string
	Flawed         []Flawed
	Text           string // for the filter
	Open           bool
	Several        bool // devices, of which it is on one
}

// rowText is a requirement as a case shows it.
type rowText struct{ ID, Level, Clause, Text string }

// maxOpen is how many bad results are unfolded: enough to see, few enough to
// open fast. maxLadders is of how many a ladder is drawn.
const (
	maxOpen    = 3
	maxBad     = 30 // that are listed at once
	maxLadders = 150
	maxText    = 20_000
)

// addDevices makes views of all results, and returns them by case.
func (p *page) addDevices(r *Run) map[string][]*caseView {
	byID := make(map[string][]*caseView)
	texts, ids := rowTexts(r), anchors{}
	ladders := 0
	for i := range r.Devices {
		d := &r.Devices[i]
		view := &deviceView{Label: d.Label(), Title: d.Title, Quirks: d.Quirks}
		for j := range d.Results {
			res := &d.Results[j]
			c := newCaseView(d, res, ids, texts)
			c.Several = p.Several
			if res.Ladder != nil && len(res.Ladder.Steps) > 0 && ladders < maxLadders {
				ladders++
				c.Ladder = drawLadder(res)
			}
			if res.Verdict.Bad() {
				p.Bad = append(p.Bad, c)
				c.Open = len(p.Bad) <= maxOpen
			}
			byID[res.ID] = append(byID[res.ID], c)
			view.add(c)
		}
		p.Devices = append(p.Devices, view)
	}
	if len(p.Bad) > maxBad {
		p.Bad, p.MoreBad = p.Bad[:maxBad], p.Bad[maxBad:]
	}
	if len(byID) == 1 { // whoever asks for one wants to see it
		for _, d := range p.Devices {
			for _, a := range d.Areas {
				a.Open, a.Cases[0].Open = true, true
			}
		}
	}
	return byID
}

// rowTexts are the requirements of the ledger, by their names.
func rowTexts(r *Run) map[string]rowText {
	texts := make(map[string]rowText)
	for i := range r.Documents {
		for j := range r.Documents[i].Sections {
			for _, row := range r.Documents[i].Sections[j].Rows {
				texts[row.ID] = rowText{row.ID, row.Level, row.Clause, row.Text}
			}
		}
	}
	return texts
}

// add puts a case under its area.
func (d *deviceView) add(c *caseView) {
	name, _, _ := strings.Cut(c.Name, "/")
	i := slices.IndexFunc(d.Areas, func(a *areaView) bool { return a.Name == name })
	if i < 0 {
		i = len(d.Areas)
		d.Areas = append(d.Areas, &areaView{Name: name})
	}
	d.Areas[i].Cases = append(d.Areas[i].Cases, c)
}

// Counts says how many cases of the area had each verdict.
func (a *areaView) Counts() (all []countView) {
	for _, v := range Verdicts() {
		n := 0
		for _, c := range a.Cases {
			if c.Verdict == v {
				n++
			}
		}
		if n > 0 {
			all = append(all, countView{v, n})
		}
	}
	return all
}

func newCaseView(d *Device, r *Result, ids anchors, texts map[string]rowText) *caseView {
	c := &caseView{
		ID: ids.of("c", d.Name, r.ID), Name: r.ID, Device: d.Label(), Verdict: r.Verdict, Title: r.Title, Level: r.Level, Cite: r.Cite,
		Labels: r.Labels, Sends: r.Sends, Expects: r.Expects, Reason: clip(r.Reason), Detail: clip(r.Detail),
		Took: units.Duration(r.Took.Round(10 * time.Microsecond)), Replay: r.Replay, Capture: r.Capture, Flawed: r.Flawed,
	}
	if r.Want != "" || r.Got != "" {
		c.Want, c.Got = compareWords(clip(r.Want), clip(r.Got))
	}
	for _, id := range r.Rows {
		t, ok := texts[id]
		if !ok {
			t = rowText{ID: id}
		}
		c.Rows = append(c.Rows, t)
	}
	// Only what lies in the run's folder is linked to.
	if filepath.IsLocal(filepath.FromSlash(r.Capture)) {
		c.Href = (&url.URL{Path: r.Capture}).String()
	}
	c.Text = strings.Join(slices.Concat([]string{r.ID, r.Title, r.Level, r.Cite, d.Name}, r.Rows, r.Labels), " ")
	return c
}

// clip shortens a text from elsewhere to what a page can bear.
func clip(s string) string {
	if len(s) <= maxText {
		return s
	}
	return strings.ToValidUTF8(s[:maxText], "") + " … more in conformance.json"
}
