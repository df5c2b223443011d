package explore

import (
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"math/rand/v2"
	"runtime"
	"strings"
	"sync"
	"time"
)

// Strategies of Runs.
const (
	// Random picks each choice at random in some runs, and leaves most at 0 in others: the share is
	// drawn for each run.
	Random = "random"
	// PCT gives each entity a random priority and always picks the highest. At Options.Depth-1
	// random steps (0: 2) the entity that would be next gets the lowest priority.
	PCT = "pct"
	// POS gives each event a random priority when its entity has none pending, and always picks the
	// highest (partial-order sampling without the redraw of events that race).
	POS = "pos"
	// Exhaustive runs every path: first those with one choice that is not 0, then those with two, up
	// to Options.Depth (0: no limit).
	Exhaustive = "exhaustive"
)

// Strategies returns the names of all strategies of Runs, the default first.
func Strategies() []string { return []string{PCT, Random, POS, Exhaustive} }

// OutcomeRecorder is implemented by the Choosers of Runs. A run that calls SetOutcome says by a
// fingerprint what has happened in it. Otherwise each path counts as an outcome.
type OutcomeRecorder interface{ SetOutcome(fingerprint uint64) }

// FindingsError fails a run in which checkers have found errors.
type FindingsError struct{ Findings []Finding }

// Error returns the texts of the findings, one on each line.
func (e *FindingsError) Error() string {
	lines := make([]string, 0, len(e.Findings))
	for _, f := range e.Findings {
		lines = append(lines, f.Kind+": "+f.Text)
	}
	return strings.Join(lines, "\n")
}

// Runs calls run again and again, each time with a Chooser that makes other choices, until a run
// fails, a limit of o is reached, or the strategy has no more runs. The first run picks 0 in every
// choice. run must depend on the choices only, and several goroutines call it unless o.Parallel is 1.
// With a seed and without MaxTime, the result is the same each time.
//
// The strategies PCT and POS know what is chosen among if run calls SetEntities of the Chooser before
// Choose, as sim.EntityChooser does. They pick other choices as Random does.
func Runs(ctx context.Context, o Options, run func(Chooser) error) (*Report, error) {
	s, err := newRunSearch(o, run)
	if err != nil {
		return nil, err
	}
	if o.MaxTime > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, o.MaxTime)
		defer cancel()
	}
	first := s.newWorker()
	if s.step(first) { // alone: strategies need its length
		s.runAll(ctx, first)
	}
	return s.report(), nil
}

// runSearch is the state of Runs.
type runSearch struct {
	o     Options
	run   func(Chooser) error
	began time.Time

	mu       sync.Mutex
	changed  sync.Cond
	next     int // number of the next run
	active   int // runs that have begun and not ended
	length   int // choices of the first run
	queue    queue
	failure  *Failure
	failed   int // number of the run of failure
	counts   Counts
	seen     map[uint64]int // runs by outcome
	once     int            // outcomes of one run
	complete bool
	stopped  bool // no more runs begin
}

func newRunSearch(o Options, run func(Chooser) error) (*runSearch, error) {
	if o.Strategy == "" {
		o.Strategy = Strategies()[0]
	}
	if !strings.Contains(" "+strings.Join(Strategies(), " ")+" ", " "+o.Strategy+" ") {
		return nil, fmt.Errorf("strategy %q: give one of %s", o.Strategy, strings.Join(Strategies(), ", "))
	}
	if o.Strategy != Exhaustive && o.MaxRuns == 0 && o.MaxTime == 0 {
		return nil, fmt.Errorf("strategy %s never ends: limit the runs (MaxRuns) or the time (MaxTime)", o.Strategy)
	}
	if o.Parallel == 0 {
		o.Parallel = runtime.GOMAXPROCS(0)
	}
	s := &runSearch{o: o, run: run, began: time.Now(), seen: map[uint64]int{}}
	s.changed.L = &s.mu
	return s, nil
}

// runAll runs until nothing is left to run, and calls o.Progress every second.
func (s *runSearch) runAll(ctx context.Context, first *runWorker) {
	stop := context.AfterFunc(ctx, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.stopped = true
		s.changed.Broadcast()
	})
	defer stop()
	done := make(chan struct{})
	var reporter sync.WaitGroup
	if s.o.Progress != nil {
		reporter.Go(func() { s.reportProgress(done) })
	}
	var workers sync.WaitGroup
	for i := range s.o.Parallel {
		w := first
		if i > 0 {
			w = s.newWorker()
		}
		workers.Go(func() {
			for ctx.Err() == nil && s.step(w) {
			}
		})
	}
	workers.Wait()
	close(done)
	reporter.Wait()
}

func (s *runSearch) reportProgress(done chan struct{}) {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		select {
		case <-done:
			return
		case <-tick.C:
			r := s.report()
			s.o.Progress(Progress{Elapsed: r.Elapsed, Counts: r.Counts})
		}
	}
}

// report returns the result so far.
func (s *runSearch) report() *Report {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.counts
	c.Outcomes, c.Queued = len(s.seen), s.queue.alternatives+s.queue.dropped
	if c.Runs > 0 {
		c.Unseen = float64(s.once) / float64(c.Runs)
	}
	return &Report{Counts: c, Elapsed: time.Since(s.began), Finished: s.complete && s.failure == nil, Failure: s.failure}
}

// begin waits for a run, and prepares the worker for it. It returns false if none is left.
func (s *runSearch) begin(w *runWorker) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for {
		switch {
		case s.failure != nil, s.stopped, s.o.MaxRuns > 0 && s.next >= s.o.MaxRuns:
			return false
		case s.next == 0:
			w.strategy = defaultRun{}
		case s.o.Strategy != Exhaustive:
			w.strategy = s.sampler(s.next)
		case s.queue.alternatives > 0:
			w.strategy = s.queue.take()
		case s.active > 0: // it may add alternatives
			s.changed.Wait()
			continue
		default:
			s.complete = s.queue.dropped == 0
			return false
		}
		w.number = s.next
		s.next++
		s.active++
		return true
	}
}

// step does one run. It returns false if none is left.
func (s *runSearch) step(w *runWorker) bool {
	if !s.begin(w) {
		return false
	}
	w.path, w.ids, w.hasOutcome = w.path[:0], nil, false
	err := s.run(w)
	outcome := w.fingerprint(err)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.active--
	s.changed.Broadcast()
	s.counts.Runs++
	s.counts.Deepest = max(s.counts.Deepest, len(w.path))
	s.seen[outcome]++
	switch s.seen[outcome] {
	case 1:
		s.once++
	case 2:
		s.once--
	}
	if w.number == 0 {
		s.length = len(w.path)
	}
	if err != nil && (s.failure == nil || w.number < s.failed) {
		s.failure, s.failed = newFailure(err, w.path), w.number
	}
	if s.o.Strategy == Exhaustive && err == nil {
		s.queue.add(w, &s.o, s.next)
		s.changed.Broadcast()
	}
	return s.failure == nil
}

// newFailure returns the failure of a run, with a copy of its path.
func newFailure(err error, path Path) *Failure {
	f := &Failure{Err: err, Path: append(Path(nil), path...)}
	if found, ok := errors.AsType[*FindingsError](err); ok {
		f.Findings = found.Findings
	}
	return f
}

// runWorker is the Chooser of the runs of a goroutine.
type runWorker struct {
	strategy   strategy
	maxDepth   int
	number     int
	path       Path
	ids        []uint32
	outcome    uint64
	hasOutcome bool
	hash       maphash.Seed
}

// strategy picks the choices of a run.
type strategy interface {
	// pick returns an index below n. step counts the choices. ids has the entities of the
	// alternatives, or is nil.
	pick(step int, kind string, n int, ids []uint32) int
}

func (s *runSearch) newWorker() *runWorker {
	return &runWorker{maxDepth: s.o.MaxDepth, hash: outcomeSeed}
}

var outcomeSeed = maphash.MakeSeed()

// SetEntities implements sim.EntityChooser.
func (w *runWorker) SetEntities(ids []uint32) { w.ids = ids }

// SetOutcome implements OutcomeRecorder.
func (w *runWorker) SetOutcome(fingerprint uint64) { w.outcome, w.hasOutcome = fingerprint, true }

// Choose implements Chooser.
func (w *runWorker) Choose(kind string, n int) int {
	ids := w.ids
	w.ids = nil
	i := 0
	if w.maxDepth == 0 || len(w.path) < w.maxDepth {
		i = w.strategy.pick(len(w.path), kind, n, ids)
	}
	w.path = append(w.path, Choice{kind, i, n})
	return i
}

// fingerprint returns that of the outcome: the one that the run has set, or that of its path.
func (w *runWorker) fingerprint(err error) uint64 {
	var h maphash.Hash
	h.SetSeed(w.hash)
	if w.hasOutcome {
		maphash.WriteComparable(&h, w.outcome)
	} else {
		for _, c := range w.path {
			maphash.WriteComparable(&h, c.Picked)
		}
	}
	if err != nil {
		_, _ = h.WriteString(err.Error())
	}
	return h.Sum64()
}

// defaultRun picks 0.
type defaultRun struct{}

func (defaultRun) pick(int, string, int, []uint32) int { return 0 }

// sampler returns the strategy of a run with a number. It depends on the number and the seed only.
func (s *runSearch) sampler(number int) strategy {
	rng := rand.New(rand.NewPCG(s.o.Seed, uint64(number)))
	// Shares from 1 to 1/64 of orders, and from 1/2 to 1/1024 of faults, are equally likely.
	r := random{rng: rng, orders: 1 << rng.IntN(7), faults: 2 << rng.IntN(10)}
	switch s.o.Strategy {
	case PCT:
		p := &pct{random: r, priorities: map[uint32]uint64{}}
		changes := s.o.Depth - 1
		if s.o.Depth == 0 {
			changes = 2
		}
		for range changes {
			p.changes = append(p.changes, rng.IntN(max(s.length, 1)))
		}
		return p
	case POS:
		return &pos{random: r, priorities: map[uint32]uint64{}}
	}
	return &r
}
