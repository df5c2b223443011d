package report

import (
	_ "embed"
	"io"

	"github.com/fabrictest/fabrictest/report/internal/kit"
)

// The page is one file with inline style, script and drawings.
var (
	//go:embed page/page.gohtml
	pageText string
	//go:embed page/result.gohtml
	resultText string
	//go:embed page/page.css
	pageCSS string
	//go:embed page/page.js
	pageJS string

	layout = kit.NewLayout(pageCSS, pageJS, nil, pageText, resultText)
)

// WriteHTML writes a run as one self-contained page. It loads nothing from the network,
// and works without its script.
func WriteHTML(w io.Writer, r *Run) error { return layout.Write(w, newPage(r), "") }

// htmlPage is the template's data for a run.
type htmlPage struct {
	kit.Page
	Tiers []string
	Rows  []matrixRow
	Bad   []*resultView
	Shown []*resultView
}

// matrixRow is a scenario; its cells are its results by tier, nil where it was not run.
type matrixRow struct {
	Name, Title string
	Tags        []string
	Cells       []*resultView
	Verdicts    string // verdicts of all cells, for the filter
}

func newPage(r *Run) *htmlPage {
	p := &htmlPage{Tiers: r.tiers()}
	p.Page = kit.Page{
		About: "report of a run", Headline: headline(r), Counts: kit.CountsOf(r.Counts(), Verdicts()), Facts: runFacts(r),
		Filter: "Filter by name, title or tag", Results: resultFile,
	}
	p.Title = "fabrictest: " + p.Headline
	p.addResults(r)
	return p
}

// maxOpen limits how many bad results are expanded at first.
const maxOpen = 8

// addResults adds a view of each result, and a row of the overview for each scenario.
func (p *htmlPage) addResults(r *Run) {
	// The more results there are, the fewer rows of each are shown, to keep the page
	// small. All rows are in result.json.
	maxRows := min(256, max(24, 4800/max(1, len(r.Scenarios))))
	ids := kit.Anchors{}
	rows := map[string]int{}
	for i := range r.Scenarios {
		res := &r.Scenarios[i]
		v := newResultView(res, ids.Of("r", res.Tier, res.Name), maxRows)
		p.Shown = append(p.Shown, v)
		if res.Verdict.Bad() {
			p.Bad = append(p.Bad, v)
			v.Open = len(p.Bad) <= maxOpen
		}
		at, ok := rows[res.Name]
		if !ok {
			at = len(p.Rows)
			rows[res.Name] = at
			p.Rows = append(p.Rows, matrixRow{Name: res.Name, Title: res.Title, Tags: res.Tags, Cells: make([]*resultView, len(p.Tiers))})
		}
		for t, tier := range p.Tiers {
			if tier == res.Tier {
				p.Rows[at].Cells[t] = v
			}
		}
		p.Rows[at].Verdicts += string(res.Verdict) + " "
	}
	if len(p.Shown) == 1 {
		p.Shown[0].Open = true
	}
}
