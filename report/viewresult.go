package report

import (
	"fmt"
	"html/template"
	"slices"
	"strings"
	"time"

	"github.com/fabrictest/fabrictest/internal/cli"
	"github.com/fabrictest/fabrictest/report/internal/kit"
)

// Maximum lengths of texts on the page; result.json has the full text.
const (
	maxLine   = 240
	maxReason = 2 << 10
	maxDetail = 16 << 10
	maxListed = 16
)

// resultView is the template's data for a result.
type resultView struct {
	ID, Name, Title, Description, Tier string
	Tags                               []string
	Verdict                            Verdict
	Open                               bool
	Reason, Why, Detail, Replay        string // Why is the reason if the checks do not show it
	Outcome                            string // time, or how many figures of an experiment agree; may be empty
	Figures                            kit.Facts
	Checks                             []Check
	Experiment                         *experimentView
	HasLongCheck                       bool // a check has a long text and needs the full width
	Fabric                             template.HTML
	FabricWide                         bool
	FabricText                         string
	Legend                             []legendView
	Time                               *timeView
	Faults, Links, Ranks               *table
	Waits                              []waitView
	Problems                           []problemView
	Files                              []fileView
	FilterText                         string // text that the page's filter searches
}

// legendView explains a state of the drawing.
type legendView struct{ State, Text string }

// waitView lists ranks that are blocked in the same operation.
type waitView struct{ Ranks, Text string }

// problemView is an error or violation of a rank.
type problemView struct{ Rank, Text string }

// fileView is an output file of the scenario.
type fileView struct{ Kind, Path, Href, Size string }

// newResultView returns the template's data for a result. id is its anchor on the page, maxRows
// the limit of rows of each table.
func newResultView(r *Result, id string, maxRows int) *resultView {
	const longText = 160       // length above which a text does not fit into a narrow column
	const maxNarrowWidth = 600 // of a drawing that fits beside a table
	v := &resultView{
		ID: id, Name: r.Name, Title: r.Title, Description: r.Description, Tier: r.Tier, Tags: r.Tags,
		Verdict: r.Verdict, Reason: cut(r.Reason, maxLine), Why: clip(r.shortReason(), maxReason), Detail: clip(r.Detail, maxDetail), Replay: r.Replay,
		Checks: r.Checks, Time: newTimeView(r), Faults: faultTable(r, maxRows), Links: linkTable(r, maxRows), Ranks: rankTable(r, maxRows),
		Figures: figures(r), Waits: waits(r.Ranks), Problems: problems(r), Files: fileViews(r.Files),
		FilterText: strings.ToLower(strings.Join(append([]string{r.Name, r.Title, r.Tier, r.Provider}, r.Tags...), " ")),
	}
	if r.Experiment != nil {
		v.Experiment, v.Checks = newExperimentView(r.Experiment), nil // the figures are the checks
	}
	for _, c := range r.Checks {
		v.HasLongCheck = v.HasLongCheck || len(c.Got) > longText
	}
	switch e := r.Experiment; {
	case e != nil && r.Verdict == Passed: // also with differences that are known
		v.Outcome = fmt.Sprintf("%d of %d agree", e.Agreeing(), len(e.Figures))
	case r.Elapsed > 0:
		v.Outcome = cli.Duration(r.Elapsed)
	}
	if r.Fabric != nil && len(r.Fabric.Hosts) > 0 {
		painter := newFabricPainter(r)
		d := kit.Draw(r.Fabric, painter)
		v.Fabric, v.FabricWide, v.FabricText, v.Legend = d.SVG, d.Width > maxNarrowWidth, fabricText(r.Fabric), painter.legend()
	}
	return v
}

// figures returns the main numbers and settings of a result, by name.
func figures(r *Result) kit.Facts {
	t := r.Totals()
	var f kit.Facts
	add := f.Add
	if len(r.Ranks) > 0 {
		add("Ranks", fmt.Sprint(len(r.Ranks)))
	}
	if e := r.Experiment; e != nil {
		add("Figures that agree", fmt.Sprintf("%d of %d", e.Agreeing(), len(e.Figures)))
		add("Platform", e.Platform)
		add("Ranks", fmt.Sprint(e.Ranks))
		add("Simulations", fmt.Sprint(e.Runs))
	}
	if t.Messages > 0 || t.Bytes > 0 {
		add("Delivered", cli.Bytes(t.Bytes))
		add("Messages", count(t.Messages))
		add("Goodput", cli.BitRate(r.GoodputBps()))
	}
	if len(r.Links) > 0 {
		lost := count(t.Lost)
		if t.Lost > 0 {
			lost += " (" + cli.Percent(t.Lost, t.Packets) + ")"
		}
		add("Packets lost", lost)
	}
	if len(r.Ranks) > 0 && len(r.Links) > 0 {
		add("Sent again", count(t.Resent))
	}
	if t.Failures > 0 {
		add("Errors", count(uint64(t.Failures)))
	}
	if r.Elapsed > 0 {
		name := "Time"
		if r.Tier == "sim" {
			name = "Virtual time"
		}
		add(name, cli.Duration(r.Elapsed))
	}
	add("Wall time", cli.Duration(r.Wall.Round(100*time.Microsecond)))
	add("Seed", fmt.Sprint(r.Seed))
	if r.Provider != "" {
		add("NICs", r.Provider)
	}
	if len(r.Defects) > 0 { // those of the scenario, which only some NICs may have, are not among them
		add("Every NIC has", strings.Join(r.Defects, ", "))
	}
	if r.Netem {
		add("Links impaired by", "the kernel's netem")
	}
	if s := r.Scheduling; s != nil {
		add("Processors taken by others or a CPU limit", fmt.Sprintf("%.0f %%", 100*s.Others))
		if s.Process != "" {
			add("Waited most for a processor", fmt.Sprintf("%s: %s, and ran for %s", s.Process, milliseconds(s.Waited), milliseconds(s.Ran)))
		}
	}
	if r.First != nil { // the scenario was repeated, because the first run lacked CPU time
		add("First attempt", cut("starved: "+r.First.Reason, maxLine))
	}
	return f
}

// milliseconds formats a time, rounded to milliseconds.
func milliseconds(d time.Duration) string { return cli.Duration(d.Round(time.Millisecond)) }

// String describes the CPU time of the run in one line.
func (s *Scheduling) String() string {
	text := fmt.Sprintf("other processes, or a CPU limit, took %.0f %% of the processors", 100*s.Others)
	if s.Process != "" {
		text += "; " + s.Process + " waited " + milliseconds(s.Waited) + " for one and ran " + milliseconds(s.Ran)
	}
	if s.Late > 0 {
		text += "; a fault came " + milliseconds(s.Late) + " late"
	}
	return text
}

// waits groups the blocked ranks by the operation that they wait for. It lists up to maxListed
// operations, and then the number of the others.
func waits(ranks []Rank) []waitView {
	var texts []string           // operations
	groups := map[string][]int{} // ranks by operation
	for i := range ranks {
		text := strings.TrimRight(ranks[i].Waiting, "\n")
		if text == "" {
			continue
		}
		if groups[text] == nil {
			texts = append(texts, text)
		}
		groups[text] = append(groups[text], ranks[i].Rank)
	}
	var out []waitView
	for i, text := range texts {
		if i == maxListed {
			out = append(out, waitView{"Others", fmt.Sprintf("%d more, in result.json", len(texts)-maxListed)})
			break
		}
		slices.Sort(groups[text])
		name := "Rank "
		if len(groups[text]) > 1 {
			name = "Ranks "
		}
		out = append(out, waitView{name + rankList(groups[text]), clip(text, maxReason)})
	}
	return out
}

// shortReason returns the reason of a result. If checks failed, it has only their names: reports
// list the values below.
func (r *Result) shortReason() string {
	if names := r.FailedChecks(); r.Verdict == Failed && len(names) > 0 {
		return "Not as expected: " + strings.Join(names, ", ")
	}
	return r.Reason
}

// problems returns the errors and violations of ranks that neither the detail nor a check of the
// result contains. It lists up to maxListed, and then the number of the others.
func problems(r *Result) []problemView {
	shown := r.Detail
	for _, c := range r.Checks {
		shown += "\n" + c.Got
	}
	var out []problemView
	omitted := 0
	for i := range r.Ranks {
		rank := &r.Ranks[i]
		for _, text := range append([]string{rank.Error}, rank.Violations...) {
			if strings.Contains(shown, text) { // also if text is empty
				continue
			}
			if len(out) == maxListed {
				omitted++
				continue
			}
			out = append(out, problemView{fmt.Sprintf("Rank %d", rank.Rank), clip(text, maxReason)})
		}
	}
	if omitted > 0 {
		out = append(out, problemView{"Others", fmt.Sprintf("%d more, in result.json", omitted)})
	}
	return out
}

// maxFiles limits the listed files of a scenario.
const maxFiles = 80

// fileViews returns the template's data for up to maxFiles files, and the number of the others.
func fileViews(all []File) []fileView {
	var out []fileView
	for i, f := range all {
		if i == maxFiles {
			out = append(out, fileView{Kind: "more", Path: fmt.Sprintf("%d others, in result.json", len(all)-maxFiles)})
			break
		}
		out = append(out, fileView{Kind: f.Kind, Path: f.Path, Size: cli.Bytes(f.Size), Href: kit.Href(f.Path)})
	}
	return out
}
