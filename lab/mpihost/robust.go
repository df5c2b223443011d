package mpihost

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"hash/maphash"
	"regexp"
	"slices"
	"strings"

	"github.com/fabrictest/fabrictest/emu/sim"
	"github.com/fabrictest/fabrictest/explore"
	"github.com/fabrictest/fabrictest/mpi"
	"github.com/fabrictest/fabrictest/mpi/transport"
)

// Verdict says whether the results of a program depend on the order of packets and writes.
type Verdict string

// Verdicts.
const (
	Robust    Verdict = "robust"     // each result of the weak model is one of the strong model
	NotRobust Verdict = "not robust" // the weak model has a result that the strong one does not have
	Undecided Verdict = "undecided"  // too many results have been seen only once
)

// maxUnseen is the largest probability that another run has a new result, for a verdict.
const maxUnseen = 0.02

// Robustness compares the results of a program under two models: the strong one, in which packets of a link
// arrive in order and placement is strict, and the weak one of an Exploration.
//
// The result of a run is what the program shows: the errors of its ranks (but not that a peer is lost, which
// follows from another error), the findings of checkers, messages that were never received, whether ranks hang,
// the memory of windows when they are freed and, for programs that fabrictest starts, the lines of their output
// in any order.
type Robustness struct {
	Verdict      Verdict
	Strong, Weak explore.Counts // Outcomes are results
	// StrongFailures is how many results of the strong model are failures.
	StrongFailures int
	// Calls were not complete when the order was changed in the run that differs: their order matters.
	Calls []explore.Place
}

// resultError says that a run has a result that no run under the strong model has.
type resultError struct{ result string }

const differs = "no run with packets in order and strict placement ends like this:"

func (e *resultError) Error() string { return differs + "\n" + e.result }

// Robust compares the results of a program under the weak model of x, which is Link.Spray and Placement (of
// neither is set: 4 and sim.Relaxed), with those under the strong model, with the limits of x.Explore for each.
// The report is that of the weak model; its Failure is a run that differs.
func (x *Exploration) Robust(ctx context.Context, program func(*mpi.World) error) (*Robustness, *explore.Report, error) {
	return x.robust(ctx, func(e *transport.Env, o mpi.Options) error { return mpi.Run(e, o, program) })
}

// RobustVerbs is Robust for a program of RunVerbs.
func (x *Exploration) RobustVerbs(ctx context.Context, program func(*transport.Env) error) (*Robustness, *explore.Report, error) {
	return x.robust(ctx, func(e *transport.Env, _ mpi.Options) error { return program(e) })
}

// maxRounds limits how often a result that differs is searched for under the strong model.
const maxRounds = 3

func (x *Exploration) robust(ctx context.Context, rank rankFunc) (*Robustness, *explore.Report, error) {
	strong, weak := *x, *x
	if x.Fabric.Link.Spray == 0 && x.Fabric.Placement == sim.Strict {
		weak.Fabric.Link.Spray, weak.Fabric.Placement = 4, sim.Relaxed
	}
	strong.Fabric.Link.Spray, strong.Fabric.Placement = 0, sim.Strict
	if err := errors.Join(strong.setDefaults(), weak.setDefaults()); err != nil {
		return nil, nil, err
	}
	known := map[string]bool{} // results under the strong model
	strongReport, err := strong.results(ctx, rank, func(result string) bool {
		known[result] = true
		return false
	})
	if err != nil {
		return nil, nil, err
	}
	r := &Robustness{Strong: strongReport.Counts}
	for round := range uint64(maxRounds) {
		weak.Explore.Seed = x.Explore.Seed + round
		isNew := func(result string) bool { return !known[result] }
		report, err := weak.results(ctx, rank, isNew)
		if err != nil {
			return nil, nil, err
		}
		r.Weak = report.Counts
		if report.Failure == nil {
			r.decide(known, report)
			return r, report, nil
		}
		weak.shrinkResult(ctx, rank, report, isNew)
		if again, err := strong.search(ctx, rank, round, report.Failure, known); err != nil || !again {
			r.decide(known, report)
			r.Calls = weak.incompleteCalls(report.Failure.Path, rank)
			return r, report, err
		}
	}
	r.Verdict = Undecided
	return r, &explore.Report{Counts: r.Weak}, nil
}

// decide sets the verdict, which report, of the weak model, and the known results of the strong one lead to.
func (r *Robustness) decide(known map[string]bool, report *explore.Report) {
	for result := range known {
		if result != "" && isFailure(result) {
			r.StrongFailures++
		}
	}
	switch {
	case report.Failure != nil && r.Strong.Unseen <= maxUnseen:
		r.Verdict = NotRobust
	case report.Failure == nil && report.Unseen <= maxUnseen:
		r.Verdict = Robust
	default:
		r.Verdict = Undecided
	}
}

// results explores the results of a program until one is wanted, which is the failure of the report.
func (x *Exploration) results(ctx context.Context, rank rankFunc, wanted func(result string) bool) (*explore.Report, error) {
	o := x.Explore
	o.Parallel = 1 // wanted is not safe for concurrent use, and the output is that of the process
	return explore.Runs(ctx, o, func(c explore.Chooser) error { return x.onceResult(c, rank, wanted) })
}

// onceResult does one run, which fails if its result is wanted.
func (x *Exploration) onceResult(c explore.Chooser, rank rankFunc, wanted func(result string) bool) error {
	y := *x
	var windows []string
	y.Options.OnWinFree = func(rank int, window string, memory []byte) {
		windows = append(windows, fmt.Sprintf("memory of %s of rank %d: %s", window, rank, memoryText(memory)))
	}
	result := y.runOnce(y.Fabric, c, rank).text(windows)
	if x.output != nil {
		result = strings.TrimPrefix(result+x.output(), "\n")
	}
	if recorder, ok := c.(explore.OutcomeRecorder); ok {
		recorder.SetOutcome(maphash.String(outcomeSeed, result))
	}
	if wanted(result) {
		return &resultError{result}
	}
	return nil
}

// memoryText returns the bytes of a memory, or its hash if it is long.
func memoryText(memory []byte) string {
	const maxBytes = 64
	if len(memory) <= maxBytes {
		return fmt.Sprintf("%x", memory)
	}
	return fmt.Sprintf("%d bytes with the hash %x", len(memory), sha256.Sum256(memory))
}

// failurePrefix begins the lines of a result that are failures.
const failurePrefix = "failure: "

func isFailure(result string) bool { return strings.Contains("\n"+result, "\n"+failurePrefix) }

// text returns the result as lines: failures, and then the windows.
func (r *runResult) text(windows []string) string {
	var lines []string
	add := func(format string, args ...any) { lines = append(lines, failurePrefix+fmt.Sprintf(format, args...)) }
	for i, end := range r.Ranks {
		if end.Err != nil && !errors.Is(end.Err, mpi.ErrPeerLost) {
			add("rank %d: %s", i, strings.TrimPrefix(end.Err.Error(), fmt.Sprintf("mpi: rank %d of %d: ", i, len(r.Ranks))))
		}
	}
	if _, hangs := errors.AsType[*HungError](r.err); hangs {
		add("ranks hang")
	}
	if r.err == nil {
		if err := r.lost.err(); err != nil {
			add("%v", err)
		}
	}
	for i := range r.findings {
		f := &r.findings[i]
		add("%s%s", f.Kind, placesText(f.Places))
	}
	slices.Sort(windows)
	return strings.Join(append(lines, windows...), "\n")
}

func placesText(places []explore.Place) string {
	var b strings.Builder
	for _, p := range places {
		fmt.Fprintf(&b, ", %s at %s:%d", p.Call, p.File, p.Line)
	}
	return b.String()
}

// shrinkResult shrinks the failure of a report to a run that differs, too.
func (x *Exploration) shrinkResult(ctx context.Context, rank rankFunc, report *explore.Report, wanted func(result string) bool) {
	if x.ShrinkRuns >= 0 {
		report.Failure = explore.Shrink(ctx, report.Failure, x.ShrinkRuns, func(c explore.Chooser) error { return x.onceResult(c, rank, wanted) })
	}
}

// search searches the result of a failure under the strong model with another seed, and adds what it finds to
// the known results. It reports whether it has found it.
func (x *Exploration) search(ctx context.Context, rank rankFunc, round uint64, failure *explore.Failure, known map[string]bool) (found bool, err error) {
	want, ok := errors.AsType[*resultError](failure.Err)
	if !ok {
		return false, failure.Err
	}
	y := *x
	y.Explore.Seed += 1 + round
	_, err = y.results(ctx, rank, func(result string) bool {
		known[result] = true
		return result == want.result
	})
	return known[want.result], err
}

// incompleteCalls repeats a run, and returns the calls that were not complete when the order of packets or of
// writes was changed: those that had not returned, and operations on windows before the next synchronisation.
func (x *Exploration) incompleteCalls(path explore.Path, rank rankFunc) (places []explore.Place) {
	y := *x
	var calls []*mpi.Call
	y.Options.OnCall = func(c *mpi.Call) { calls = append(calls, c) }
	add := func(p explore.Place) {
		if !slices.Contains(places, p) {
			places = append(places, p)
		}
	}
	name := func(picked, _ string) {
		if !strings.HasPrefix(picked, "a packet ") && !strings.HasPrefix(picked, "a write ") {
			return
		}
		for _, p := range pendingOperations(calls) {
			add(p)
		}
	}
	_ = y.replayWith(path, &watchedChooser{name: name}, func(c explore.Chooser) error { return y.once(c, rank) })
	return places
}

var (
	windowOperation  = regexp.MustCompile(`^Win\.(R?[Pp]ut|R?[Gg]et|R?([Gg]et)?[Aa]ccumulate|FetchAndOp|CompareAndSwap)$`)
	windowCompletion = regexp.MustCompile(`^Win\.(Flush|FlushAll|Unlock|UnlockAll|Fence|Complete)$`)
)

// pendingOperations returns the operations on windows that their ranks have not completed.
func pendingOperations(calls []*mpi.Call) (places []explore.Place) {
	pending := map[int][]explore.Place{} // by rank
	for _, c := range calls {
		switch {
		case windowOperation.MatchString(c.Call):
			pending[c.Rank] = append(pending[c.Rank], c.Place)
		case c.End >= 0 && windowCompletion.MatchString(c.Call):
			delete(pending, c.Rank)
		}
	}
	for _, c := range calls {
		if slices.Contains(pending[c.Rank], c.Place) {
			places = append(places, c.Place)
		}
	}
	return places
}
