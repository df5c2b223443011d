package conform

import (
	_ "embed"
	"fmt"
	"html/template"
	"io"
	"strings"
	"time"

	"github.com/fabrictest/fabrictest/internal/cli"
	"github.com/fabrictest/fabrictest/report/internal/kit"
)

// The page is one file with inline style, script and drawings.
var (
	//go:embed page/page.gohtml
	pageText string
	//go:embed page/parts.gohtml
	partsText string
	//go:embed page/page.css
	pageCSS string
	//go:embed page/page.js
	pageJS string

	layout = kit.NewLayout(pageCSS, pageJS, nil, pageText, partsText)
)

// Cover is the content before the results on the page, for example of a certificate.
type Cover struct {
	// HTML is the first part of the page, escaped by html/template.
	HTML template.HTML
	CSS  string // its style sheet
	// Results is the JSON file next to the page.
	Results string
}

// WriteHTML writes a run as one self-contained page. It loads nothing from the network, and
// works without its script.
func WriteHTML(w io.Writer, r *Run) error {
	return WriteHTMLWithCover(w, r, Cover{Results: ResultFile})
}

// WriteHTMLWithCover writes the page of WriteHTML after a cover.
func WriteHTMLWithCover(w io.Writer, r *Run, c Cover) error {
	p := newPage(r)
	p.Cover, p.Results = c.HTML, c.Results
	return layout.Write(w, p, c.CSS)
}

// htmlPage is the template's data for a run.
type htmlPage struct {
	kit.Page
	Bad            []*caseView
	MoreBad        []*caseView // collapsed at first
	Known          []*caseView // deviations on record
	Levels         string      // levels of the deviations
	Unsupported    []unsupportedView
	Faults         []faultGroup
	Docs           []*docView // documents with cases that were run
	Others         []*docView // other documents
	Devices        []*deviceView
	Areas          []*areaView
	Matrices       []*matrixView
	Measured       []*measuredView
	SeveralDevices bool // more than one device

	rows        map[string]rowText
	usedAnchors map[string]bool
}

// unsupportedView is a reason of unsupported cases of a device.
type unsupportedView struct {
	Device string
	N      int
	Why    string
	Cases  []string
	More   int
}

// newPage returns the template's data for a run: the results by case and by requirement, the
// reasons of unsupported cases, and, if the run has them, the faults of the cases themselves (see
// faultGroups), the matrices of defects and the cases that detect them, and the measurements.
func newPage(r *Run) *htmlPage {
	p := &htmlPage{SeveralDevices: len(r.Devices) > 1, usedAnchors: map[string]bool{}}
	p.Page = kit.Page{
		About: "conformance, clause by clause", Headline: headline(r), Facts: facts(r),
		Filter: "Filter: words, an ID, a row, a label",
	}
	p.Title = "fabrictest conform: " + p.Headline
	p.Counts, _ = kit.Bar(r.Counts(), Verdicts(), nil) // names are for the text, which is not used
	cases := p.addDevices(r)
	p.addDocs(r, cases)
	p.Levels = r.DeviationCounts()
	for i := range r.Devices {
		for _, u := range r.Devices[i].UnsupportedReasons() {
			p.Unsupported = append(p.Unsupported, unsupportedView{
				Device: r.Devices[i].Label(), N: len(u.Cases), Why: clip(u.Why),
				Cases: u.Cases[:min(len(u.Cases), maxListedCases)], More: max(0, len(u.Cases)-maxListedCases),
			})
		}
	}
	p.Faults = faultGroups(r.Faults)
	for i := range r.Devices {
		if m := newMatrix(&r.Devices[i], r.Part); m != nil {
			p.Matrices = append(p.Matrices, m)
		}
		if m := newMeasured(&r.Devices[i]); m != nil {
			p.Measured = append(p.Measured, m)
		}
	}
	return p
}

// headline summarizes the verdicts of the run in a few words, for the top of the page.
func headline(r *Run) string {
	c := r.Counts()
	total, bad := c.Total(), len(r.Bad())
	switch {
	case total == 0 && r.measurements() > 0:
		return fmt.Sprintf("%s of recovery", cli.Plural(r.measurements(), "measurement"))
	case total == 0:
		return "Nothing was judged"
	case bad > 0 && total == 1:
		return "The clause is not met"
	case bad > 0 && bad == c[Fail]:
		return fmt.Sprintf("%d of %s fail", bad, cli.Plural(total, "case"))
	case bad > 0:
		return fmt.Sprintf("%d of %s want attention", bad, cli.Plural(total, "case"))
	case len(r.Faults) > 0 && c[Deviates] > 0:
		return fmt.Sprintf("%s, and the cases have %s", cli.Plural(c[Deviates], "known deviation"), cli.Plural(len(r.Faults), "fault"))
	case len(r.Faults) > 0:
		return fmt.Sprintf("All is met, and the cases have %s", cli.Plural(len(r.Faults), "fault"))
	case c[Deviates] > 0 && total == 1:
		return "The clause is not met, for a reason on record"
	case c[Deviates] > 0:
		return fmt.Sprintf("%d pass, with %s", c[Pass], cli.Plural(c[Deviates], "known deviation"))
	case c[Pass] == total && total == 1:
		return "The clause is met"
	case c[Pass] == total:
		return fmt.Sprintf("All %d cases pass", total)
	case c[Pass] == 0:
		return fmt.Sprintf("None of %s has a verdict", cli.Plural(total, "case"))
	case c[Pass] == 1:
		return "The one case that the device supports passes"
	default:
		return fmt.Sprintf("All %d cases that the device supports pass", c[Pass])
	}
}

// facts returns the facts about a run below the headline of the page.
func facts(r *Run) (all kit.Facts) {
	all.AddCommand("Command", r.Command)
	var defects []string
	devices := make([]string, 0, len(r.Devices))
	for i := range r.Devices {
		d := &r.Devices[i]
		devices = append(devices, d.Label())
		if d.As == "" { // else Label names the kernel whose defects the device imitates
			defects = append(defects, d.Defects...)
		}
	}
	name := "Device"
	if len(devices) != 1 {
		name = "Devices"
	}
	all.Add(name, strings.Join(devices, ", "))
	all.Add("Defects", strings.Join(defects, ", "))
	all.Add("Bench", map[string]string{"sim": "simulation, virtual time", "netns": "network namespaces, real time", "wire": "the wire of the device, real time"}[r.Tier])
	all.Add("Seed", fmt.Sprint(r.Seed))
	all.Add("Started", kit.Stamp(r.Started))
	all.Add("Took", cli.Duration(r.Wall.Round(time.Millisecond)))
	all.Add("Machine", r.Machine.String())
	all.Add("fabrictest", r.Tool)
	return all
}

// faultGroup lists the faults of a kind.
type faultGroup struct {
	Title  string
	Texts  []string
	Folded []string // collapsed at first
}

// faultGroups groups the faults of the test suite (such as a defect that no case detects) by kind,
// and folds those after the first maxFaults of a kind.
func faultGroups(faults []Fault) (groups []faultGroup) {
	const maxFaults = 12 // faults of a kind that are shown at first
	for _, k := range []struct{ kind, title string }{
		{Unsound, "Cases that fail on the device without defects"},
		{Unproven, "Cases that do not detect the defect that they should"},
		{UnknownDefect, "Cases that name an unknown defect"},
		{Uncaught, "Defects that no case detects"},
	} {
		g := faultGroup{Title: k.title}
		for _, f := range faults {
			text := f.What
			if f.Device != "" {
				text = f.Device + ": " + text
			}
			switch {
			case f.Kind != k.kind:
			case len(g.Texts) < maxFaults:
				g.Texts = append(g.Texts, text)
			default:
				g.Folded = append(g.Folded, text)
			}
		}
		if len(g.Texts) > 0 {
			groups = append(groups, g)
		}
	}
	return groups
}

// CaseAnchor returns the HTML ID of a case of a device on the page.
func CaseAnchor(device, id string) string { return kit.Anchors{}.Of("c", device, id) }
