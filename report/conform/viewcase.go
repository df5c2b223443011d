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

// areaView is the cases of one area.
type areaView struct {
	Name  string
	Cases []*caseView
	Open  bool
}

// deviceView is what there is to say of a device beside its cases.
type deviceView struct {
	Label  string
	Quirks []string
	Replay string // the command that repeats one of its cases
}

// caseView is what the template sees of a case: of one device, or of several that it
// came to the same on.
type caseView struct {
	ID             string // where it is on the page
	Name           string
	Verdict        Verdict
	Verdicts       string // of all devices, for the filter
	On             []onDevice
	Title          string
	Level, Cite    string
	Rows           []rowText
	Labels         []string
	Sends, Expects string
	Reason, Detail string
	Deviation      string
	Want, Got      []word
	Took           string
	Replay         string
	Ladder         template.HTML
	Capture, Href  string
	Noticed        []string // defects that it is to notice, and does
	Missed         []Flawed
	Open           bool
	Several        bool // devices there are in the run
}

// onDevice is what a case came to on a device.
type onDevice struct {
	Device  string
	Verdict Verdict
	Reason  string
}

// Told says that it matters which devices it was: it is on several, or on one of several
// and not as it should be.
func (c *caseView) Told() bool { return len(c.On) > 1 || c.Several && c.Elsewhere() }

// Elsewhere says that the case is not among the others of its area: it stands where it
// is seen first, with all that there is to say.
func (c *caseView) Elsewhere() bool { return c.Verdict.Bad() || c.Verdict == Deviates }

// rowText is a requirement as a case shows it.
type rowText struct{ ID, Href, Level, Text string }

// maxOpen is how many bad results are unfolded: enough to see, few enough to
// open fast. maxLadders is of how many a ladder is drawn.
const (
	maxOpen    = 3
	maxBad     = 30 // that are listed at once
	maxLadders = 150
	maxText    = 20_000
)

// addDevices makes views of all results, and returns them by case.
func (p *htmlPage) addDevices(r *Run) map[string][]*caseView {
	byID := make(map[string][]*caseView)
	rows, ids := p.rowTexts(r), anchors{}
	ladders := 0
	for i := range r.Devices {
		d := &r.Devices[i]
		view := &deviceView{Label: d.Label(), Quirks: d.Quirks}
		for j := range d.Results {
			res := &d.Results[j]
			if k := slices.IndexFunc(byID[res.ID], func(c *caseView) bool { return c.takes(res) }); k >= 0 {
				byID[res.ID][k].add(d, res)
				continue
			}
			c := newCaseView(d, res, ids, rows)
			c.Several = p.Several
			if res.Ladder != nil && len(res.Ladder.Steps) > 0 && ladders < maxLadders {
				ladders++
				c.Ladder = drawLadder(res)
			}
			switch {
			case res.Verdict.Bad():
				p.Bad = append(p.Bad, c)
				c.Open = len(p.Bad) <= maxOpen
			case res.Verdict == Deviates:
				p.Known = append(p.Known, c)
			}
			byID[res.ID] = append(byID[res.ID], c)
			p.addToArea(c)
			if view.Replay == "" {
				view.Replay = strings.Replace(res.Replay, res.ID, "CASE", 1)
			}
		}
		p.Devices = append(p.Devices, view)
	}
	if len(p.Bad) > maxBad {
		p.Bad, p.MoreBad = p.Bad[:maxBad], p.Bad[maxBad:]
	}
	slices.SortStableFunc(p.Known, func(a, b *caseView) int { return slices.Index(levels, a.Level) - slices.Index(levels, b.Level) })
	if len(byID) == 1 { // whoever asks for one wants to see it
		for _, a := range p.Areas {
			a.Open, a.Cases[0].Open = true, true
		}
	}
	return byID
}

// rowTexts are the requirements of the ledger, by their names.
func (p *htmlPage) rowTexts(r *Run) map[string]rowText {
	texts, ids := make(map[string]rowText), anchors{}
	for i := range r.Documents {
		for j := range r.Documents[i].Sections {
			for _, row := range r.Documents[i].Sections[j].Rows {
				if _, twice := texts[row.ID]; !twice {
					texts[row.ID] = rowText{row.ID, ids.of("r", row.ID), row.Level, row.Text}
				}
			}
		}
	}
	p.rows = texts
	return texts
}

// addToArea puts a case under its area.
func (p *htmlPage) addToArea(c *caseView) {
	name, _, _ := strings.Cut(c.Name, "/")
	i := slices.IndexFunc(p.Areas, func(a *areaView) bool { return a.Name == name })
	if i < 0 {
		i = len(p.Areas)
		p.Areas = append(p.Areas, &areaView{Name: name})
	}
	p.Areas[i].Cases = append(p.Areas[i].Cases, c)
}

// Counts says how many results of the area had each verdict.
func (a *areaView) Counts() (all []countView) {
	for _, v := range Verdicts() {
		n := 0
		for _, c := range a.Cases {
			for _, o := range c.On {
				if o.Verdict == v {
					n++
				}
			}
		}
		if n > 0 {
			all = append(all, countView{v, n})
		}
	}
	return all
}

func newCaseView(d *Device, r *Result, ids anchors, rows map[string]rowText) *caseView {
	c := &caseView{
		ID: ids.of("c", d.Name, r.ID), Name: r.ID, Title: r.Title, Level: r.Level, Cite: r.Cite, Labels: r.Labels, Sends: r.Sends, Expects: r.Expects,
		Reason: clip(r.Reason), Detail: clip(r.Detail), Deviation: clip(r.Deviation),
		Took: units.Duration(r.Took.Round(10 * time.Microsecond)), Replay: r.Replay, Capture: r.Capture,
	}
	c.add(d, r)
	if r.Want != "" || r.Got != "" {
		c.Want, c.Got = compareWords(clip(r.Want), clip(r.Got))
	}
	for _, id := range r.Rows {
		t, ok := rows[id]
		if !ok {
			t = rowText{ID: id}
		}
		c.Rows = append(c.Rows, t)
	}
	// Only what lies in the run's folder is linked to.
	if filepath.IsLocal(filepath.FromSlash(r.Capture)) {
		c.Href = (&url.URL{Path: r.Capture}).String()
	}
	return c
}

// takes reports whether a result can be told in one with that of other devices: of
// neither there is much to say.
func (c *caseView) takes(r *Result) bool {
	quiet := func(v Verdict) bool { return v == Pass || v == Unsupported }
	return quiet(c.Verdict) && quiet(r.Verdict) && c.Ladder == "" && c.Capture == "" && r.Ladder == nil && r.Capture == "" && c.Title == r.Title
}

// add adds a result of another device.
func (c *caseView) add(d *Device, r *Result) {
	c.On = append(c.On, onDevice{d.Label(), r.Verdict, clip(r.Reason)})
	all := make([]Verdict, 0, len(c.On))
	for _, o := range c.On {
		all = append(all, o.Verdict)
	}
	c.Verdict = RowVerdict(all)
	if !strings.Contains(c.Verdicts, string(r.Verdict)) {
		c.Verdicts = strings.TrimSpace(c.Verdicts + " " + string(r.Verdict))
	}
	for _, f := range r.Flawed {
		switch {
		case r.Verdict == Unsupported: // it has nothing to notice there
		case f.Verdict != Fail:
			c.Missed = append(c.Missed, f)
		case !slices.Contains(c.Noticed, f.Quirk):
			c.Noticed = append(c.Noticed, f.Quirk)
		}
	}
}

// clip shortens a text from elsewhere to what a page can bear.
func clip(s string) string {
	if len(s) <= maxText {
		return s
	}
	return strings.ToValidUTF8(s[:maxText], "") + " … and more, which is in the results for programs"
}
