package mpi

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/fabrictest/fabrictest/mpi/carrier"
	"github.com/fabrictest/fabrictest/mpi/env"
	"github.com/fabrictest/fabrictest/mpi/match"
	"github.com/fabrictest/fabrictest/mpi/p2p"
	"github.com/fabrictest/fabrictest/mpi/window"
	"github.com/fabrictest/fabrictest/mpi/wire"
	"github.com/fabrictest/fabrictest/verbs"
)

const (
	// idleWait is how long a call that waits sleeps at most before it looks again by
	// itself: what comes wakes it, and timers of the carrier's must not be missed.
	maxWait = 10 * time.Millisecond
	// sharedWait is the same where the task in the background may have taken in what
	// the call waits for.
	maxWaitWithTask = time.Millisecond
	// yieldFor is for how long the task in the background leaves it to a program that
	// waits to progress, at first; yieldMost, at most.
	minYield = 100 * time.Microsecond
	maxYield = 10 * time.Millisecond
	// pollCost is the time that a look in vain takes where time passes only in waits.
	emptyPollTime = time.Microsecond
	// glances is how often a call looks for what it waits for before it sees to
	// everything else, and lets others have the rank.
	fastPolls = 16
	// lockRetry is after how long a lock is tried again where nobody may block.
	lockRetryInterval = 100 * time.Nanosecond
)

// rank is all that a rank has. Whoever touches it holds its lock.
type rank struct {
	env  *env.Env
	opts Options
	mu   sync.Mutex

	carrier Carrier
	p2p     *p2p.Engine
	windows *window.Engine
	world   *Comm
	self    *Comm

	comms            map[uint32]*Comm // by context, of point-to-point messages
	nextContext      uint32
	ibarriers        []*ibarrier // collective operations that go on by themselves
	freeRequests     []*Request  // for calls that hand out none
	bsendBuffer      attachedBuffer
	activeProbes     []match.Envelope // what probes wait for
	flushTaskRunning bool             // a task sees to what is kept back
	finalizing       bool             // the program has ended: nobody will ask for what comes
	failedContexts   []uint32         // contexts of collective operations that nothing can come of
	lostPeers        []int            // ranks
	neverReceived    uint64

	ended               atomic.Bool // no call may come any more
	inRuntime           atomic.Bool // the program is in a call of the runtime's, and may be ended there by its world
	waiting             atomic.Bool // it waits for what comes
	progressTaskRunning atomic.Bool // the task in the background is there
}

// lock takes the rank for the program. Where only one task runs at a time, one that
// blocked would keep its holder from letting go: it waits in the world's time.
func (k *rank) lock() {
	if k.env.Concurrent {
		k.mu.Lock()
	} else {
		for !k.mu.TryLock() {
			k.runUnlocked(func() { k.env.Proc.Sleep(lockRetryInterval) })
		}
	}
	k.inRuntime.Store(true)
}

// unlock lets go of it.
func (k *rank) unlock() {
	k.inRuntime.Store(false)
	k.mu.Unlock()
}

// lockAs takes the rank for a task of the runtime's, which lets go of it by the mutex.
func (k *rank) lockForTask(p verbs.Proc) {
	if k.env.Concurrent {
		k.mu.Lock()
		return
	}
	for !k.mu.TryLock() {
		p.Sleep(lockRetryInterval)
	}
}

// progress takes in what has come, and reports whether there was anything.
func (k *rank) progress() bool {
	moved := k.carrier.Progress()
	if len(k.ibarriers) > 0 && k.advanceSchedules() {
		moved = true
	}
	if k.finalizing || len(k.failedContexts) > 0 {
		k.discardUnexpected()
	}
	return moved
}

// until progresses until something is so, which may be asked no more once it is. The
// lock is held before and after it, but not while it waits.
func (k *rank) waitUntil(done func() bool) {
	for !done() {
		if k.pollFast(done) {
			return
		}
		if k.progress() {
			continue
		}
		if done() { // a peer that is lost moves nothing
			return
		}
		k.unlock()
		k.waitForEvent(k.waitLimit())
		k.lock()
	}
}

// glance looks a few times for what may come at any moment, where others run meanwhile.
func (k *rank) pollFast(done func() bool) bool {
	if !k.env.Concurrent || len(k.ibarriers) > 0 || k.finalizing || len(k.failedContexts) > 0 {
		return false
	}
	for i := range fastPolls {
		if k.carrier.PollFast(i == 0) && done() {
			return true
		}
	}
	return false
}

// patience is how long a wait may be.
func (k *rank) waitLimit() time.Duration {
	if k.opts.Progress == Background {
		return maxWaitWithTask
	}
	return maxWait
}

// park waits for something to come. The lock is not held.
func (k *rank) waitForEvent(most time.Duration) {
	k.waiting.Store(true)
	k.runUnlocked(func() { k.carrier.Wait(most) })
	k.waiting.Store(false)
}

// outside does what the program waits in without the lock.
func (k *rank) runUnlocked(do func()) {
	k.inRuntime.Store(true)
	do()
	k.inRuntime.Store(false)
}

// look progresses once, for a call that does not wait. The lock is held before and
// after it. Where time passes only in waits, a look in vain takes some, or a program
// that looks for ever would stop it for all.
func (k *rank) pollOnce(done func() bool) bool {
	if done() {
		return true
	}
	moved := k.progress()
	if done() {
		return true
	}
	if moved || k.env.Concurrent {
		return false
	}
	k.unlock()
	k.waitForEvent(emptyPollTime)
	k.lock()
	k.progress()
	return done()
}

// inBackground is the task that progresses beside the program. When the program
// itself waits for what comes, it progresses too, and one is enough: the task looks
// again when an eighth of what the program has waited has passed.
func (k *rank) progressTask(p verbs.Proc) {
	defer k.progressTaskRunning.Store(false)
	var waitingSince time.Duration // the program has waited; 0: it has not
	for !k.ended.Load() {
		k.lockForTask(p)
		moved := k.progress()
		k.mu.Unlock()
		if !k.waiting.Load() {
			waitingSince = 0
			if !moved {
				k.carrier.Wait(maxWaitWithTask)
			}
			continue
		}
		if waitingSince == 0 || moved {
			waitingSince = p.Now()
		}
		p.Sleep(min(max((p.Now()-waitingSince)/8, minYield), maxYield))
	}
}

// Arrived implements Upper.
func (k *rank) Arrived(peer int, h *wire.Header, data []byte) error {
	switch {
	case h.Kind >= wire.FirstWindowKind:
		return k.windows.Arrived(peer, h, data)
	case h.Kind == wire.Eager && h.Tag == tagFailed && h.Context&collective != 0:
		k.collectiveFailedAt(h.Context, peer)
		return nil
	}
	return k.p2p.Arrived(peer, h, data)
}

// Finished implements Upper.
func (k *rank) Finished(owner any, what carrier.Op, err error) {
	if err != nil {
		err = &classified{p2p.ErrLost, err} // the carrier has tried all ways there are
	}
	switch o := owner.(type) {
	case *p2p.Request:
		switch what {
		case carrier.Sent:
			k.p2p.SendDone(o, err)
		case carrier.Read:
			k.p2p.ReadDone(o, err)
		case carrier.Wrote:
			k.p2p.WriteDone(o, err)
		}
	case *window.Operation:
		k.windows.TransferDone(o, err)
	case *window.Atomic:
		k.windows.AtomicDone(o, err)
	}
}

// messageCarrier is the carrier as the engine of messages sees it.
type messageCarrier struct{ Carrier }

func (m *messageCarrier) Send(peer int, h *wire.Header, data []byte, owner *p2p.Request) {
	if owner == nil {
		m.Carrier.Send(peer, h, data, nil)
		return
	}
	m.Carrier.Send(peer, h, data, owner)
}

func (m *messageCarrier) Read(peer int, into p2p.Region, n int, from wire.Memory, owner *p2p.Request) {
	m.Carrier.Read(peer, into, n, from, owner)
}

func (m *messageCarrier) Write(peer int, from p2p.Region, n int, to wire.Memory, then *wire.Header, owner *p2p.Request) {
	m.Carrier.Write(peer, from, n, to, then, owner)
}

func (m *messageCarrier) Progress() { m.Carrier.Progress() }

// windowCarrier is the carrier as the engine of windows sees it.
type windowCarrier struct{ Carrier }

func (t *windowCarrier) Send(peer int, h *wire.Header, data []byte, owner *window.Operation) {
	if owner == nil {
		t.Carrier.Send(peer, h, data, nil)
		return
	}
	t.Carrier.Send(peer, h, data, owner)
}

func (t *windowCarrier) Read(peer int, into p2p.Region, n int, from wire.Memory, owner *window.Operation) {
	t.Carrier.Read(peer, into, n, from, owner)
}

func (t *windowCarrier) Write(peer int, from p2p.Region, n int, to wire.Memory, owner *window.Operation) {
	t.Carrier.Write(peer, from, n, to, nil, owner)
}

func (t *windowCarrier) FetchAdd(peer int, at wire.Memory, add uint64, owner *window.Atomic) {
	t.Carrier.FetchAdd(peer, at, add, owner)
}

func (t *windowCarrier) CompareSwap(peer int, at wire.Memory, compare, swap uint64, owner *window.Atomic) {
	t.Carrier.CompareSwap(peer, at, compare, swap, owner)
}
