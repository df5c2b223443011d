package explore

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"time"
)

// Machines explores all runs of a machine: every enabled step in every reachable state. initial
// returns the machine in its initial state; it may be called by several goroutines.
//
// A finished exploration has the same States and Failure for every number of workers. A failure
// has the shortest path, and of those the first in the order of the choices. Runs counts distinct
// final states. Without MaxStates, MaxTime and MaxDepth the exploration ends when it is finished,
// has failed, or ctx is done.
//
// The error is that of the checkpoint, or says that the machine does not repeat its runs.
func Machines(ctx context.Context, opt Options, initial func() Machine) (report *Report, err error) {
	defer recoverNotRepeatable(&err)
	s := &search{Options: opt, space: newSpace(initial), began: time.Now()}
	if s.Parallel == 0 {
		s.Parallel = runtime.GOMAXPROCS(0)
	}
	rest, err := s.prepare()
	if err != nil {
		return nil, err
	}
	defer s.reportProgress()()
	limited, cancel := s.withLimit(ctx)
	defer cancel()
	for len(rest) > 0 && limited.Err() == nil && !s.enough() && s.failure == nil && err == nil {
		rest = s.explore(limited, rest)
		err = s.save(rest)
	}
	finished := len(rest) == 0
	if finished && s.failure == nil {
		finished = s.findLivelock(limited)
	}
	r := &Report{Counts: s.counts(), Finished: finished && s.failure == nil}
	if !finished && s.failure == nil {
		r.Unexplored = s.probe(ctx)
	}
	if s.failure != nil && !errors.Is(s.failure.Err, ErrLivelock) {
		s.shorten(ctx)
		if _, again := replay(initial(), s.failure.Path, nil); again == nil {
			panic(notRepeatableError(fmt.Sprintf("%v does not fail again, with %v", s.failure.Path, s.failure.Err)))
		}
	}
	r.Failure, r.Elapsed = s.failure, time.Since(s.began)
	return r, err
}

// search is one call of Machines.
type search struct {
	Options
	*space
	began   time.Time
	visited visited

	runs, edges, deepest atomic.Int64
	stopping             atomic.Bool

	mu          sync.Mutex
	failure     *Failure
	failedDepth int // steps of its path
	panicked    any
}

// prepare returns the work to begin with.
func (s *search) prepare() ([]work, error) {
	m := s.initial()
	initial := m.Fingerprint()
	if rest, err := s.load(initial); rest != nil || err != nil {
		return rest, err
	}
	s.visited.add(initial, 0)
	f := frame{steps: m.Enabled(nil)}
	if s.clones {
		f.m = m
	}
	err := m.Check()
	if err == nil {
		err = finish(m, f.steps)
	}
	if err != nil {
		s.fail(nil, err)
	}
	if len(f.steps) == 0 {
		s.runs.Add(1)
	}
	return []work{{frame: f}}, nil
}

func (s *search) counts() Counts {
	return Counts{Runs: int(s.runs.Load()), States: int(s.visited.n.Load()), Edges: int(s.edges.Load()), Deepest: int(s.deepest.Load())}
}

// noteDepth notes the number of steps of a run.
func (s *search) noteDepth(depth int64) {
	for old := s.deepest.Load(); old < depth && !s.deepest.CompareAndSwap(old, depth); old = s.deepest.Load() {
	}
}

// enough reports whether the limit of states is reached.
func (s *search) enough() bool { return s.MaxStates > 0 && s.visited.n.Load() >= int64(s.MaxStates) }

// withLimit returns a context that ends after MaxTime.
func (s *search) withLimit(ctx context.Context) (context.Context, context.CancelFunc) {
	if s.MaxTime > 0 {
		return context.WithTimeout(ctx, s.MaxTime)
	}
	return context.WithCancel(ctx)
}

// reportProgress calls Progress once a second, until the returned function is called.
func (s *search) reportProgress() (stop func()) {
	if s.Progress == nil {
		return func() {}
	}
	done, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		tick := time.NewTicker(time.Second)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				s.Progress(Progress{Elapsed: time.Since(s.began), Counts: s.counts()})
			case <-done:
				return
			}
		}
	}()
	return func() { close(done); <-stopped }
}

// explore explores until nothing is left, a run fails, a limit is reached, or a checkpoint is due.
// It returns the work that is left.
func (s *search) explore(ctx context.Context, rest []work) []work {
	s.stopping.Store(false)
	f := newFrontier(s.Parallel, rest)
	stop := func() {
		s.stopping.Store(true)
		f.stop()
	}
	defer context.AfterFunc(ctx, stop)()
	if s.Checkpoint != "" {
		defer time.AfterFunc(checkpointInterval, stop).Stop()
	}
	var all sync.WaitGroup
	for range s.Parallel {
		all.Go(func() {
			defer s.catch(stop)
			w := worker{walker: walker{space: s.space}, search: s, frontier: f, stop: stop}
			w.run()
		})
	}
	all.Wait()
	if s.panicked != nil {
		panic(s.panicked)
	}
	return f.all
}

// catch keeps a panic of a worker for the caller of Machines.
func (s *search) catch(stop func()) {
	if r := recover(); r != nil {
		s.mu.Lock()
		s.panicked = r
		s.mu.Unlock()
		stop()
	}
}

// fail notes a failed run. The first that is noted counts.
func (s *search) fail(trail []taken, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.failure == nil {
		s.failedDepth = len(trail)
		s.failure = &Failure{Err: err, Path: appendTrail(nil, trail)}
	}
}
