package conform

import (
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/fabrictest/fabrictest/internal/printable"
	"github.com/fabrictest/fabrictest/report/internal/files"
)

// WriteJUnit writes a run as JUnit XML: a suite per device, with cases in classes by area.
// A failed or stale case is a failure, a broken one an error; an unsupported or deviating
// one is skipped, with a message. Faults of the cases themselves have a separate suite.
func WriteJUnit(w io.Writer, r *Run) error {
	all := files.Suites{Name: "fabrictest conform", Time: files.Seconds(r.Wall)}
	for i := range r.Devices {
		all.Add(r.junitSuite(&r.Devices[i]))
	}
	if len(r.Faults) > 0 {
		all.Add(r.junitFaults())
	}
	return all.Write(w)
}

func (r *Run) newSuite(name string) files.Suite {
	return files.Suite{
		Name: "fabrictest.conform." + printable.Line(name), Timestamp: r.Started.UTC().Format(time.DateOnly + "T15:04:05"),
		Properties: []files.Property{
			files.Fact("fabrictest.version", printable.Line(r.Tool)),
			files.Fact("seed", strconv.FormatUint(r.Seed, 10)),
			files.Fact("tier", printable.Line(r.Tier)),
			files.Fact("command", printable.Line(r.Command)),
			files.Fact("machine", printable.Line(fmt.Sprintf("%s/%s %s, %d CPUs", r.Machine.OS, r.Machine.Arch, r.Machine.Kernel, r.Machine.CPUs))),
		},
	}
}

func (r *Run) junitSuite(d *Device) files.Suite {
	s := r.newSuite(d.Label())
	if len(d.Defects) > 0 {
		s.Properties = append(s.Properties, files.Fact("defects", printable.Line(strings.Join(d.Defects, " "))))
	}
	if words := (&Run{Devices: []Device{*d}}).DeviationWords(); words != "" {
		s.Properties = append(s.Properties, files.Fact("deviates", words))
	}
	took := time.Duration(0)
	for i := range d.Results {
		took += d.Results[i].Took
		s.Add(d.Results[i].junitCase(s.Name))
	}
	s.Time = files.Seconds(took)
	return s
}

func (r *Result) junitCase(class string) files.Case {
	area, _, _ := strings.Cut(r.ID, "/")
	c := files.Case{
		Name: printable.Line(r.ID), Class: class + "." + printable.Line(area), Time: files.Seconds(r.Took),
		Properties: []files.Property{
			files.Fact("title", printable.Line(r.Title)),
			files.Fact("clause", printable.Line(r.Cite)),
			files.Fact("level", printable.Line(r.Level)),
			files.Fact("rows", printable.Line(strings.Join(r.Rows, " "))),
			files.Fact("verdict", string(r.Verdict)),
		},
		SystemOut: files.Text{Text: printable.Text("replay: " + r.Replay + "\n")},
	}
	if r.Capture != "" {
		c.SystemOut.Text += printable.Text("capture: " + r.Capture + "\n")
	}
	problem := &files.Problem{Message: printable.Line(r.Reason), Type: printable.Line(string(r.Verdict)), Text: "\n" + printable.Text(r.explanation()) + "\n"}
	switch r.Verdict {
	case Pass:
	case Unsupported:
		c.Skipped = &files.Problem{Message: printable.Line(r.Reason)}
	case Deviates:
		c.Skipped = &files.Problem{Message: printable.Line(r.deviation())}
		c.Properties = append(c.Properties, files.Fact("deviation", printable.Line(r.Deviation)))
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

func (r *Run) junitFaults() files.Suite {
	s := r.newSuite("check-cases")
	for _, f := range r.Faults {
		name := printable.Line(strings.TrimSpace(f.Case + " " + f.Defect))
		s.Add(files.Case{
			Name: name, Class: s.Name + "." + printable.Line(f.Kind), Time: files.Seconds(0),
			Failure:   &files.Problem{Message: printable.Line(f.What), Type: printable.Line(f.Kind), Text: printable.Text(f.What)},
			SystemOut: files.Text{Text: printable.Text("device: " + f.Device + "\n")},
		})
	}
	s.Time = files.Seconds(0)
	return s
}
