package conform

import (
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/fabrictest/fabrictest/report"
	"github.com/fabrictest/fabrictest/report/internal/kit"
)

// Files of a result folder.
const (
	ResultFile = "conformance.json"
	PageFile   = kit.PageFile
)

// Write writes a run as JSON, whose schema is schema.json.
func Write(w io.Writer, r *Run) error { return kit.WriteJSON(w, r) }

// Read reads a run that Write wrote. An unknown version, and an unknown, missing or
// duplicate key are errors; a *report.KeyError names the key.
func Read(r io.Reader) (*Run, error) {
	var run Run
	if err := (kit.Format{Version: Version, Name: "the result of fabrictest conform"}).Read(r, &run); err != nil {
		return nil, err
	}
	if err := run.Check(); err != nil {
		return nil, err
	}
	return &run, nil
}

// ReadFile reads the conformance.json of a run.
func ReadFile(path string) (*Run, error) { return kit.ReadFile(path, Read) }

// WriteFolder writes conformance.json, junit.xml and report.html into a folder, which it
// creates if needed. Each file is replaced atomically, and an error in one does not prevent
// the others. The error is a *report.FolderError; paths has the files that were written.
func WriteFolder(dir string, r *Run) (paths report.Paths, err error) {
	return kit.Folder[*Run]{Result: ResultFile, JUnit: WriteJUnit, Page: WriteHTML}.Write(dir, r)
}

// Check returns a *report.KeyError for an unknown verdict.
func (r *Run) Check() error {
	for i := range r.Devices {
		for j := range r.Devices[i].Results {
			if err := r.Devices[i].Results[j].checkVerdicts(); err != nil {
				err.Key = fmt.Sprintf("devices[%d].results[%d].%s", i, j, err.Key)
				return err
			}
		}
	}
	return nil
}

// checkVerdicts returns an error for an unknown verdict, with its key in the result.
func (r *Result) checkVerdicts() *report.KeyError {
	unknown := func(key string, v Verdict) *report.KeyError {
		return &report.KeyError{Key: key, Err: fmt.Errorf("%q is none of %q", v, Verdicts())}
	}
	if !slices.Contains(Verdicts(), r.Verdict) {
		return unknown("verdict", r.Verdict)
	}
	for i, f := range r.Defective {
		if !slices.Contains(Verdicts(), f.Verdict) {
			return unknown(fmt.Sprintf("defective[%d].verdict", i), f.Verdict)
		}
	}
	return nil
}

// WriteJUnit writes a run as JUnit XML: a suite per device, with cases in classes by area. A case
// that failed, or that passed in spite of a known deviation (stale), is a failure, a broken or
// starved one an error; an unsupported or deviating one is skipped, with a message. Faults of the cases themselves
// have a separate suite.
func WriteJUnit(w io.Writer, r *Run) error {
	all := kit.Suites{Name: "fabrictest conform"}
	for i := range r.Devices {
		all.Add(r.junitSuite(&r.Devices[i]))
	}
	if len(r.Faults) > 0 {
		all.Add(r.junitFaults())
	}
	return all.Write(w, r.Wall)
}

// newSuite returns a JUnit suite without cases, with properties of the run.
func (r *Run) newSuite(name string) kit.Suite {
	s := kit.NewSuite("fabrictest.conform."+name, r.Started)
	s.Properties.Add("fabrictest.version", r.Tool)
	s.Properties.Add("seed", strconv.FormatUint(r.Seed, 10))
	s.Properties.Add("tier", r.Tier) // where the cases ran: sim, netns or wire
	s.Properties.Add("command", r.Command)
	s.Properties.Add("machine", fmt.Sprintf("%s/%s %s, %d CPUs", r.Machine.OS, r.Machine.Arch, r.Machine.Kernel, r.Machine.CPUs))
	return s
}

// junitSuite returns the JUnit suite of a device. The area of a case is the first part of its ID.
func (r *Run) junitSuite(d *Device) kit.Suite {
	s := r.newSuite(d.Label())
	s.Properties.Add("defects", strings.Join(d.Defects, " "))
	s.Properties.Add("deviates", (&Run{Devices: []Device{*d}}).DeviationCounts())
	for i := range d.Results {
		area, _, _ := strings.Cut(d.Results[i].ID, "/")
		s.Add(d.Results[i].junitCase(), "."+area, d.Results[i].Took)
	}
	return s
}

// junitCase returns the result as a JUnit case. Fail and stale are failures, broken and starved are errors,
// unsupported and deviates are skipped.
func (r *Result) junitCase() kit.Case {
	c := kit.Case{Name: r.ID, SystemOut: kit.Text{Text: "replay: " + r.Replay + "\n"}}
	c.Properties.Add("title", r.Title)
	c.Properties.Add("clause", r.Cite)
	c.Properties.Add("level", r.Level)
	c.Properties.Add("rows", strings.Join(r.Rows, " "))
	c.Properties.Add("verdict", string(r.Verdict))
	if r.Capture != "" {
		c.SystemOut.Text += "capture: " + r.Capture + "\n"
	}
	switch r.Verdict {
	case Pass:
	case Unsupported:
		c.Skipped = kit.NewProblem(r.Reason, "", "")
	case Deviates:
		c.Skipped = kit.NewProblem(r.deviationLine(), "", "")
		c.Properties.Add("deviation", r.Deviation)
	case Fail, Stale:
		c.Failure = kit.NewProblem(r.Reason, string(r.Verdict), "\n"+r.explanation()+"\n")
	default:
		c.Error = kit.NewProblem(r.Reason, string(r.Verdict), "\n"+r.explanation()+"\n")
	}
	return c
}

// explanation returns the reason of a bad result, with its ladder diagram of packets and calls.
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

// junitFaults returns a JUnit suite with a failure for each fault of a case itself: for example, it
// passes on a device with a defect that it should detect.
func (r *Run) junitFaults() kit.Suite {
	s := r.newSuite("check-cases")
	for _, f := range r.Faults {
		s.Add(kit.Case{
			Name:      strings.TrimSpace(f.Case + " " + f.Defect),
			Failure:   kit.NewProblem(f.What, f.Kind, f.What),
			SystemOut: kit.Text{Text: "device: " + f.Device + "\n"},
		}, "."+f.Kind, 0) // no duration
	}
	return s
}
