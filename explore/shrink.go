package explore

import (
	"context"
	"fmt"
	"strings"
	"unicode"
)

// DivergedError says that a run did not have the choices of the path that it should repeat.
type DivergedError struct {
	Step   int
	Choice Choice // of the path
	Kind   string // of the run, with N alternatives; empty if the run has ended
	N      int
}

// Error says where the run diverged.
func (e *DivergedError) Error() string {
	const cure = ": the program, its arguments or the fabric have changed since, or the program is not deterministic (time, goroutines, maps, global variables)"
	if e.Kind == "" {
		return fmt.Sprintf("the run diverged from its path: it ended after %d choices, and choice %d is %v%s", e.Step, e.Step, e.Choice, cure)
	}
	return fmt.Sprintf("the run diverged from its path at choice %d: it chose %s among %d, and the path has %v%s", e.Step, e.Kind, e.N, e.Choice, cure)
}

// ReplayRun repeats a run exactly, and returns its error. After the end of the path the choices are 0.
// The error is a *DivergedError if the run has other choices than the path.
func ReplayRun(path Path, run func(Chooser) error) error {
	r := &replayer{path: path}
	err := run(r)
	switch {
	case r.diverged != nil:
		return r.diverged
	case r.step < len(path):
		return &DivergedError{Step: r.step, Choice: path[r.step]}
	}
	return err
}

// replayer is a Chooser that picks as in a path.
type replayer struct {
	path     Path
	step     int
	diverged error
}

func (r *replayer) Choose(kind string, n int) int {
	step := r.step
	r.step++
	if step >= len(r.path) || r.diverged != nil {
		return 0
	}
	c := r.path[step]
	if c.Kind == "" { // unknown, and 0
		return 0
	}
	if c.Kind != kind || c.Of != n {
		r.diverged = &DivergedError{step, c, kind, n}
		return 0
	}
	return c.Picked
}

// Signature is the first line of an error without its numbers. Failures with the same signature
// count as the same.
func Signature(err error) string {
	line, _, _ := strings.Cut(err.Error(), "\n")
	return strings.Map(func(r rune) rune {
		if unicode.IsDigit(r) || r == '.' {
			return -1
		}
		return r
	}, line)
}

// Shrink looks for a run with the signature of a failure and fewer choices that are not 0, and
// smaller ones, by delta debugging: it removes the faults, then ever smaller parts of the other
// choices, and the first choices while it moves the others by a few steps, and runs again. If many choices
// are left it looks for a run that fails with other choices, few of them and in a row. It stops after maxRuns (0: 2000) or when ctx is done. The path that it
// returns ends with the last choice that is not 0.
func Shrink(ctx context.Context, f *Failure, maxRuns int, run func(Chooser) error) *Failure {
	if maxRuns == 0 {
		maxRuns = 2000
	}
	s := &shrinker{run: run, signature: Signature(f.Err), best: f, runsLeft: 1, ctx: ctx}
	s.keep(func(c *change) bool { return c.Kind != faultKind })
	s.runsLeft = maxRuns / 4
	s.removeParts()
	s.runsLeft += maxRuns / 2
	s.concentrate()
	s.runsLeft += maxRuns / 4
	for changed := true; changed; {
		changed = s.removeParts()
		changed = s.removeFirst() || changed
		changed = s.lower() || changed
	}
	best := *s.best
	best.Path = withoutTrailingZeros(best.Path)
	return &best
}

type shrinker struct {
	run       func(Chooser) error
	signature string
	best      *Failure
	runsLeft  int
	ctx       context.Context
}

// change is a choice that is not 0.
type change struct {
	step int
	Choice
}

// changes returns the choices of a path that are not 0.
func (p Path) changes() (all []change) {
	for step, c := range p {
		if c.Picked > 0 {
			all = append(all, change{step, c})
		}
	}
	return all
}

// withoutTrailingZeros returns the path up to the last choice that is not 0.
func withoutTrailingZeros(p Path) Path {
	n := len(p)
	for n > 0 && p[n-1].Picked == 0 {
		n--
	}
	return p[:n]
}

// try runs with only these choices other than 0. It keeps the run, and returns true, if that fails
// in the same way.
func (s *shrinker) try(all []change) bool {
	if s.runsLeft <= 0 || s.ctx.Err() != nil {
		return false
	}
	return s.tryStrategy(&wanted{all: all})
}

// tryStrategy is try for any strategy.
func (s *shrinker) tryStrategy(by strategy) bool {
	s.runsLeft--
	w := &runWorker{strategy: by}
	err := s.run(w)
	if err == nil || Signature(err) != s.signature || len(w.path.changes()) > len(s.best.Path.changes()) {
		return false
	}
	s.best = newFailure(err, w.path)
	return true
}

// keep tries to keep only the choices for which want returns true.
func (s *shrinker) keep(want func(*change) bool) {
	var kept []change
	all := s.best.Path.changes()
	for i := range all {
		if want(&all[i]) {
			kept = append(kept, all[i])
		}
	}
	if len(kept) < len(all) {
		s.try(kept)
	}
}

// removeParts removes ever smaller parts of the choices, and returns true if that removed any.
func (s *shrinker) removeParts() (removed bool) {
	for size := len(s.best.Path.changes()); size > 0; size /= 2 {
		for from := 0; ; {
			all := s.best.Path.changes()
			if from >= len(all) {
				break
			}
			until := min(from+size, len(all))
			if s.try(append(append([]change(nil), all[:from]...), all[until:]...)) {
				removed = true
			} else {
				from = until
			}
		}
	}
	return removed
}

// Of the search of concentrate.
const (
	fewChanges    = 8  // from which on it is worth while
	firstWindow   = 24 // steps of the smallest windows
	maxWindows    = 40 // of a size
	windowSamples = 12
)

// concentrate samples runs whose choices are 0 but in a window of steps, and keeps the first that fails. Choices
// long before the failure often only exchange ranks, and cannot be removed one by one, because that moves the
// later ones. Windows grow until one is found.
func (s *shrinker) concentrate() {
	changes := len(s.best.Path.changes())
	if changes <= fewChanges {
		return
	}
	first := &runWorker{strategy: defaultRun{}}
	_ = s.run(first) // for its length: one that fails may be longer
	s.runsLeft--
	sampler := &runSearch{o: Options{Strategy: PCT}}
	for size := firstWindow; size < min(len(first.path), 4*changes); size *= 4 {
		sampler.length = size
		for from := 0; from < len(first.path); from += max(size/2, len(first.path)/maxWindows) {
			for range windowSamples {
				sampler.next++
				if s.runsLeft <= 0 || s.ctx.Err() != nil || s.tryStrategy(&window{sampler.sampler(sampler.next), from, from + size}) {
					return
				}
			}
		}
	}
}

// window is a strategy that picks 0 but from a step on until another.
type window struct {
	strategy
	from, until int
}

func (w *window) pick(step int, kind string, n int, ids []uint32) int {
	if step < w.from || step >= w.until {
		return 0
	}
	return w.strategy.pick(step-w.from, kind, n, ids)
}

// maxShift is by how many steps removeFirst moves choices.
const maxShift = 6

// removeFirst removes the first choices, as many as it can, and moves the others by a few steps: the run makes
// other choices before them then. It returns true if that removed any.
func (s *shrinker) removeFirst() (removed bool) {
	all := s.best.Path.changes()
	for n := len(all) - 1; n > 0; n -= max(1, len(all)/8) {
		for shift := range 2*maxShift + 1 {
			moved := append([]change(nil), all[n:]...)
			for i := range moved {
				moved[i].step += (shift + 1) / 2 * (1 - shift%2*2) // 0, -1, 1, -2, …
			}
			if moved[0].step >= 0 && s.try(moved) && len(s.best.Path.changes()) < len(all) {
				return true
			}
		}
	}
	return false
}

// lower tries smaller picks, and returns true if it found one.
func (s *shrinker) lower() (lowered bool) {
	for i := 0; i < len(s.best.Path.changes()); i++ {
		for picked := 1; picked < s.best.Path.changes()[i].Picked; picked++ {
			all := s.best.Path.changes()
			all[i].Picked = picked
			if s.try(all) {
				lowered = true
				break
			}
		}
		if i >= len(s.best.Path.changes()) {
			break
		}
	}
	return lowered
}

// wanted is a strategy that picks 0, except for some choices if they have the same kind.
type wanted struct{ all []change }

func (d *wanted) pick(step int, kind string, n int, _ []uint32) int {
	for len(d.all) > 0 && d.all[0].step < step {
		d.all = d.all[1:]
	}
	if len(d.all) == 0 || d.all[0].step != step || d.all[0].Kind != kind {
		return 0
	}
	return min(d.all[0].Picked, n-1)
}
