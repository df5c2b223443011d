package report

import (
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/fabrictest/fabrictest/internal/printable"
	"github.com/fabrictest/fabrictest/report/internal/kit"
)

// WriteJUnit writes a run as JUnit XML: a suite for each tier, a case for each scenario. A
// failed scenario is a failure; a broken or starved one is an error. Times are wall-clock
// times.
func WriteJUnit(w io.Writer, r *Run) error {
	all := kit.Suites{Name: "fabrictest", Time: kit.Seconds(r.Wall)}
	for _, tier := range r.tiers() {
		all.Add(r.junitSuite(tier))
	}
	return all.Write(w)
}

func (r *Run) junitSuite(tier string) kit.Suite {
	s := kit.Suite{
		Name: "fabrictest." + printable.Text(tier), Timestamp: r.Started.UTC().Format(time.DateOnly + "T15:04:05"),
		Properties: []kit.Property{
			kit.Fact("fabrictest.version", printable.Text(r.Tool)),
			kit.Fact("seed", strconv.FormatUint(r.Seed, 10)),
			kit.Fact("command", printable.Text(r.Command)),
			kit.Fact("machine", printable.Text(fmt.Sprintf("%s/%s %s, %d CPUs", r.Machine.OS, r.Machine.Arch, r.Machine.Kernel, r.Machine.CPUs))),
		},
	}
	wall := time.Duration(0)
	for i := range r.Scenarios {
		res := &r.Scenarios[i]
		if res.Tier != tier {
			continue
		}
		wall += res.Wall
		s.Add(res.junitCase(s.Name))
	}
	s.Time = kit.Seconds(wall)
	return s
}

func (r *Result) junitCase(class string) kit.Case {
	c := kit.Case{
		Name: printable.Text(r.Name), Class: class, Time: kit.Seconds(r.Wall),
		Properties: []kit.Property{kit.Fact("seed", strconv.FormatUint(r.Seed, 10)), kit.Fact("elapsed", r.Elapsed.String())},
		SystemOut:  kit.Text{Text: r.junitOutput()},
	}
	if r.Title != "" {
		c.Properties = append(c.Properties, kit.Fact("title", printable.Text(r.Title)))
	}
	if len(r.Tags) > 0 {
		c.Properties = append(c.Properties, kit.Fact("tags", printable.Text(strings.Join(r.Tags, " "))))
	}
	if r.Provider != "" {
		c.Properties = append(c.Properties, kit.Fact("provider", printable.Text(r.Provider)))
	}
	if len(r.Defects) > 0 {
		c.Properties = append(c.Properties, kit.Fact("defects", printable.Text(strings.Join(r.Defects, " "))))
	}
	if r.Netem {
		c.Properties = append(c.Properties, kit.Fact("impaired by", "netem"))
	}
	if r.First != nil {
		c.Properties = append(c.Properties, kit.Fact("first attempt", printable.Line(r.First.Reason)))
	}
	problem := &kit.Problem{Message: printable.Line(r.Reason), Type: string(r.Verdict), Text: "\n" + r.explanation() + "\n"}
	switch r.Verdict {
	case Passed:
	case Skipped:
		c.Skipped = &kit.Problem{Message: printable.Line(r.Reason)}
	case Failed:
		c.Failure = problem
	case Starved:
		c.Error = problem
	default:
		problem.Type = string(Broken)
		c.Error = problem
	}
	return c
}

// explanation returns the reason of a bad result with its details.
func (r *Result) explanation() string {
	var b strings.Builder
	b.WriteString(r.why())
	for _, c := range r.Checks {
		if !c.OK {
			fmt.Fprintf(&b, "\n%s: want %s, got %s", c.Name, c.Want, c.Got)
		}
	}
	if r.Detail != "" {
		b.WriteString("\n\n" + strings.TrimRight(r.Detail, "\n"))
	}
	if r.Replay != "" {
		b.WriteString("\n\nTo repeat it alone: " + r.Replay)
	}
	return printable.Text(b.String())
}

func (r *Result) junitOutput() string {
	var b strings.Builder
	fmt.Fprintf(&b, "replay: %s\n", r.Replay)
	for _, f := range r.Files {
		fmt.Fprintf(&b, "%s: %s (%d bytes)\n", f.Kind, f.Path, f.Size)
	}
	return printable.Text(b.String())
}
