package conform

import (
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/fabrictest/fabrictest/internal/printable"
	"github.com/fabrictest/fabrictest/report/internal/kit"
)

// WriteJUnit writes a run as JUnit XML: a suite per device, with cases in classes by area.
// A failed or stale case is a failure, a broken one an error; an unsupported or deviating
// one is skipped, with a message. Faults of the cases themselves have a separate suite.
func WriteJUnit(w io.Writer, r *Run) error {
	all := kit.Suites{Name: "fabrictest conform", Time: kit.Seconds(r.Wall)}
	for i := range r.Devices {
		all.Add(r.junitSuite(&r.Devices[i]))
	}
	if len(r.Faults) > 0 {
		all.Add(r.junitFaults())
	}
	return all.Write(w)
}

func (r *Run) newSuite(name string) kit.Suite {
	return kit.Suite{
		Name: "fabrictest.conform." + printable.Line(name), Timestamp: r.Started.UTC().Format(time.DateOnly + "T15:04:05"),
		Properties: []kit.Property{
			kit.Fact("fabrictest.version", printable.Line(r.Tool)),
			kit.Fact("seed", strconv.FormatUint(r.Seed, 10)),
			kit.Fact("tier", printable.Line(r.Tier)),
			kit.Fact("command", printable.Line(r.Command)),
			kit.Fact("machine", printable.Line(fmt.Sprintf("%s/%s %s, %d CPUs", r.Machine.OS, r.Machine.Arch, r.Machine.Kernel, r.Machine.CPUs))),
		},
	}
}

func (r *Run) junitSuite(d *Device) kit.Suite {
	s := r.newSuite(d.Label())
	if len(d.Defects) > 0 {
		s.Properties = append(s.Properties, kit.Fact("defects", printable.Line(strings.Join(d.Defects, " "))))
	}
	if words := (&Run{Devices: []Device{*d}}).DeviationWords(); words != "" {
		s.Properties = append(s.Properties, kit.Fact("deviates", words))
	}
	took := time.Duration(0)
	for i := range d.Results {
		took += d.Results[i].Took
		s.Add(d.Results[i].junitCase(s.Name))
	}
	s.Time = kit.Seconds(took)
	return s
}

func (r *Result) junitCase(class string) kit.Case {
	area, _, _ := strings.Cut(r.ID, "/")
	c := kit.Case{
		Name: printable.Line(r.ID), Class: class + "." + printable.Line(area), Time: kit.Seconds(r.Took),
		Properties: []kit.Property{
			kit.Fact("title", printable.Line(r.Title)),
			kit.Fact("clause", printable.Line(r.Cite)),
			kit.Fact("level", printable.Line(r.Level)),
			kit.Fact("rows", printable.Line(strings.Join(r.Rows, " "))),
			kit.Fact("verdict", string(r.Verdict)),
		},
		SystemOut: kit.Text{Text: printable.Text("replay: " + r.Replay + "\n")},
	}
	if r.Capture != "" {
		c.SystemOut.Text += printable.Text("capture: " + r.Capture + "\n")
	}
	problem := &kit.Problem{Message: printable.Line(r.Reason), Type: printable.Line(string(r.Verdict)), Text: "\n" + printable.Text(r.explanation()) + "\n"}
	switch r.Verdict {
	case Pass:
	case Unsupported:
		c.Skipped = &kit.Problem{Message: printable.Line(r.Reason)}
	case Deviates:
		c.Skipped = &kit.Problem{Message: printable.Line(r.deviation())}
		c.Properties = append(c.Properties, kit.Fact("deviation", printable.Line(r.Deviation)))
	case Fail, Stale:
		c.Failure = problem
	default:
		problem.Type = string(Broken)
		c.Error = problem
	}
	return c
}

// explanation returns the reason of a bad result with its details.
func (r *Result) explanation() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s\n%s, %s\n", r.Title, r.Level, r.Cite)
	if r.Want != "" || r.Got != "" {
		fmt.Fprintf(&b, "\nwant %s\ngot  %s\n", r.Want, r.Got)
	} else {
		b.WriteString("\n" + r.Reason + "\n")
	}
	if r.Detail != "" {
		b.WriteString("\n" + strings.TrimRight(r.Detail, "\n") + "\n")
	}
	if r.Ladder != nil {
		b.WriteString("\n" + r.Ladder.Text())
	}
	if r.Replay != "" {
		b.WriteString("\nTo repeat it alone: " + r.Replay)
	}
	return b.String()
}

func (r *Run) junitFaults() kit.Suite {
	s := r.newSuite("check-cases")
	for _, f := range r.Faults {
		name := printable.Line(strings.TrimSpace(f.Case + " " + f.Defect))
		s.Add(kit.Case{
			Name: name, Class: s.Name + "." + printable.Line(f.Kind), Time: kit.Seconds(0),
			Failure:   &kit.Problem{Message: printable.Line(f.What), Type: printable.Line(f.Kind), Text: printable.Text(f.What)},
			SystemOut: kit.Text{Text: printable.Text("device: " + f.Device + "\n")},
		})
	}
	s.Time = kit.Seconds(0)
	return s
}
