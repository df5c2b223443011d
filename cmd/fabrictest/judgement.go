package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/fabrictest/fabrictest/conformance"
	"github.com/fabrictest/fabrictest/report/conform"
	"github.com/fabrictest/fabrictest/scenarios"
)

// judgement is the judging of some devices.
type judgement struct {
	opts     *conformOptions
	seed     uint64
	subjects []*subject
	dir      string // for what it leaves behind
	began    time.Time
	show     *conform.Display
	ended    int
	// withoutMutants leaves out the defects that this program was built without.
	withoutMutants bool
}

// trials is how many there will be.
func (j *judgement) trials() (n int) {
	for _, s := range j.subjects {
		n += len(s.asked)
		if j.opts.checkCases {
			for _, m := range j.defects(s) {
				n += len(m.tried)
			}
		}
	}
	return n
}

// judge judges all devices, one after the other. Of one that it cannot go on with it
// leaves what there is in the run.
func (j *judgement) judge(ctx context.Context, run *conform.Run) error {
	for _, s := range j.subjects {
		d := j.newDevice(s)
		err := j.device(ctx, s, &d)
		run.Devices = append(run.Devices, d)
		if err != nil {
			return err
		}
	}
	if j.opts.checkCases {
		j.complain(run)
	}
	return nil
}

// newDevice is a subject for the report.
func (j *judgement) newDevice(s *subject) conform.Device {
	d := conform.Device{Name: s.provider.Name, Title: s.provider.Title, Defects: s.defects, Results: []conform.Result{}}
	if s.profile != nil {
		d.As = s.profile.Name
	}
	return d
}

func (j *judgement) device(ctx context.Context, s *subject, d *conform.Device) (err error) {
	lab, err := j.opts.open(s)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, lab.Close()) }()
	results, err := j.run(ctx, lab, s, s.asked, s.defects, j.keep)
	d.Results = results
	if err == nil && j.opts.checkCases {
		err = j.prove(ctx, lab, s, d)
	}
	return err
}

// run judges some cases on a device with some defects. keep makes a result of what a
// case left, and shows it; it is called by one goroutine at a time.
func (j *judgement) run(ctx context.Context, lab conformance.Lab, s *subject, asked []question, defects []string, keep func(*subject, question, *conformance.Result) conform.Result) ([]conform.Result, error) {
	unselect, err := selectMutant(defects)
	if err != nil {
		return nil, err
	}
	defer unselect()
	cases := make([]*conformance.Case, len(asked))
	at := make(map[*conformance.Case]int, len(asked))
	for i, q := range asked {
		cases[i], at[q.Case] = q.Case, i
	}
	kept := make([]*conform.Result, len(asked))
	r := conformance.Runner{
		Lab: &watched{lab, j, s, defects}, Workers: j.opts.caseWorkers(),
		Options: conformance.Options{
			Defects: defects, Seed: j.seed, Deviations: s.deviations, Schedules: j.opts.schedules,
			Progress: func(c *conformance.Case, done, total int) { j.show.Part(j.label(s, c.ID, defects), done, total) },
		},
		Done: func(res conformance.Result) {
			i := at[res.Case]
			one := keep(s, asked[i], &res)
			kept[i] = &one
			j.ended++
		},
	}
	if j.opts.on != string(scenarios.Sim) && len(defects) == 0 {
		r.Repeat = func(first conformance.Result, others float64) {
			j.show.Note(fmt.Sprintf("%s is repeated: other processes used %.0f %% of the CPU time, and %v", first.Case.ID, 100*others, first.Err))
		}
	}
	_, err = r.Run(ctx, cases)
	var results []conform.Result
	for _, k := range kept {
		if k != nil {
			results = append(results, *k)
		}
	}
	return results, err
}

// watched is a lab that shows what is under way in it.
type watched struct {
	conformance.Lab
	j       *judgement
	s       *subject
	defects []string
}

// WithBench implements conformance.Lab.
func (w *watched) WithBench(ctx context.Context, job conformance.BenchSpec, body func(*conformance.Bench) error) error {
	w.j.show.Start(w.j.label(w.s, job.Case, w.defects))
	return w.Lab.WithBench(ctx, job, body)
}

// label is what a case is called that is under way.
func (j *judgement) label(s *subject, id string, defects []string) string {
	if j.opts.checkCases && len(defects) > 0 {
		return fmt.Sprintf("%s with %s", id, defects[0])
	}
	if len(j.subjects) > 1 {
		return id + " on " + s.provider.Name
	}
	return id
}

// keep makes a result for the report of what a case left, with its evidence.
func (j *judgement) keep(s *subject, q question, res *conformance.Result) conform.Result {
	r := j.result(s, q, res)
	if r.Verdict.Bad() || r.Verdict == conform.Deviates || j.opts.packets || j.opts.capture == evidenceAll {
		r.Ladder = conform.NewLadder(res.Record, q.suite.DescribeEvent)
	}
	if j.opts.capture.keeps(r.Verdict) {
		name, err := j.saveCapture(s, q.ID, res.Record)
		if err != nil {
			j.show.Note(fmt.Sprintf("The packets of %s are not kept: %v", q.ID, err))
		}
		r.Capture = name
	}
	j.show.Done(j.label(s, q.ID, s.defects), &r)
	return r
}

// result is a case and its verdict, without evidence.
func (j *judgement) result(s *subject, q question, res *conformance.Result) conform.Result {
	r := conform.Result{
		ID: q.ID, Suite: q.suite.Name, Title: q.Title, Cite: q.Cite.String(), Rows: q.Cite.Rows, Level: string(q.Level), Labels: q.Labels,
		Sends: q.Sends, Expects: q.Expects, Verdict: conform.Verdict(res.Verdict), Took: res.Took, Replay: j.opts.replay(s, q.ID, j.seed),
		Deviation: res.Deviation,
	}
	if res.Err == nil {
		return r
	}
	// A stack follows the line that says what happened.
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

// saveCapture keeps the packets of a case, if there were any, and returns where.
func (j *judgement) saveCapture(s *subject, id string, record *conformance.Record) (string, error) {
	events, _ := record.Events()
	if !slices.ContainsFunc(events, func(e conformance.Event) bool { return e.Kind != conformance.EventNote }) {
		return "", nil
	}
	name := path.Join("captures", id+".pcapng")
	if len(j.subjects) > 1 {
		name = path.Join("captures", s.provider.Name, id+".pcapng")
	}
	file := filepath.Join(j.dir, filepath.FromSlash(name))
	if err := os.MkdirAll(filepath.Dir(file), 0o777); err != nil {
		return "", err
	}
	f, err := os.Create(file)
	if err != nil {
		return "", err
	}
	err = errors.Join(conform.WriteCapture(f, record, j.began), f.Close())
	if err != nil {
		return "", errors.Join(err, os.Remove(file)) // half of it is worse than none
	}
	return name, nil
}
