package mpi

import (
	"errors"
	"fmt"
	"runtime/debug"
	"sync/atomic"
	"time"

	"github.com/fabrictest/fabrictest/mpi/p2p"
	"github.com/fabrictest/fabrictest/mpi/transport"
	"github.com/fabrictest/fabrictest/mpi/window"
	"github.com/fabrictest/fabrictest/verbs"
)

const (
	// barrierTimeout limits the final out-of-band barrier; barrierTimeoutAfterFailure does if this
	// rank knows that another one is lost, which other ranks need that long to detect.
	barrierTimeout             = 2 * time.Minute
	barrierTimeoutAfterFailure = 30 * time.Second
	// deliveryTimeout limits the wait for sent messages to be delivered before that;
	// deliveryTimeoutAfterFailure does after a failure.
	deliveryTimeout             = 5 * time.Second
	deliveryTimeoutAfterFailure = time.Second
)

// Run runs f as the rank of environment e. After f has returned without an error, Run
// completes pending communication and synchronises with all ranks. A panic of f becomes an
// error that names the rank.
func Run(e *transport.Env, o Options, f func(*World) error) error {
	k, err := open(e, o)
	if err != nil {
		return fmt.Errorf("mpi: rank %d of %d: %w", e.Rank, e.Size, classifyControl(err))
	}
	err = k.run(f)
	if k.calls != nil {
		k.calls.end(err)
		k.calls = nil
	}
	if err == nil {
		err = k.finalize()
	}
	if o.OnFinalize != nil {
		o.OnFinalize(e.Rank, (&World{k.world}).Stats())
	}
	if err = errors.Join(err, k.close()); err != nil {
		return fmt.Errorf("mpi: rank %d of %d: %w", e.Rank, e.Size, err)
	}
	return nil
}

// close waits for the progress task to end and closes the carrier.
func (k *rank) close() error {
	k.ended.Store(true)
	for k.progressTaskRunning.Load() {
		k.runUnlocked(func() { k.env.Proc.Sleep(emptyPollTime) })
	}
	k.lock()
	err := k.carrier.Close()
	k.unlock()
	return err
}

// open creates a rank, opens its carrier, which connects it to its peers, and starts the progress
// task if o.Progress is Background.
func open(e *transport.Env, o Options) (*rank, error) {
	o.setDefaults()
	if err := checkRaceOptions(e, &o); err != nil {
		return nil, err
	}
	if o.Misuse != nil && e.Concurrent {
		return nil, fmt.Errorf("%w: the calls of ranks can be checked in simulation only", ErrArg)
	}
	if o.OnCall != nil && o.Misuse == nil {
		return nil, fmt.Errorf("%w: Options.OnCall needs Options.Misuse", ErrArg)
	}
	k := &rank{env: e, opts: o, communicators: communicators{comms: map[uint32]*Comm{}}}
	k.world = k.newComm("world", 0, nil)
	k.self = k.newComm("self", 2, []int{e.Rank}) // contexts are even: bit 0 is collective
	k.nextContext = 4
	if o.Misuse != nil {
		k.calls = newCallChecker(k, o.Misuse)
	}
	carrier, err := o.Open(e, k)
	if err != nil {
		return nil, err
	}
	o.P2P.EagerLimit = min(o.P2P.EagerLimit, carrier.MaxData())
	if o.Window.Chunk == 0 || o.Window.Chunk > carrier.MaxData() {
		o.Window.Chunk = min(window.DefaultChunk, carrier.MaxData()) &^ 7 // a multiple of 8 bytes
	}
	k.carrier = carrier
	k.p2p = p2p.New(o.P2P, carrier)
	k.p2p.DependsOn = k.dependsOn
	k.windows = window.New(o.Window, carrier)
	if o.Races != nil {
		k.observe(o.Races)
	}
	if e.Costs != nil {
		k.p2p.Copied, k.windows.Copied = k.chargeCopy, k.chargeCopy
	}
	if e.OnDump != nil {
		e.OnDump(k.describeRequests)
	}
	if o.Progress == Background {
		k.progressTaskRunning.Store(true)
		e.Go("progress", k.progressTask)
	}
	return k, nil
}

// describeRequests lists the pending sends and receives, unless the rank's lock is held.
func (k *rank) describeRequests() string {
	if !k.mu.TryLock() {
		return "in a call of the runtime"
	}
	defer k.mu.Unlock()
	return k.p2p.DescribePending()
}

// run runs the program f and turns its panic into an error. A panic within the runtime is passed
// on: a simulated world ends waiting ranks that way.
func (k *rank) run(f func(*World) error) (err error) {
	returned := false
	defer func() {
		if returned || k.inRuntime {
			return
		}
		switch v := recover().(type) {
		case nil: // runtime.Goexit
		case *AbortError:
			err = v
		default:
			err = fmt.Errorf("the program panicked: %v\n%s", v, debug.Stack())
		}
	}()
	err = f(&World{k.world})
	returned = true
	return err
}

// finalize completes pending communication and synchronises with all ranks. It unlocks without
// defer: the panic by which a simulation ends a waiting rank comes while the lock is not held.
func (k *rank) finalize() error {
	k.lock()
	if k.races != nil {
		k.races.end()
	}
	// After the barrier no program posts receives. Messages that still arrive are received
	// and discarded, so that their sends complete.
	err := k.measureMessages()
	if err == nil {
		err = k.world.barrier()
	}
	if err == nil {
		k.p2p.CancelAll()
		k.finalizing = true
		k.waitUntil(func() bool { return !k.p2p.Busy() && !k.windows.Busy() })
		err = k.world.barrier()
	}
	delivery, barrier := deliveryTimeout, barrierTimeout
	if err != nil {
		err = fmt.Errorf("the program has ended, but not all ranks can be reached: %w", classify(err))
		delivery, barrier = deliveryTimeoutAfterFailure, barrierTimeoutAfterFailure
	}
	deadline := k.carrier.Now() + delivery
	k.waitUntil(func() bool { return k.carrier.AllDelivered() || k.carrier.Now() > deadline })
	err = errors.Join(err, k.finalBarrier(barrier))
	k.unlock()
	return err
}

// finalBarrier waits in an out-of-band barrier for all ranks that have not exited, and progresses
// meanwhile, because peers may still need replies from this rank. The caller holds the lock.
func (k *rank) finalBarrier(timeout time.Duration) error {
	var result atomic.Pointer[error]
	k.env.Go("final barrier", func(verbs.Proc) {
		err := k.env.Control.Barrier(timeout)
		result.Store(&err)
	})
	for result.Load() == nil {
		if !k.progress() {
			k.unlock()
			k.waitForEvent(maxWaitWithTask)
			k.lock()
		}
	}
	return classifyControl(*result.Load())
}

// discardUnexpected receives and discards unexpected messages of failed collectives and,
// while finalizing, all others except those of the final barrier.
func (k *rank) discardUnexpected() {
	if k.p2p.UnexpectedLen() == 0 {
		return
	}
	for _, context := range k.failedContexts {
		k.discardContext(context)
	}
	if !k.finalizing {
		return
	}
	for context := uint32(0); context < k.nextContext; context++ {
		if context != k.world.context|collective {
			k.neverReceived += k.discardContext(context)
		}
	}
}

// discardContext discards the unexpected messages of a context and returns their number.
func (k *rank) discardContext(context uint32) (n uint64) {
	for {
		m := k.p2p.Improbe(p2p.Envelope{Context: context, Source: p2p.Any, Tag: p2p.Any})
		if m == nil {
			return n
		}
		k.p2p.Imrecv(new(p2p.Request), m)
		n++
	}
}

// World is the argument of a rank's program: the communicator of all ranks, and functions
// of the rank itself.
type World struct {
	*Comm
}

// Self is the communicator that has only this rank.
func (w *World) Self() *Comm { return w.rank.self }

// Wtime is the time since an arbitrary start.
func (w *World) Wtime() time.Duration { return w.rank.env.Proc.Now() }

// Compute keeps the CPU busy for a duration. In mode Polling the rank does not progress meanwhile.
func (w *World) Compute(d time.Duration) {
	w.rank.runUnlocked(func() { w.rank.env.Proc.Compute(d) })
}

// ComputeCopy keeps the CPU busy as long as a copy of n bytes takes on the simulated platform. Without
// one it does nothing: there the copy itself takes time.
func (w *World) ComputeCopy(n int) {
	if c := w.rank.env.Costs; c != nil {
		w.Compute(c.Copy.Of(n))
	}
}

// Abort terminates all ranks. It does not return.
func (w *World) Abort(code int, why string) { w.rank.abort(code, why) }

// AbortError is the error of the rank that called Abort.
type AbortError struct {
	Code int
	Why  string
}

func (e *AbortError) Error() string { return fmt.Sprintf("aborted with code %d: %s", e.Code, e.Why) }

// abort terminates all ranks, and panics in case the environment lets this rank continue.
func (k *rank) abort(code int, why string) {
	k.runUnlocked(func() { k.env.Control.Abort(code, why) })
	panic(&AbortError{code, why})
}

// Stats returns the current statistics of the rank.
func (w *World) Stats() Stats {
	k := w.rank
	k.lock()
	s := Stats{P2P: k.p2p.Stats, Window: k.windows.Stats, NeverReceived: k.neverReceived, Shared: k.shared, Carrier: k.carrier.Stats(), Arrivals: k.arrivals.stats()}
	k.unlock()
	return s
}

// Invalidate deregisters memory that the program is about to free or reuse for another
// purpose. No operation on it may be pending. Memory that the garbage collector manages
// needs no call: a registration keeps it alive until the cache evicts it.
func (w *World) Invalidate(buf []byte) error {
	return w.locked("Invalidate", w.check(), func() error {
		if err := w.rank.carrier.Invalidate(buf); err != nil {
			return err
		}
		w.rank.waitUntil(func() bool { return w.rank.carrier.Invalidated(buf) }) // delayed packets may still access it
		return nil
	})
}
