package report

import (
	_ "embed"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/fabrictest/fabrictest/internal/cli"
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

// newPage returns the template's data for a run: the headline, the facts, an overview of
// scenarios by tier (sim or netns), and a view of each result.
func newPage(r *Run) *htmlPage {
	p := &htmlPage{Tiers: r.tiers()}
	p.Page = kit.Page{
		About: "report of a run", Headline: headline(r), Facts: runFacts(r),
		Filter: "Filter by name, title or tag", Results: ResultFile,
	}
	p.Title = "fabrictest: " + p.Headline
	p.Counts, _ = kit.Bar(r.Counts(), Verdicts(), nil) // the texts, which would need names, are not used
	p.addResults(r)
	return p
}

// addResults adds a view of each result, and a row of the overview for each scenario.
func (p *htmlPage) addResults(r *Run) {
	const maxOpen = 8 // bad results that are expanded at first
	// The more results there are, the fewer rows of each are shown, to keep the page
	// small. All rows are in result.json.
	const rowsOfPage, minTableRows, maxTableRows = 4800, 24, 256
	maxRows := min(maxTableRows, max(minTableRows, rowsOfPage/max(1, len(r.Scenarios))))
	ids := kit.Anchors{}
	rowByName := map[string]int{} // index in p.Rows by the name of a scenario
	for i := range r.Scenarios {
		res := &r.Scenarios[i]
		v := newResultView(res, ids.Of("r", res.Tier, res.Name), maxRows)
		p.Shown = append(p.Shown, v)
		if res.Verdict.Bad() {
			p.Bad = append(p.Bad, v)
			v.Open = len(p.Bad) <= maxOpen
		}
		row, ok := rowByName[res.Name]
		if !ok {
			row = len(p.Rows)
			rowByName[res.Name] = row
			p.Rows = append(p.Rows, matrixRow{Name: res.Name, Title: res.Title, Tags: res.Tags, Cells: make([]*resultView, len(p.Tiers))})
		}
		for t, tier := range p.Tiers {
			if tier == res.Tier {
				p.Rows[row].Cells[t] = v
			}
		}
		p.Rows[row].Verdicts += string(res.Verdict) + " "
	}
	if len(p.Shown) == 1 {
		p.Shown[0].Open = true
	}
}

// count formats a number in groups of three digits, separated by thin spaces.
func count(n uint64) string { return cli.Count(n, "\u202f") }

// headline summarizes the results of the run's scenarios in a few words, for the top of the page.
func headline(r *Run) string {
	n := r.Counts()
	total := len(r.Scenarios)
	switch bad := len(r.Bad()); {
	case total == 0:
		return "Nothing was run"
	case bad > 0:
		return fmt.Sprintf("%d of %d did not pass", bad, total)
	case n[Passed] == 0:
		return fmt.Sprintf("All %d were skipped", total)
	case n[Skipped] > 0:
		return fmt.Sprintf("%d passed, %d skipped", n[Passed], n[Skipped])
	case total == 1:
		return "It passed"
	default:
		return fmt.Sprintf("All %d passed", total)
	}
}

// runFacts returns the facts about a run below the headline of the page.
func runFacts(r *Run) (facts kit.Facts) {
	facts.AddCommand("Command", r.Command)
	seed := "each scenario's own"
	if r.Seed != 0 {
		seed = fmt.Sprint(r.Seed)
	}
	facts.Add("Seed", seed)
	facts.Add("Started", kit.Stamp(r.Started))
	facts.Add("Took", cli.Duration(r.Wall.Round(time.Millisecond)))
	facts.Add("Machine", r.Machine.String())
	facts.Add("fabrictest", r.Tool)
	return facts
}

// String describes the machine in a few words.
func (m Machine) String() string {
	parts := []string{m.OS + "/" + m.Arch, m.Kernel, cli.Plural(m.CPUs, "CPU")}
	return strings.Join(slices.DeleteFunc(parts, func(s string) bool { return s == "" || s == "/" }), ", ")
}

// clip truncates a text to n bytes, and then appends how much more is in result.json.
func clip(s string, n int) string {
	return kit.Clip(s, n, fmt.Sprintf("\n… %s more in result.json", cli.Bytes(len(s)-n)))
}

// cut truncates a text of more than n bytes, and appends " …". It cuts at the last space in the
// first n bytes, but not before byte n/2.
func cut(s string, n int) string {
	if len(s) <= n {
		return s
	}
	s = strings.ToValidUTF8(s[:n], "")
	return s[:max(strings.LastIndexByte(s, ' '), min(n/2, len(s)))] + " …"
}

// rankList formats sorted ranks as ranges: "0–7, 9".
func rankList(ranks []int) string {
	var parts []string
	for first := 0; first < len(ranks); {
		last := first // index of the last rank of the range
		for last+1 < len(ranks) && ranks[last+1] == ranks[last]+1 {
			last++
		}
		if last == first {
			parts = append(parts, fmt.Sprint(ranks[first]))
		} else {
			parts = append(parts, fmt.Sprintf("%d–%d", ranks[first], ranks[last]))
		}
		first = last + 1
	}
	return strings.Join(parts, ", ")
}
