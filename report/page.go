package report

import (
	"bytes"
	_ "embed"
	"fmt"
	"html/template"
	"io"
	"strings"

	"github.com/fabrictest/fabrictest/internal/printable"
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

	pageTemplate = template.Must(template.Must(template.New("page").Parse(pageText)).Parse(resultText))
)

// WriteHTML writes a run as one self-contained page. It loads nothing from the network,
// and works without its script.
func WriteHTML(w io.Writer, r *Run) error {
	var b bytes.Buffer
	if err := pageTemplate.Execute(&b, newPage(r)); err != nil {
		return fmt.Errorf("report.html: %w", err)
	}
	// The template escapes HTML. Control and invisible characters are made visible at the
	// end, wherever they came from.
	_, err := io.WriteString(w, printable.Text(b.String()))
	return err
}

// htmlPage is the template's data for a run.
type htmlPage struct {
	kit.Style
	Title    string
	Headline string
	Good     bool
	Counts   []countView
	Facts    []fact
	Tiers    []string
	Rows     []matrixRow
	Bad      []*resultView
	Results  []*resultView
}

// countView is a segment of the bar of verdicts.
type countView struct {
	Verdict Verdict
	N       int
	Percent float64
}

// fact is a name and a value.
type fact struct {
	Name, Value string
	Code        bool // shown as code
}

// matrixRow is a scenario; its cells are its results by tier, nil where it was not run.
type matrixRow struct {
	Name, Title string
	Tags        []string
	Cells       []*resultView
	Verdicts    string // verdicts of all cells, for the filter
}

func newPage(r *Run) *htmlPage {
	p := &htmlPage{
		Style: kit.NewStyle(pageCSS, pageJS),
		Good:  len(r.Bad()) == 0, Headline: headline(r), Tiers: r.tiers(), Facts: runFacts(r),
	}
	p.Title = "fabrictest: " + p.Headline
	counts := r.Counts()
	for _, v := range Verdicts() {
		if n := counts[v]; n > 0 {
			p.Counts = append(p.Counts, countView{v, n, 100 * float64(n) / float64(len(r.Scenarios))})
		}
	}
	p.addResults(r)
	return p
}

// maxOpen limits how many bad results are expanded at first.
const maxOpen = 8

func (p *htmlPage) addResults(r *Run) {
	// The more results there are, the fewer rows of each are shown, to keep the page
	// small. All rows are in result.json.
	maxRows := min(256, max(24, 4800/max(1, len(r.Scenarios))))
	ids := map[string]int{}
	rows := map[string]int{}
	for i := range r.Scenarios {
		res := &r.Scenarios[i]
		v := newResultView(res, anchor(res, ids), maxRows)
		p.Results = append(p.Results, v)
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
	if len(p.Results) == 1 {
		p.Results[0].Open = true
	}
}

// anchor returns a unique HTML ID for a result.
func anchor(r *Result, taken map[string]int) string {
	id := strings.Map(func(c rune) rune {
		switch {
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9', c == '-', c == '_', c == '.':
			return c
		}
		return '-'
	}, r.Tier+"."+r.Name)
	if len(id) > 80 {
		id = id[:80]
	}
	taken[id]++
	if n := taken[id]; n > 1 {
		return fmt.Sprintf("r.%s.%d", id, n)
	}
	return "r." + id
}
