package peers

import (
	_ "embed"
	"fmt"
	"io"
	"strings"
	"time"
	"unicode"

	"github.com/fabrictest/fabrictest/internal/cli"
	"github.com/fabrictest/fabrictest/perf"
	"github.com/fabrictest/fabrictest/report/internal/kit"
)

var (
	//go:embed page/page.gohtml
	pageText string
	//go:embed page/page.css
	pageCSS string

	layout = kit.NewLayout(pageCSS, "", nil, pageText)
)

// htmlPage is the template's data.
type htmlPage struct {
	kit.Page
	Summaries []summaryView
	HeatMaps  []heatMap
	Sections  []section
	Noisy     string // a warning
}

// summaryView is a row of the table of summaries.
type summaryView struct {
	Peer, ICRC, Faster, Slowest, SlowestName string
	Target, Verdict                          string
}

// section is a metric: charts, or bars if there is one size only, and a table.
type section struct {
	Title, Better string
	Charts        []kit.Chart
	Bars          *kit.Bars
	Table         table
	Folded        bool // the table
}

// WriteHTML writes the result as one self-contained page.
func (r *Run) WriteHTML(w io.Writer) error {
	p := &htmlPage{Page: kit.Page{About: "comparison with other runtimes", Headline: r.headline(), Facts: r.facts()}}
	p.Title = "fabrictest: " + p.Headline
	p.Counts, _ = kit.Bar(r.verdicts(), []string{perf.Missed, perf.Unclear, perf.Holds}, nil) // the texts, which would need names, are not used
	for i := range r.Summaries {
		p.Summaries = append(p.Summaries, r.Summaries[i].view())
	}
	if len(r.Summaries) > 0 {
		p.HeatMaps = r.heatMaps()
	}
	for _, metric := range inOrder(r.Comparisons, func(c *Comparison) string { return c.Metric }) {
		p.Sections = append(p.Sections, r.section(metric))
	}
	return layout.Write(w, p, "")
}

// inOrder returns the different keys of comparisons, in the order in which they first occur.
func inOrder[K comparable](all []Comparison, key func(c *Comparison) K) (keys []K) {
	seen := map[K]bool{}
	for i := range all {
		if k := key(&all[i]); !seen[k] {
			seen[k], keys = true, append(keys, k)
		}
	}
	return keys
}

// headline names the peers.
func (r *Run) headline() string {
	names := make([]string, len(r.Peers))
	for i, p := range r.Peers {
		names[i] = p.Name
	}
	text := strings.Join(names, ", ")
	if last := len(names) - 1; last > 0 {
		text = strings.Join(names[:last], ", ") + " and " + names[last]
	}
	switch {
	case len(names) == 0:
		return "Nothing was compared"
	case len(r.Summaries) > 0:
		return "Collective operations compared with " + text
	}
	return "Messages compared with " + text
}

// verdicts counts the verdicts, each with ICRC and without.
func (r *Run) verdicts() map[string]int {
	counts := map[string]int{}
	for _, c := range r.Comparisons {
		if c.Target != "" {
			counts[c.Verdict]++
			counts[c.VerdictNoICRC]++
		}
	}
	return counts
}

// facts returns the names and values at the head of the page.
func (r *Run) facts() (all kit.Facts) {
	versions := make([]string, len(r.Peers))
	for i, p := range r.Peers {
		versions[i] = p.Version
	}
	all.Add("Peers", strings.Join(versions, ", "))
	all.Add("Machine", r.Machine.String())
	all.Add("Processor", r.CPU)
	all.Add("Started", kit.Stamp(r.Started))
	all.Add("Load at the start", fmt.Sprintf("%.1f", r.Load))
	all.Add("Rounds", fmt.Sprint(r.Rounds))
	all.Add("fabrictest", r.Tool)
	all.AddCommand("Again", r.Command)
	for _, s := range r.Skipped {
		all.AddCommand(fmt.Sprintf("%s was skipped (%s); install it with", s.Name, s.Reason), s.Install)
	}
	return all
}

// view returns the row of a summary.
func (s *Summary) view() summaryView {
	return summaryView{
		Peer: s.Peer, ICRC: s.icrc(), Faster: fmt.Sprintf("%d of %d (%.0f %%)", s.Faster, s.Points, 100*s.Share()),
		Slowest: ratioText(s.Slowest), SlowestName: s.SlowestName, Target: s.Target, Verdict: s.Verdict,
	}
}

// section returns the charts and the table of a metric.
func (r *Run) section(metric string) section {
	var all []Comparison
	for _, c := range r.Comparisons {
		if c.Metric == metric {
			all = append(all, c)
		}
	}
	s := section{Title: capital(metric), Better: "Less is better.", Table: r.table(all), Folded: len(r.Summaries) > 0}
	if !all[0].LessWins {
		s.Better = "More is better."
	}
	sizes := inOrder(all, func(c *Comparison) int { return c.Bytes })
	if len(sizes) == 1 {
		s.Bars = r.bars(all)
		return s
	}
	for _, ranks := range inOrder(all, func(c *Comparison) int { return c.Ranks }) {
		var some []Comparison
		for _, c := range all {
			if c.Ranks == ranks {
				some = append(some, c)
			}
		}
		s.Charts = append(s.Charts, r.figuresChart(some))
	}
	if len(r.Summaries) == 0 {
		s.Charts = append(s.Charts, r.ratiosChart(all))
	}
	return s
}

// capital returns a text with a capital letter at its beginning.
func capital(text string) string {
	for i, c := range text {
		return string(unicode.ToUpper(c)) + text[i+len(string(c)):]
	}
	return ""
}

// sizeText formats a size without decimals that are 0.
func sizeText(bytes int) string { return strings.Replace(cli.Bytes(bytes), ".0 ", " ", 1) }

// figureText formats a figure: times in a readable unit.
func figureText(v float64, unit string) string {
	if unit == "µs" {
		return cli.Duration(time.Duration(v * float64(time.Microsecond)))
	}
	return cli.ThreeDigits(v) + " " + unit
}

// ratioText formats a ratio.
func ratioText(v float64) string {
	if v >= 10 {
		return fmt.Sprintf("%.1f", v)
	}
	return fmt.Sprintf("%.2f", v)
}
