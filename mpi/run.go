package mpi

import (
	"errors"
	"fmt"
	"runtime/debug"
	"sync/atomic"
	"time"

	"github.com/fabrictest/fabrictest/mpi/env"
	"github.com/fabrictest/fabrictest/mpi/p2p"
	"github.com/fabrictest/fabrictest/mpi/window"
	"github.com/fabrictest/fabrictest/verbs"
)

const (
	// farewell is how long a rank waits at most for the others at its end, when
	// nothing is left to be done but to meet: for longer than they may take to find out
	// that they cannot; farewellSoon, if it knows so itself.
	barrierTimeout             = 2 * time.Minute
	barrierTimeoutAfterFailure = 30 * time.Second
	// quietWithin is how long it waits before for what it has sent to arrive;
	// quietSoon, if not all of it can.
	deliveryTimeout             = 5 * time.Second
	deliveryTimeoutAfterFailure = time.Second
)

// Run runs f as the rank that e is. When f has returned without an error, all that
// is under way is completed and all ranks meet. What f panics with is an error that
// names the rank.
func Run(e *env.Env, o Options, f func(*World) error) error {
	k, err := open(e, o)
	if err != nil {
		return fmt.Errorf("mpi: rank %d of %d: %w", e.Rank, e.Size, classifyControl(err))
	}
	err = k.run(f)
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

// close gives back what the rank has, when the task in the background has left.
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

// open makes a rank.
func open(e *env.Env, o Options) (*rank, error) {
	o.setDefaults()
	k := &rank{env: e, opts: o, comms: make(map[uint32]*Comm)}
	k.world = k.newWorld()
	k.self = k.newComm("self", 2, []int{e.Rank})
	k.nextContext = 4
	carrier, err := o.Open(e, k)
	if err != nil {
		return nil, err
	}
	o.limitData(carrier.MaxData())
	k.carrier = carrier
	k.p2p = p2p.New(o.P2P, &messageCarrier{carrier})
	k.p2p.DependsOn = k.dependsOn
	k.windows = window.New(o.Window, &windowCarrier{carrier})
	if o.Progress == Background {
		if e.Go == nil {
			return nil, errors.Join(fmt.Errorf("%w: this environment runs nothing beside a rank: use Polling", ErrArg), carrier.Close())
		}
		k.progressTaskRunning.Store(true)
		e.Go("progress", k.progressTask)
	}
	return k, nil
}

// run runs the program, and turns its panic into an error. One within the runtime is
// not the program's: a world ends those who wait in it so, and it goes on.
func (k *rank) run(f func(*World) error) (err error) {
	returned := false
	defer func() {
		if returned || k.inRuntime.Load() {
			return
		}
		switch v := recover().(type) {
		case nil: // it leaves by runtime.Goexit
		case *AbortError:
			err = v
		default:
			err = fmt.Errorf("the program panics: %v\n%s", v, debug.Stack())
		}
	}()
	err = f(&World{k.world})
	returned = true
	return err
}

// finalize completes what is under way, and meets the others. A world that ends
// unwinds whoever waits in it, and the lock is not held while one waits: so it is
// never given back by a deferred call here.
func (k *rank) finalize() error {
	k.lock()
	// When all have come here, no program will ask for a message any more: what is
	// still to come is taken and dropped, so that its sender can end.
	err := k.world.barrier()
	if err == nil {
		k.p2p.CancelAll()
		k.finalizing = true
		k.waitUntil(func() bool { return !k.p2p.Busy() && !k.windows.Busy() })
		err = k.world.barrier()
	}
	delivery, barrier := deliveryTimeout, barrierTimeout
	if err != nil {
		err = fmt.Errorf("the program has ended, but not all ranks can be met: %w", classify(err))
		delivery, barrier = deliveryTimeoutAfterFailure, barrierTimeoutAfterFailure
	}
	deadline := k.carrier.Now() + delivery
	k.waitUntil(func() bool { return k.carrier.AllDelivered() || k.carrier.Now() > deadline })
	err = errors.Join(err, k.finalBarrier(barrier))
	k.unlock()
	return err
}

// leave waits for all ranks that have not ended yet by means that need no fabric,
// and serves them meanwhile: nobody is gone while another still wants to hear from
// it. The lock is held before and after it.
func (k *rank) finalBarrier(within time.Duration) error {
	var result atomic.Pointer[error]
	meet := func(verbs.Proc) {
		err := k.env.Control.Barrier(within)
		result.Store(&err)
	}
	if k.env.Go == nil {
		k.unlock()
		k.runUnlocked(func() { meet(nil) })
		k.lock()
		return classifyControl(*result.Load())
	}
	k.env.Go("farewell", meet)
	for result.Load() == nil {
		if !k.progress() {
			k.unlock()
			k.waitForEvent(maxWaitWithTask)
			k.lock()
		}
	}
	return classifyControl(*result.Load())
}

// discard drops what has come and nobody will ask for: at the end everything, but
// for what all ranks say to each other then; before, what is of collective operations
// that have failed.
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

// drop drops what has come in a context.
func (k *rank) discardContext(context uint32) (n uint64) {
	for {
		m := k.p2p.Improbe(anyMessage(context))
		if m == nil {
			return n
		}
		k.p2p.Imrecv(new(p2p.Request), m)
		n++
	}
}
