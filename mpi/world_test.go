package mpi_test

import (
	"container/heap"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/fabrictest/fabrictest/mpi"
	"github.com/fabrictest/fabrictest/mpi/transport"
	"github.com/fabrictest/fabrictest/verbs"
)

// proc is a task in virtual time: the program of a rank or one of its runtime tasks.
type proc struct {
	f                *fabric
	rank             int
	resume           chan struct{}
	wake             time.Duration
	waitsForDelivery bool
	exited           bool
}

// hangTimeout is the virtual time after which a run counts as hung.
const hangTimeout = 20 * time.Second

func (p *proc) Now() time.Duration { return p.f.nics[p.rank].Now() }

func (p *proc) Sleep(d time.Duration) {
	if p.f.concurrent {
		for end := time.Now().Add(d); ; {
			if p.f.isDead(p.rank) {
				panic(killedPanic{})
			}
			left := time.Until(end)
			if left <= 0 {
				return
			}
			time.Sleep(min(left, 100*time.Microsecond))
		}
	}
	p.f.current.park(p.f.now + d)
}

func (p *proc) Compute(d time.Duration) { p.Sleep(d) }

func (f *fabric) isDead(rank int) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.nics[rank].dead
}

// park lets other tasks run until a time or a delivery.
func (p *proc) park(until time.Duration) {
	if p.f.nics[p.rank].dead {
		panic(killedPanic{})
	}
	p.wake = until
	p.f.yielded <- struct{}{}
	<-p.resume
	if p.f.nics[p.rank].dead {
		panic(killedPanic{})
	}
}

// spawn adds a task.
func (f *fabric) spawn(rank int, run func(*proc)) {
	p := &proc{f: f, rank: rank, resume: make(chan struct{})}
	f.procs = append(f.procs, p)
	go func() {
		<-p.resume
		defer func() {
			p.exited = true
			if v := recover(); v != nil && v != any(killedPanic{}) {
				f.t.Errorf("rank %d: %v", rank, v)
			}
			f.yielded <- struct{}{}
		}()
		run(p)
	}()
}

// simulate runs all tasks, and reports whether they all end before hangTimeout.
func (f *fabric) simulate() bool {
	for f.now < hangTimeout {
		var ready []*proc
		next, alive := hangTimeout, false
		for _, p := range f.procs {
			if p.exited {
				continue
			}
			alive = true
			if p.wake <= f.now || f.nics[p.rank].dead {
				ready = append(ready, p)
			}
			next = min(next, p.wake)
		}
		switch {
		case !alive:
			return true
		case len(ready) > 0 && (len(f.events) == 0 || f.events[0].at > f.now || f.rng.IntN(2) == 0):
			p := ready[f.rng.IntN(len(ready))]
			f.current = p
			p.resume <- struct{}{}
			<-f.yielded
		case len(f.events) > 0 && f.events[0].at <= max(f.now, next):
			e := heap.Pop(&f.events).(event)
			f.now = max(f.now, e.at)
			e.do()
		default:
			f.now = next
		}
	}
	return false
}

// runEvents executes events in real time until done is closed.
func (f *fabric) runEvents(done <-chan struct{}) {
	for {
		f.mu.Lock()
		now, wait := f.clock(), time.Millisecond
		for len(f.events) > 0 && f.events[0].at <= now {
			heap.Pop(&f.events).(event).do()
		}
		if len(f.events) > 0 {
			wait = f.events[0].at - now
		}
		f.mu.Unlock()
		select {
		case <-f.newEvent:
		case <-time.After(wait):
		case <-done:
			return
		}
	}
}

// segments is the memory that the ranks of a host share.
type segments struct {
	mu     sync.Mutex
	byName map[string][]byte
}

func (s *segments) Segment(name string, size int) ([]byte, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.byName[name] == nil {
		s.byName[name] = make([]byte, size)
	}
	if len(s.byName[name]) != size {
		return nil, fmt.Errorf("segment %s has %d bytes, not %d", name, len(s.byName[name]), size)
	}
	return s.byName[name], nil
}

// host returns the host of a rank.
func (f *fabric) host(rank int) int {
	if f.hostOf != nil {
		return f.hostOf(rank)
	}
	return rank / f.perHost
}

// newEnv returns the environment of a rank.
func (f *fabric) newEnv(rank int, p *proc) *transport.Env {
	e := &transport.Env{
		Rank: rank, Size: len(f.nics), Proc: p, Control: &control{f, rank}, Concurrent: f.concurrent,
	}
	for i := range f.nics {
		e.Nodes = append(e.Nodes, f.host(i))
	}
	e.Shared = f.segments[f.host(rank)]
	if f.onCopy != nil {
		e.Costs = &verbs.Costs{Copy: verbs.LinearCost{Base: time.Nanosecond}}
		e.Spend = func(what verbs.Work, n int, _ time.Duration) { f.onCopy(rank, what, n) }
	}
	e.Go = func(_ string, run func(verbs.Proc)) {
		if f.concurrent {
			go func() {
				defer func() {
					if v := recover(); v != nil && v != any(killedPanic{}) {
						panic(v)
					}
				}()
				run(&proc{f: f, rank: rank})
			}()
			return
		}
		f.spawn(rank, func(p *proc) { run(p) })
	}
	return e
}

// open is an Opener.
func (f *fabric) open(e *transport.Env, up mpi.Upper) (mpi.Carrier, error) {
	f.nics[e.Rank].up = up
	return f.nics[e.Rank], nil
}

// errKilled is the result of a killed rank.
var errKilled = errors.New("killed")

// run runs a program on all ranks and returns the error of each.
func (f *fabric) run(o mpi.Options, program func(*mpi.World) error) []error {
	f.t.Helper()
	o.Open = f.open
	errs := make([]error, len(f.nics))
	rank := func(p *proc, i int) {
		errs[i] = errKilled
		defer func() {
			f.mu.Lock()
			f.nics[i].ended = true
			if errs[i] != nil {
				f.announceLoss(i)
			}
			f.checkBarrier()
			f.mu.Unlock()
		}()
		errs[i] = mpi.Run(f.newEnv(i, p), o, program)
	}
	if !f.concurrent {
		for i := range f.nics {
			f.spawn(i, func(p *proc) { rank(p, i) })
		}
		if !f.simulate() {
			f.t.Fatalf("ranks have not ended after %v; so far: %v", f.now, errs)
		}
		return errs
	}
	done := make(chan struct{})
	go f.runEvents(done)
	var all sync.WaitGroup
	for i := range f.nics {
		all.Go(func() {
			defer func() {
				if v := recover(); v != nil && v != any(killedPanic{}) {
					f.t.Errorf("rank %d: %v", i, v)
				}
			}()
			rank(&proc{f: f, rank: i}, i)
		})
	}
	ended := make(chan struct{})
	go func() { all.Wait(); close(ended) }()
	select {
	case <-ended:
	case <-time.After(hangTimeout):
		f.t.Fatal("ranks have not ended")
	}
	close(done)
	return errs
}

// succeed runs a program that must not fail on any rank.
func (f *fabric) succeed(o mpi.Options, program func(*mpi.World) error) {
	f.t.Helper()
	for i, err := range f.run(o, program) {
		if err != nil {
			f.t.Errorf("rank %d: %v", i, err)
		}
	}
	for _, n := range f.nics {
		if len(n.regions) > 0 && !f.t.Failed() {
			f.t.Errorf("rank %d: %d regions are not released", n.rank, len(n.regions))
		}
	}
}

func TestRunEndsWithBarrier(t *testing.T) {
	f := newFabric(t, 4, 1, false)
	ends := make([]time.Duration, 4)
	f.succeed(mpi.Options{}, func(w *mpi.World) error {
		w.Compute(time.Duration(w.Rank()) * time.Millisecond)
		ends[w.Rank()] = w.Wtime()
		return nil
	})
	if f.now < ends[3] {
		t.Errorf("the ranks ended at %v, before the last program at %v", f.now, ends[3])
	}
}
