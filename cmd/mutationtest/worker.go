package main

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"regexp"
	"runtime"
	"slices"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fabrictest/fabrictest/conformance"
	"github.com/fabrictest/fabrictest/conformance/judge"
	"github.com/fabrictest/fabrictest/internal/mutant"
	"github.com/fabrictest/fabrictest/lab/bench"
	"github.com/fabrictest/fabrictest/lab/nics"
)

// trial is a case on a device, or on a configuration of the MPI runtime. Baseline and Functions are
// those of a run without mutants.
type trial struct {
	Device, Case string
	Baseline     time.Duration // CPU time without a mutant
	Functions    []int         // numbers of the called functions that have mutants

	run   func() conformance.Verdict // runs the case
	kills int                        // number of mutants that the case killed
}

// selection is the cases that judge mutants: those of a suite, and of these, if the regular
// expression netns is not empty, those that it matches also in network namespaces.
type selection struct{ suite, netns string }

// flags returns the flags of a child process that runs the same cases.
func (s selection) flags() []string { return []string{"-cases", s.suite, "-netns", s.netns} }

// trials returns the trials of the suite: of the MPI suite one for each configuration of the runtime;
// else one for each case on each emulated device in simulation, and another in namespaces if s.netns
// matches the case.
func (s selection) trials() (all []*trial, err error) {
	if s.suite == suiteMPI {
		return mpiTrials(), nil
	}
	inNamespaces, err := regexp.Compile(s.netns)
	if err != nil {
		return nil, err
	}
	for _, p := range nics.All() {
		var cases []*conformance.Case
		for _, s := range judge.SuitesOf(p.Protocol) {
			for i := range s.Cases {
				cases = append(cases, &s.Cases[i])
			}
		}
		all = append(all, deviceTrials(bench.InSimulation(p, bench.SimOptions{}), p.Name, once, cases)...)
		if s.netns == "" {
			continue
		}
		lab, err := bench.InNamespaces(p, bench.NamespaceOptions{MaxTime: maxIdle / 2}) // not closed: trials use it until this process ends
		if err != nil {
			return nil, err
		}
		cases = slices.DeleteFunc(slices.Clone(cases), func(c *conformance.Case) bool { return !inNamespaces.MatchString(c.ID) })
		all = append(all, deviceTrials(lab, p.Name+" in namespaces", repeatFailed, cases)...)
	}
	return all, nil
}

// How often a trial runs its case.
const (
	once         = false
	repeatFailed = true // again if it failed: a busy machine may be the reason in real time
)

// deviceTrials returns trials of the cases on a device in a lab. If repeat is set, a case that fails
// runs again, unless it did not end.
func deviceTrials(lab conformance.Lab, device string, repeat bool, cases []*conformance.Case) (all []*trial) {
	for _, c := range cases {
		judge := func() conformance.Result {
			return conformance.Judge(context.Background(), lab, c, conformance.Options{Seed: 1})
		}
		all = append(all, &trial{Device: device, Case: c.ID, run: func() conformance.Verdict {
			r := judge()
			if _, hung := errors.AsType[*conformance.HangError](r.Err); repeat && r.Verdict != conformance.VerdictPass && !hung {
				r = judge()
			}
			return r.Verdict
		}})
	}
	return all
}

// writeBaseline runs every trial without mutants. It writes, as JSON, the trials that pass and call
// a function that has mutants.
func writeBaseline(w io.Writer, cases selection) error {
	all, err := cases.trials()
	if err != nil {
		return err
	}
	var passed []*trial
	for _, t := range all {
		begun := cpuTime()
		var v conformance.Verdict
		t.Functions = mutant.Trace(func() { v = t.run() })
		t.Baseline = cpuTime() - begun
		if v == conformance.VerdictPass && len(t.Functions) > 0 {
			passed = append(passed, t)
		}
	}
	return json.NewEncoder(w).Encode(passed)
}

// result is the outcome of a mutant.
type result struct {
	Mutant string
	// Reached is the number of cases that call a function which the mutant changes.
	Reached int
	// KilledBy is the case that did not pass with the mutant; empty if all passed.
	KilledBy string
	How      string // verdict of the case, or why the worker ended
}

// serveMutants reads names of mutants from in, one on a line. With each mutant it runs the trials
// (cases on devices) of the file baseline, and writes the result to out as JSON.
func serveMutants(baseline string, cases selection, in io.Reader, out io.Writer) error {
	text, err := os.ReadFile(baseline)
	if err != nil {
		return err
	}
	var passed []*trial
	if err := json.Unmarshal(text, &passed); err != nil {
		return err
	}
	all, err := cases.trials()
	if err != nil {
		return err
	}
	byID := map[string]*trial{}
	for _, t := range all {
		byID[t.Device+" "+t.Case] = t
	}
	for _, t := range passed {
		t.run = byID[t.Device+" "+t.Case].run
	}
	w := watchdog{out: json.NewEncoder(out)}
	go w.run() // ends this process if a mutant loops or allocates without end
	names := mutant.Names()
	lines := bufio.NewScanner(in)
	for lines.Scan() {
		i := slices.Index(names, lines.Text())
		if i < 0 {
			return fmt.Errorf("no mutant %q", lines.Text())
		}
		if err := w.out.Encode(w.judge(names[i], mutant.Functions()[i], passed)); err != nil {
			return err
		}
	}
	return lines.Err()
}

// judge runs the trials in passed that call a function which the named mutant changes, each with
// that mutant, until one does not pass. functions are the numbers of the changed functions.
func (w *watchdog) judge(name string, functions []int, passed []*trial) result {
	var reaching []*trial
	for _, t := range passed {
		if slices.ContainsFunc(functions, func(f int) bool { return slices.Contains(t.Functions, f) }) {
			reaching = append(reaching, t)
		}
	}
	// First the cases that killed most mutants, then the shortest.
	slices.SortStableFunc(reaching, func(a, b *trial) int {
		return cmp.Or(cmp.Compare(b.kills, a.kills), cmp.Compare(a.Baseline, b.Baseline))
	})
	r := result{Mutant: name, Reached: len(reaching)}
	for _, t := range reaching {
		w.start(&r, t)
		mutant.Select(name)
		v := t.run()
		mutant.Select("")
		w.stop()
		if v != conformance.VerdictPass {
			t.kills++
			r.KilledBy, r.How = t.Case, string(v)
			break
		}
	}
	return r
}

// watchdog ends a worker whose mutant loops, allocates or waits without end. The mutant is killed.
type watchdog struct {
	out     *json.Encoder
	current atomic.Pointer[attempt] // nil between attempts
}

// attempt is a trial with a mutant, and the result if the watchdog ends it.
type attempt struct {
	result
	begun, limit time.Duration // CPU time
}

const (
	minCaseTime = 10 * time.Second // CPU time
	maxHeap     = 3 << 30
)

// start has the watchdog watch a trial with the mutant of r until stop is called. If the trial
// exceeds a limit, its case counts as the one that killed the mutant.
func (w *watchdog) start(r *result, t *trial) {
	a := &attempt{result: *r, begun: cpuTime(), limit: minCaseTime + 20*t.Baseline}
	a.KilledBy = t.Case
	w.current.Store(a)
}

func (w *watchdog) stop() { w.current.Store(nil) }

// run checks the current attempt (a trial with a mutant) periodically. If the attempt exceeds a
// limit of CPU time or memory, or hangs, run writes the result and exits the process.
func (w *watchdog) run() {
	var hangs hangDetector
	for range time.Tick(250 * time.Millisecond) {
		a := w.current.Load()
		if a == nil {
			continue
		}
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		switch {
		case cpuTime()-a.begun > a.limit:
			a.How = endlessLoop
		case m.HeapAlloc > maxHeap:
			a.How = outOfMemory
		case hangs.check(a, cpuTime(), time.Now()):
			a.How = hang
		default:
			continue
		}
		_ = w.out.Encode(a.result) // without a result, the parent counts a crash
		os.Exit(0)
	}
}

// cpuTime returns the CPU time of this process.
func cpuTime() time.Duration {
	var u unix.Rusage
	_ = unix.Getrusage(unix.RUSAGE_SELF, &u)
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
