package conform

import (
	"html/template"
	"slices"
	"strings"
	"time"

	"github.com/fabrictest/fabrictest/internal/cli"
	"github.com/fabrictest/fabrictest/report/internal/kit"
)

// areaView lists the cases of an area.
type areaView struct {
	Name  string
	Cases []*caseView
	Open  bool
}

// deviceView has the details of a device.
type deviceView struct {
	Label   string
	Defects []string
	Replay  string // command that repeats a case
}

// caseView is the template's data for a case, on one device or on several with the same result.
type caseView struct {
	ID             string // HTML ID
	Name           string
	Verdict        Verdict
	Verdicts       string // the different verdicts of On, for the filter of the page
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
	Noticed        []string // defects that it detects
	Missed         []Defective
	Open           bool
	SeveralDevices bool // the run has several devices
}

// onDevice is the result of a case on a device.
type onDevice struct {
	Device  string
	Verdict Verdict
	Reason  string
}

// NamesDevices reports whether the devices are shown: the case has results of several, or the
// run has several devices and the case is listed at the top.
func (c *caseView) NamesDevices() bool { return len(c.On) > 1 || c.SeveralDevices && c.ListedAtTop() }

// ListedAtTop reports whether the case is listed at the top of the page instead of its area.
func (c *caseView) ListedAtTop() bool { return c.Verdict.Bad() || c.Verdict == Deviates }

// rowText is a requirement of a case.
type rowText struct{ ID, Href, Level, IDs, Text string }

// maxOpen limits how many bad results are expanded, maxLadders how many ladders are drawn.
const (
	maxOpen    = 3
	maxBad     = 30 // shown at first
	maxLadders = 150
	maxText    = 20_000
)

// addDevices adds the devices and views of all results to the page, and returns the views by case
// ID. Equal results of several devices share a view. Bad results and known deviations also get
// lists of their own, p.Bad and p.Known. Only the first maxLadders ladders are drawn.
func (p *htmlPage) addDevices(r *Run) map[string][]*caseView {
	byID := make(map[string][]*caseView)
	p.setRows(r)
	ids := kit.Anchors{}
	ladders := 0
	for i := range r.Devices {
		d := &r.Devices[i]
		view := &deviceView{Label: d.Label(), Defects: d.Defects}
		for j := range d.Results {
			res := &d.Results[j]
			if k := slices.IndexFunc(byID[res.ID], func(c *caseView) bool { return c.canMerge(res) }); k >= 0 {
				byID[res.ID][k].addResult(d, res)
				continue
			}
			c := newCaseView(d, res, ids, p.rows)
			c.SeveralDevices = p.SeveralDevices
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
			if view.Replay == "" { // make a command for any case of the device from that of its first view
				view.Replay = strings.Replace(res.Replay, res.ID, "CASE", 1)
			}
		}
		p.Devices = append(p.Devices, view)
	}
	if len(p.Bad) > maxBad {
		p.Bad, p.MoreBad = p.Bad[:maxBad], p.Bad[maxBad:]
	}
	slices.SortStableFunc(p.Known, func(a, b *caseView) int { return slices.Index(Levels, a.Level) - slices.Index(Levels, b.Level) })
	if len(byID) == 1 { // expand a single case
		for _, a := range p.Areas {
			a.Open, a.Cases[0].Open = true, true
		}
	}
	return byID
}

// setRows sets p.rows to the requirements (rows of the ledger) by ID, with their anchors in the
// page. The first of several with the same ID counts.
func (p *htmlPage) setRows(r *Run) {
	texts, ids := make(map[string]rowText), kit.Anchors{}
	for i := range r.Documents {
		for j := range r.Documents[i].Sections {
			for _, row := range r.Documents[i].Sections[j].Rows {
				if _, twice := texts[row.ID]; !twice {
					texts[row.ID] = rowText{row.ID, ids.Of("r", row.ID), row.Level, strings.Join(row.IDs, ", "), row.Text}
				}
			}
		}
	}
	p.rows = texts
}

// addToArea adds a case to its area, the first part of the case's ID.
func (p *htmlPage) addToArea(c *caseView) {
	name, _, _ := strings.Cut(c.Name, "/")
	i := slices.IndexFunc(p.Areas, func(a *areaView) bool { return a.Name == name })
	if i < 0 {
		i = len(p.Areas)
		p.Areas = append(p.Areas, &areaView{Name: name})
	}
	p.Areas[i].Cases = append(p.Areas[i].Cases, c)
}

// Counts counts the results of the area by verdict.
func (a *areaView) Counts() []kit.Share {
	n := Counts{}
	for _, c := range a.Cases {
		for _, o := range c.On {
			n[o.Verdict]++
		}
	}
	shares, _ := kit.Bar(n, Verdicts(), nil) // names are for the text, which is not used
	return shares
}

// newCaseView returns the view of a result of a device, with a new HTML ID from ids and the
// texts of its requirements from rows.
func newCaseView(d *Device, r *Result, ids kit.Anchors, rows map[string]rowText) *caseView {
	c := &caseView{
		ID: ids.Of("c", d.Name, r.ID), Name: r.ID, Title: r.Title, Level: r.Level, Cite: r.clause(), Labels: r.Labels, Sends: r.Sends, Expects: r.Expects,
		Reason: clip(r.Reason), Detail: clip(r.Detail), Deviation: clip(r.Deviation),
		Took: cli.Duration(r.Took.Round(10 * time.Microsecond)), Replay: r.Replay, Capture: r.Capture, Href: kit.Href(r.Capture),
	}
	c.addResult(d, r)
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
	return c
}

// canMerge reports whether the view can show r, of another device: neither is bad or has details.
func (c *caseView) canMerge(r *Result) bool {
	brief := func(v Verdict) bool { return v == Pass || v == Unsupported }
	return brief(c.Verdict) && brief(r.Verdict) && c.Ladder == "" && c.Capture == "" && r.Ladder == nil && r.Capture == "" && c.Title == r.Title
}

// addResult adds the result of a device and updates the view: Verdict to the verdict of all its
// results, Verdicts to their list. It lists the defects with which the case was run as Noticed or
// Missed.
func (c *caseView) addResult(d *Device, r *Result) {
	c.On = append(c.On, onDevice{d.Label(), r.Verdict, clip(r.Reason)})
	all := make([]Verdict, 0, len(c.On))
	for _, o := range c.On {
		all = append(all, o.Verdict)
	}
	c.Verdict = RowVerdict(all)
	if !strings.Contains(c.Verdicts, string(r.Verdict)) {
		c.Verdicts = strings.TrimSpace(c.Verdicts + " " + string(r.Verdict))
	}
	for _, f := range r.Defective {
		switch {
		case r.Verdict == Unsupported: // unsupported cases detect nothing
		case f.Verdict != Fail:
			c.Missed = append(c.Missed, f)
		case !slices.Contains(c.Noticed, f.Defect):
			c.Noticed = append(c.Noticed, f.Defect)
		}
	}
}

// clip truncates a text that comes from a device or a case, to limit the size of the page.
func clip(s string) string {
	return kit.Clip(s, maxText, " … (truncated; the JSON file has the whole text)")
}

// word is a word of a text; Differs reports that the other text does not have it.
type word struct {
	Text    string
	Differs bool
}

// maxWords limits the compared texts: the table has a cell for each pair of words.
const maxWords = 300

// compareWords returns the words of two texts, with those marked that are not in the longest
// common subsequence. It marks nothing if the texts are too long or have few common words.
func compareWords(want, got string) (w, g []word) {
	a, b := strings.Fields(want), strings.Fields(got)
	if len(a) > maxWords || len(b) > maxWords {
		return []word{{want, false}}, []word{{got, false}}
	}
	// same[i][j] is the length of the longest common subsequence of a[i:] and b[j:].
	same := make([][]int, len(a)+1)
	for i := range same {
		same[i] = make([]int, len(b)+1)
	}
	for i := len(a) - 1; i >= 0; i-- {
		for j := len(b) - 1; j >= 0; j-- {
			same[i][j] = max(same[i+1][j], same[i][j+1])
			if a[i] == b[j] {
				same[i][j] = same[i+1][j+1] + 1
			}
		}
	}
	const minShare = 3 // one word in three of the shorter text must be common
	if minShare*same[0][0] < min(len(a), len(b)) {
		return []word{{want, false}}, []word{{got, false}}
	}
	i, j := 0, 0
	for i < len(a) || j < len(b) {
		switch {
		case i < len(a) && j < len(b) && a[i] == b[j]:
			w, g = append(w, word{a[i], false}), append(g, word{b[j], false})
			i, j = i+1, j+1
		case j == len(b) || i < len(a) && same[i+1][j] >= same[i][j+1]:
			w = append(w, word{a[i], true})
			i++
		default:
			g = append(g, word{b[j], true})
			j++
		}
	}
	return w, g
}
