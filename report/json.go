package report

import (
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/fabrictest/fabrictest/report/internal/kit"
)

// ErrVersion is wrapped by the error of Read for an unknown version.
var ErrVersion = kit.ErrVersion

// KeyError is the error for a key of a file.
type KeyError = kit.KeyError

// Write writes a run as JSON, whose schema is schema.json.
func Write(w io.Writer, r *Run) error { return kit.WriteJSON(w, r) }

// Read reads a result that Write wrote. An unknown version, and an unknown, missing or
// duplicate key are errors; a *KeyError names the key.
func Read(r io.Reader) (*Run, error) {
	var run Run
	if err := (kit.Format{Version: Version, Name: "the result of a run"}).Read(r, &run); err != nil {
		return nil, err
	}
	for i := range run.Scenarios {
		if v := run.Scenarios[i].Verdict; !slices.Contains(Verdicts(), v) {
			return nil, &KeyError{Key: fmt.Sprintf("scenarios[%d].verdict", i), Err: fmt.Errorf("%q is none of %q", v, Verdicts())}
		}
	}
	return &run, nil
}

// ReadFile reads the result.json of a run.
func ReadFile(path string) (*Run, error) { return kit.ReadFile(path, Read) }

// Paths are the files that WriteFolder wrote.
type Paths = kit.Paths

// FolderError lists the files of a run's folder that could not be written, and the others.
type FolderError = kit.Error

// WriteFolder writes result.json, junit.xml and report.html into a folder, which it
// creates if needed. Each file is replaced atomically, and an error in one does not
// prevent the others. The error is a *FolderError; paths has the files that were written.
func WriteFolder(dir string, r *Run) (paths Paths, err error) {
	return kit.Folder[*Run]{Result: ResultFile, JUnit: WriteJUnit, Page: WriteHTML}.Write(dir, r)
}

// WriteJUnit writes a run as JUnit XML: a suite for each tier (sim or netns), a case for each
// scenario. Broken and starved scenarios are errors, failed ones failures; a starved one was too
// late because the host was busy. Times are wall-clock.
func WriteJUnit(w io.Writer, r *Run) error {
	all := kit.Suites{Name: "fabrictest"}
	for _, tier := range r.tiers() {
		s := kit.NewSuite("fabrictest."+tier, r.Started)
		s.Properties.Add("fabrictest.version", r.Tool)
		s.Properties.Add("seed", strconv.FormatUint(r.Seed, 10))
		s.Properties.Add("command", r.Command)
		s.Properties.Add("machine", fmt.Sprintf("%s/%s %s, %d CPUs", r.Machine.OS, r.Machine.Arch, r.Machine.Kernel, r.Machine.CPUs))
		for i := range r.Scenarios {
			if res := &r.Scenarios[i]; res.Tier == tier {
				s.Add(res.junitCase(), "", res.Wall)
			}
		}
		all.Add(s)
	}
	return all.Write(w, r.Wall)
}

// junitCase returns the JUnit case of a result.
func (r *Result) junitCase() kit.Case {
	c := kit.Case{Name: r.Name, SystemOut: kit.Text{Text: r.junitOutput()}}
	c.Properties.Add("seed", strconv.FormatUint(r.Seed, 10))
	c.Properties.Add("elapsed", r.Elapsed.String())
	c.Properties.Add("title", r.Title)
	c.Properties.Add("tags", strings.Join(r.Tags, " "))
	c.Properties.Add("provider", r.Provider)
	c.Properties.Add("defects", strings.Join(r.Defects, " "))
	if r.Netem {
		c.Properties.Add("impaired by", "netem")
	}
	if r.First != nil {
		c.Properties.Add("first attempt", r.First.Reason)
	}
	switch r.Verdict {
	case Passed:
	case Skipped:
		c.Skipped = kit.NewProblem(r.Reason, "", "")
	case Failed:
		c.Failure = kit.NewProblem(r.Reason, string(r.Verdict), "\n"+r.explanation()+"\n")
	default:
		c.Error = kit.NewProblem(r.Reason, string(r.Verdict), "\n"+r.explanation()+"\n")
	}
	return c
}

// explanation returns the reason of a bad result, its failed checks, details and replay command.
func (r *Result) explanation() string {
	var b strings.Builder
	b.WriteString(r.shortReason())
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
	return b.String()
}

// junitOutput returns the system-out of a JUnit case: the replay command and the output files.
func (r *Result) junitOutput() string {
	var b strings.Builder
	fmt.Fprintf(&b, "replay: %s\n", r.Replay)
	for _, f := range r.Files {
		fmt.Fprintf(&b, "%s: %s (%d bytes)\n", f.Kind, f.Path, f.Size)
	}
	return b.String()
}
