// Package judge judges devices by conformance cases and makes results for a report: it runs the
// cases of devices in their labs, checks the cases on devices with defects, measures recovery
// times, and lists the suites, their cases and their coverage of the specifications. It adds to the
// suites the cases that run on a device and a partner: litmus tests of memory ordering, and the
// linearizability of atomics. Its tests run the cases as Ginkgo specs.
//
// It opens no device: its caller, cmd/fabrictest or lab/runner, passes labs and the
// functions in [Hooks].
package judge

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/fabrictest/fabrictest/conformance"
	"github.com/fabrictest/fabrictest/internal/cli"
	"github.com/fabrictest/fabrictest/report/conform"
)

// Device is a device on which some cases run.
type Device struct {
	Name, Title string
	Protocol    conformance.Protocol // of the device
	Profile     string               // that it imitates; empty for none
	Defects     []string             // that it has, with those of the profile
	Cases       []Case
	Deviations  map[string]conformance.Deviation // known ones, by case
	Known       []Defect                         // all that a device of this kind can have, for CheckCases
}

// Defect is a defect that a device can have.
type Defect struct {
	Name, Imitates, Does string
	Mutant               bool // a change of the engine's source, built into the program
	NeedsNumber          bool // NAME=NUMBER; the name alone is not enough
}

// Case is a case and its suite.
type Case struct {
	Suite *conformance.Suite
	*conformance.Case
}

// Lab is a lab that is closed at the end.
type Lab interface {
	conformance.Lab
	io.Closer
}

// Options are how the cases run.
type Options struct {
	Seed     uint64
	RealTime bool // cases that fail while the machine is busy are repeated
	Workers  int  // cases at a time
	// Schedules is how many schedules a case explores; 0 for the case's own number.
	Schedules int
	Filtered  bool // some cases were left out
	// CheckCases also runs each case on devices with the defects that it names; Matrix on
	// devices with every defect. WithoutMutants leaves out defects that are mutants.
	CheckCases, Matrix, WithoutMutants bool
	Ladders                            bool // of packets in every result, not in those of failed cases alone
	Capture                            cli.Captures
}

// Hooks are the functions of the program that runs a Judge.
type Hooks struct {
	// Open opens the lab for a device.
	Open func(*Device) (Lab, error)
	// SelectMutant turns on the mutant among the defects, if there is one, in all devices until
	// restore is called.
	SelectMutant func(defects []string) (restore func(), err error)
	// CheckDefect returns an error for a defect that no device can have.
	CheckDefect func(spec string) error
	// Replay returns the command line that repeats a case.
	Replay func(d *Device, id string) string
	// AfterCase, if not nil, is called before the result of a case is shown.
	AfterCase func()
}

// Judge runs the cases of devices, one device after the other.
type Judge struct {
	Options
	Hooks
	Devices []*Device
	Dir     string // of captures
	Started time.Time
	Show    *conform.Display
	Ended   int // cases that have a result
}

// Trials returns the number of case runs: each case once on each device, and with CheckCases also
// once with each defect that it must detect or, with Matrix, with every defect.
func (j *Judge) Trials() (n int) {
	for _, d := range j.Devices {
		n += len(d.Cases)
		if j.CheckCases {
			for _, defect := range j.defectsToTry(d) {
				n += len(defect.cases)
			}
		}
	}
	return n
}

// Run runs the cases of all devices and adds their results to the run. After an error, the run has
// the results so far. With CheckCases, Run also adds the faults of the cases.
func (j *Judge) Run(ctx context.Context, run *conform.Run) error {
	for _, d := range j.Devices {
		r := d.Report()
		err := j.judgeDevice(ctx, d, &r)
		run.Devices = append(run.Devices, r)
		if err != nil {
			return err
		}
	}
	if j.CheckCases {
		j.addFaults(run)
	}
	return nil
}

// Report returns the device for a report, without results.
func (d *Device) Report() conform.Device {
	return conform.Device{Name: d.Name, Title: d.Title, As: d.Profile, Defects: d.Defects, Results: []conform.Result{}}
}

// judgeDevice runs the cases of a device in its lab, and stores the results in r. With CheckCases
// it then runs the cases on the device with deliberate defects, which they must detect.
func (j *Judge) judgeDevice(ctx context.Context, d *Device, r *conform.Device) (err error) {
	lab, err := j.Open(d)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, lab.Close()) }()
	r.Results, err = j.RunCases(ctx, lab, d)
	if err == nil && j.CheckCases {
		err = j.checkCases(ctx, lab, d, r)
	}
	return err
}

// RunCases runs the cases of a device in a lab, and returns their results with evidence.
func (j *Judge) RunCases(ctx context.Context, lab conformance.Lab, d *Device) ([]conform.Result, error) {
	return j.run(ctx, lab, d, trial{d.Cases, d.Defects}, j.finishResult)
}

// trial is some cases on a device with some defects.
type trial struct {
	cases   []Case
	defects []string
}

// run runs a trial, cases with some defects, and returns its results in the order of the cases.
// finish makes a result for the report and shows it; it is called by one goroutine at a time. A
// mutant, a change of the engine's source, affects all devices until the trial ends.
// In real time, a case that fails on a busy machine is repeated, unless the trial has defects.
func (j *Judge) run(ctx context.Context, lab conformance.Lab, d *Device, t trial, finish func(*Device, Case, *conformance.Result) conform.Result) ([]conform.Result, error) {
	if len(t.defects) > 0 {
		restore, err := j.SelectMutant(t.defects)
		if err != nil {
			return nil, err
		}
		defer restore()
	}
	cases := make([]*conformance.Case, len(t.cases))
	index := make(map[*conformance.Case]int, len(t.cases))
	for i, c := range t.cases {
		cases[i], index[c.Case] = c.Case, i
	}
	finished := make([]*conform.Result, len(t.cases))
	r := conformance.Runner{
		Lab: &shownLab{lab, j, d, t.defects}, Workers: j.Workers, // shownLab displays which cases run
		Options: conformance.Options{
			Defects: t.defects, Seed: j.Seed, Deviations: d.Deviations, Schedules: j.Schedules,
			Progress: func(c *conformance.Case, done, total int) {
				j.Show.SetStepProgress(j.label(d, c.ID, t.defects), done, total)
			},
		},
		Done: func(res conformance.Result) {
			if j.AfterCase != nil {
				j.AfterCase()
			}
			i := index[res.Case]
			result := finish(d, t.cases[i], &res)
			finished[i] = &result
			j.Ended++
		},
	}
	if j.RealTime && len(t.defects) == 0 {
		r.BeforeRepeat = func(failed conformance.Result, othersShare float64) {
			j.Show.Note(fmt.Sprintf("%s is repeated: other processes used %.0f %% of the CPU time, and %v", failed.Case.ID, 100*othersShare, failed.Err))
		}
	}
	_, err := r.Run(ctx, cases)
	var results []conform.Result
	for _, result := range finished { // nil if the run ended before the case
		if result != nil {
			results = append(results, *result)
		}
	}
	return results, err
}

// shownLab is a lab that shows on the display which cases run in it.
type shownLab struct {
	conformance.Lab
	j       *Judge
	d       *Device
	defects []string
}

// WithBench shows the case as running, and passes the call to the lab.
func (w *shownLab) WithBench(ctx context.Context, spec conformance.BenchSpec, body func(*conformance.Bench) error) error {
	w.j.Show.Start(w.j.label(w.d, spec.Case, w.defects))
	return w.Lab.WithBench(ctx, spec, body)
}

// label returns the name under which a running case is shown: its ID, followed by the defect with
// which CheckCases runs it or, if there are several devices, by the name of the device.
func (j *Judge) label(d *Device, id string, defects []string) string {
	if j.CheckCases && len(defects) > 0 {
		return fmt.Sprintf("%s with %s", id, defects[0])
	}
	if len(j.Devices) > 1 {
		return id + " on " + d.Name
	}
	return id
}

// finishResult makes a result for the report and shows it. It adds a ladder diagram and a capture
// of the packets if the verdict or the options call for them.
func (j *Judge) finishResult(d *Device, c Case, res *conformance.Result) conform.Result {
	r := j.result(d, c, res)
	if r.Verdict.Bad() || r.Verdict == conform.Deviates || j.Ladders || j.Capture == cli.CaptureAll {
		r.Ladder = conform.NewLadder(res.Record, c.Suite.DescribeEvent)
	}
	if j.Capture.Keeps(r.Verdict.Bad()) {
		name, err := j.saveCapture(d, c.ID, res.Record)
		if err != nil {
			j.Show.Note(fmt.Sprintf("The packets of %s are not kept: %v", c.ID, err))
		}
		r.Capture = name
	}
	j.Show.Done(j.label(d, c.ID, d.Defects), &r)
	return r
}

// result makes a result for the report, without ladder diagram and capture.
func (j *Judge) result(d *Device, c Case, res *conformance.Result) conform.Result {
	r := conform.Result{
		ID: c.ID, Suite: c.Suite.Name, Title: c.Title, Cite: c.Cite.String(), Rows: c.Cite.Rows, Level: string(c.Level), Labels: c.Labels,
		Sends: c.Sends, Expects: c.Expects, Verdict: conform.Verdict(res.Verdict), Took: res.Took, Replay: j.Replay(d, c.ID),
		Deviation: res.Deviation,
	}
	if res.Err == nil {
		return r
	}
	// The first line says what happened; a stack may follow.
	r.Reason, r.Detail, _ = strings.Cut(res.Err.Error(), "\n")
	r.Detail = strings.TrimSpace(r.Detail)
	if res.Verdict == conformance.VerdictUnsupported {
		r.Reason = conformance.UnsupportedReason(res.Err)
	}
	var v *conformance.Violation
	if errors.As(res.Err, &v) {
		r.Want, r.Got = v.Want, v.Got
	}
	return r
}

// saveCapture writes a pcapng file with the packets of a case, and returns its path in the folder
// of the report. Without packets it writes no file, and the path is empty.
func (j *Judge) saveCapture(d *Device, id string, record *conformance.Record) (string, error) {
	events, _ := record.Events()
	if !slices.ContainsFunc(events, func(e conformance.Event) bool { return e.Kind != conformance.EventNote }) {
		return "", nil
	}
	name := path.Join("captures", id+".pcapng")
	if len(j.Devices) > 1 {
		name = path.Join("captures", d.Name, id+".pcapng")
	}
	file := filepath.Join(j.Dir, filepath.FromSlash(name))
	if err := os.MkdirAll(filepath.Dir(file), 0o777); err != nil {
		return "", err
	}
	f, err := os.Create(file)
	if err != nil {
		return "", err
	}
	err = errors.Join(conform.WriteCapture(f, record, j.Started), f.Close())
	if err != nil {
		return "", errors.Join(err, os.Remove(file)) // no truncated file
	}
	return name, nil
}
