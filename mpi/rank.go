package mpi

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/fabrictest/fabrictest/mpi/carrier"
	"github.com/fabrictest/fabrictest/mpi/p2p"
	"github.com/fabrictest/fabrictest/mpi/transport"
	"github.com/fabrictest/fabrictest/mpi/window"
	"github.com/fabrictest/fabrictest/mpi/wire"
	"github.com/fabrictest/fabrictest/verbs"
)

const (
	// maxWait limits the sleep of a blocking call, so that timers of the carrier run.
	maxWait = 10 * time.Millisecond
	// maxWaitWithTask is the limit where the progress task may have processed the event.
	maxWaitWithTask = time.Millisecond
	// minYield and maxYield limit the sleep of the progress task while the program progresses.
	minYield = 100 * time.Microsecond
	maxYield = 10 * time.Millisecond
	// emptyPollTime is the virtual time that an unsuccessful poll takes.
	emptyPollTime = time.Microsecond
	// fastPolls is how often a waiting call uses PollFast before it runs a full progress
	// and releases the lock.
	fastPolls = 16
	// lockRetryInterval is the interval of lock attempts where blocking is not allowed.
	lockRetryInterval = 100 * time.Nanosecond
)

// rank is the state of a rank, protected by mu.
type rank struct {
	env  *transport.Env
	opts Options
	mu   sync.Mutex

	carrier Carrier
	p2p     *p2p.Engine
	windows *window.Engine
	communicators
	losses
	races *races // nil unless they are detected

	calls            *callChecker // nil unless Options.Misuse is set
	arrivals         arrivals
	shared           SharedStats
	collectives      []*execution // active nonblocking ones
	freeExecutions   []*execution
	freeLayouts      []*layouts
	largeScratch     []byte // of the last operation that needed much; nil while one has it
	userOps          []userOp
	freeRequests     []*p2p.Request
	bsendBuffer      attachedBuffer
	activeProbes     []p2p.Envelope // envelopes of blocking probes
	flushTaskRunning bool
	finalizing       bool // the program has ended; discard unexpected messages
	programState
}

// communicators are those of a rank.
type communicators struct {
	world, self *Comm
	comms       map[uint32]*Comm // by context
	nextContext uint32
}

// losses are the failures that a rank knows of.
type losses struct {
	failedContexts []uint32 // contexts of failed collectives
	lostPeers      []int    // world ranks
	neverReceived  uint64   // discarded messages
}

// programState is read without the lock.
type programState struct {
	ended               atomic.Bool // no more calls are allowed
	inRuntime           bool        // the program is in a call; a panic there is not the program's. Only the program uses it
	waiting             atomic.Bool // the program waits for an event
	progressTaskRunning atomic.Bool
}

// lock locks the rank for the program, and sets inRuntime: a panic is then not one of the program.
// Where tasks do not run concurrently, it polls the mutex in virtual time, since blocking would
// stop the holder too.
func (k *rank) lock() {
	if k.calls != nil {
		k.calls.enter()
	}
	if k.env.Concurrent {
		k.mu.Lock()
	} else {
		for !k.mu.TryLock() {
			k.runUnlocked(func() { k.env.Proc.Sleep(lockRetryInterval) })
		}
	}
	k.inRuntime = true
}

// unlock is the counterpart of lock: the program leaves the runtime.
func (k *rank) unlock() {
	if k.calls != nil {
		k.calls.leave()
	}
	k.inRuntime = false
	k.mu.Unlock()
}

// lockForTask locks the rank for a task of the runtime. The task unlocks k.mu, not k: inRuntime is
// about the program only.
func (k *rank) lockForTask(p verbs.Proc) {
	if k.env.Concurrent {
		k.mu.Lock()
		return
	}
	for !k.mu.TryLock() {
		p.Sleep(lockRetryInterval)
	}
}

// chargeCopy advances the virtual time by the CPU time of a copy of n bytes, if it is simulated.
func (k *rank) chargeCopy(n int) {
	if k.env.Costs != nil && n > 0 {
		k.env.Charge(verbs.WorkCopy, n, k.env.Costs.Copy.Of(n))
	}
}

// progress processes received messages and completions, and reports whether there were any.
func (k *rank) progress() bool {
	progressed := k.carrier.Progress()
	if len(k.collectives) > 0 && k.advanceCollectives() {
		progressed = true
	}
	if k.finalizing || len(k.failedContexts) > 0 {
		k.discardUnexpected()
	}
	return progressed
}

// waitUntil progresses until done reports true; done is not called again after that. The
// caller holds the lock, which waitUntil releases while it sleeps.
func (k *rank) waitUntil(done func() bool) {
	limit := maxWait
	if k.opts.Progress == Background {
		limit = maxWaitWithTask
	}
	for !done() {
		if k.pollFast(done) {
			return
		}
		if k.progress() {
			continue
		}
		if done() { // progress returns false if it only detected the loss of a peer
			return
		}
		k.sleep(limit)
	}
}

// sleep waits for an event, without the lock, which the caller holds.
func (k *rank) sleep(limit time.Duration) {
	k.inRuntime = false
	k.mu.Unlock()
	if k.calls != nil {
		k.runUnlocked(k.calls.sleep)
	}
	k.waitForEvent(limit)
	k.lock()
}

// pollFast polls the carrier a few times for an event that may be imminent, and reports whether
// done is true. It polls only where other ranks run concurrently, and while progress has nothing to
// do but poll the carrier.
func (k *rank) pollFast(done func() bool) bool {
	if !k.env.Concurrent || len(k.collectives) > 0 || k.finalizing || len(k.failedContexts) > 0 {
		return false
	}
	for i := range fastPolls {
		isFirst := i == 0
		if k.carrier.PollFast(isFirst) && done() {
			return true
		}
	}
	return false
}

// waitForEvent sleeps until an event or the timeout. The caller does not hold the lock.
func (k *rank) waitForEvent(timeout time.Duration) {
	k.waiting.Store(true)
	k.runUnlocked(func() { k.carrier.Wait(timeout) })
	k.waiting.Store(false)
}

// runUnlocked calls do, a blocking operation of the runtime, for the program, without the lock.
// inRuntime tells the rank that a panic in do is one of the runtime, not of the program.
func (k *rank) runUnlocked(do func()) {
	k.inRuntime = true
	do()
	k.inRuntime = false
}

// pollOnce makes progress once for a nonblocking call, and reports whether done then is true. Ranks
// that are not Concurrent run in virtual time, where an unsuccessful poll takes emptyPollTime:
// otherwise time would stand still for a program that polls. The caller holds the lock.
func (k *rank) pollOnce(done func() bool) bool {
	if done() {
		return true
	}
	progressed := k.progress()
	if done() {
		return true
	}
	if progressed || k.env.Concurrent {
		return false
	}
	k.inRuntime = false // the call goes on: k.unlock would end it
	k.mu.Unlock()
	k.waitForEvent(emptyPollTime)
	k.lock()
	k.progress()
	return done()
}

// progressTask makes progress while the program computes. While the program itself waits, and makes
// progress, the task backs off: it sleeps an eighth of the time that the program has waited, from
// minYield to maxYield.
func (k *rank) progressTask(p verbs.Proc) {
	defer k.progressTaskRunning.Store(false)
	var waitingSince time.Duration // 0: the program does not wait
	for !k.ended.Load() {
		k.lockForTask(p)
		progressed := k.progress()
		k.mu.Unlock()
		if !k.waiting.Load() {
			waitingSince = 0
			if !progressed {
				k.carrier.Wait(maxWaitWithTask)
				k.env.Charge(verbs.WorkWake, 1, k.env.HostCosts().Wake) // a program that waits polls, but this task sleeps
			}
			continue
		}
		if waitingSince == 0 || progressed {
			waitingSince = p.Now()
		}
		p.Sleep(min(max((p.Now()-waitingSince)/8, minYield), maxYield))
	}
}

// Arrived implements Upper; the carrier calls it for each message. It passes the message to the
// engine of windows or of point-to-point messages, unless it announces a failed collective.
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

// Finished implements Upper; the carrier calls it when an operation has ended. It notifies the
// engine of owner, the request, window operation or atomic that the operation belongs to.
func (k *rank) Finished(owner any, op carrier.Op, err error) {
	if err != nil {
		err = &classified{p2p.ErrLost, err} // the carrier has already retried
	}
	switch o := owner.(type) {
	case *p2p.Request:
		switch op {
		case carrier.OpSend:
			k.p2p.SendDone(o, err)
		case carrier.OpRead:
			k.p2p.ReadDone(o, err)
		case carrier.OpWrite:
			k.p2p.WriteDone(o, err)
		}
	case *window.Operation:
		k.windows.TransferDone(o, err)
	case *window.Atomic:
		k.windows.AtomicDone(o, err)
	}
}

// The carrier coalesces small sends and defers the last packet of a burst. Calls that
// progress flush it; a task does so while the program computes.

const (
	// flushInterval limits how long a deferred message waits while the program computes.
	flushInterval = 50 * time.Microsecond
	// maxIdleFlushes is the number of empty flushes after which the task ends.
	maxIdleFlushes = 10
)

// FlushNeeded implements Upper; the carrier calls it when it defers messages. It starts flushTask.
func (k *rank) FlushNeeded() {
	if !k.flushTaskRunning {
		k.flushTaskRunning = true
		k.env.Go("flush", k.flushTask)
	}
}

// flushTask flushes deferred messages periodically while the program computes. It ends when the
// rank has ended, or when no message was deferred maxIdleFlushes times in a row.
func (k *rank) flushTask(p verbs.Proc) {
	for idle := 0; idle < maxIdleFlushes; {
		p.Sleep(flushInterval)
		if !k.mu.TryLock() {
			continue // the program is in a call
		}
		switch {
		case k.ended.Load():
			idle = maxIdleFlushes
		case k.carrier.Flush():
			idle = 0
		default:
			idle++
		}
		k.flushTaskRunning = idle < maxIdleFlushes
		k.mu.Unlock()
	}
}
