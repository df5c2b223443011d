package drive

import (
	"sync"
	"time"

	"github.com/fabrictest/fabrictest/emu/link"
	"github.com/fabrictest/fabrictest/emu/mono"
)

// Real drives an engine in real time. Its parts are the poller, which says who
// blocks on the network, and ackDelay, which says when acknowledgements are sent;
// Real itself receives, sends and handles deadlines.
type Real struct {
	mu      sync.Mutex
	engine  baseEngine
	delayer DelayingEngine // engine, if it is one; else nil
	net     network
	epoch   time.Time
	now     mono.Time // time of the first Now since the lock was taken; else 0

	full         bool      // the network did not take all packets
	retryAt      mono.Time // when to offer a full network the rest
	lastReceive  mono.Time // when the network was last asked for packets
	pollReceived bool      // the poll under way has received packets

	acks   ackDelay
	poller poller
	yields yieldPolicy

	parked   bool          // the background goroutine waits for unparked
	unparked chan struct{} // wakes it
	closed   bool
	done     chan struct{} // closed by Close
	stopped  chan struct{} // closed when the background goroutine has returned
}

const (
	// extraPolls is how many more times a spinning application's poll reads the network.
	extraPolls = 3
	// maxBatches bounds how many batches one call receives.
	maxBatches = 16
)

// NewReal runs the engine e on the link l. Its clock begins at start, which must be positive.
func NewReal(e Engine, l link.Waiter, start mono.Time) *Real {
	r := newReal(e, newPacketNetwork(e, l), start)
	r.delayer, _ = e.(DelayingEngine) // nil if e never delays packets
	go r.runInBackground()
	return r
}

// newReal returns a driver whose background goroutine the caller must start.
func newReal(e baseEngine, n network, start mono.Time) *Real {
	return &Real{
		engine: e, net: n, epoch: time.Now().Add(-time.Duration(start)), poller: newPoller(start),
		unparked: make(chan struct{}, 1), done: make(chan struct{}), stopped: make(chan struct{}),
	}
}

// Lock implements Driver. Before a control call it sends delayed acknowledgements: the call may
// destroy the queue pair, which could then not acknowledge messages already delivered.
func (r *Real) Lock(c CallKind) {
	r.lock()
	if c == CallControl && r.acks.pending {
		r.acks.noteUnanswered()
		r.pump(r.Now())
	}
}

// Unlock implements Driver.
func (r *Real) Unlock() { r.mu.Unlock() }

// lock takes the lock, and makes the next Now read the clock.
func (r *Real) lock() {
	r.mu.Lock()
	r.now = 0
}

// Now implements Driver. It reads the clock only once per Lock, because a few reads of the clock
// take almost as long as receiving a short message.
func (r *Real) Now() mono.Time {
	if r.now == 0 {
		r.now = mono.Time(time.Since(r.epoch))
	}
	return r.now
}

// Pump implements Driver. It sends the engine's packets after the application has posted work,
// which may be its answer to a message, or has made a control call.
func (r *Real) Pump() {
	r.acks.posted()
	r.poller.lastEvent = r.Now()
	r.pump(r.poller.lastEvent)
}

// PollFound implements Driver. It sends acknowledgements, unless they wait to be sent together with
// the application's answer.
func (r *Real) PollFound() {
	r.yields.pollFound()
	if !r.acks.delivered() {
		r.pump(r.poller.lastPoll)
	}
	if r.acks.pending {
		r.unpark() // the background goroutine sends them if the application posts nothing
	}
}

// PollEmpty implements Driver. It sends packets that the network had no room for (r.full), handles
// deadlines that have passed, and sends acknowledgements. If the network has taken everything, all
// this may wait for an answer of the application or for its next poll, as acks.emptyPoll decides.
func (r *Real) PollEmpty() {
	switch delay := r.acks.emptyPoll(r.pollReceived); {
	case delay && !r.full:
		r.unpark() // if the application stops polling, the background goroutine sends them
	case r.acks.pending || r.full || r.engine.Deadline() <= r.poller.lastPoll:
		r.pump(r.poller.lastPoll)
	}
}

// pump handles deadlines that have passed, and sends the engine's packets.
func (r *Real) pump(now mono.Time) {
	if r.engine.Deadline() <= now {
		r.expireTimers(now)
	}
	r.send(now)
}

// expireTimers handles deadlines that have passed. It first receives: if the process did not run
// for a while, the packet that a timer waits for may have arrived.
func (r *Real) expireTimers(now mono.Time) {
	if r.lastReceive < now {
		r.receive(now)
	}
	if r.engine.Deadline() <= now {
		r.engine.Tick(now)
	}
}

// send has the engine deliver its events (Settle), and sends its packets. If the goroutine that
// blocks on the network (the holder of the poller) would sleep through a strict deadline, send
// wakes that goroutine. For other deadlines it unparks the background goroutine.
func (r *Real) send(now mono.Time) {
	r.acks.sent()
	r.engine.Settle(now)
	r.flush(now)
	if r.poller.oversleeps(r.strictDeadline()) {
		// A wake-up costs more than delayed packets save: send them. This may move the deadline.
		if r.delayer != nil && r.delayer.Release() {
			r.flush(now)
		}
		if at := r.strictDeadline(); at < r.poller.wakeAt {
			r.poller.wakeAt = at
			r.net.wake()
		}
	}
	if r.parked && r.engine.Deadline() < r.poller.wakeAt {
		r.unpark()
	}
}

// flush sends the engine's packets. Between batches it receives: a request may have to be answered
// before the rest of a long response. After it has received maxBatches times it leaves the rest to
// the next call, so that other goroutines get the lock.
func (r *Real) flush(now mono.Time) {
	for batches := 0; ; {
		more, retryAfter := r.net.flush(now)
		if more && batches == maxBatches {
			more, retryAfter = false, 0 // the next call goes on at once
		}
		if !more {
			if r.full = retryAfter >= 0; r.full {
				r.retryAt = now.Add(retryAfter)
			}
			return
		}
		r.now = 0 // read the clock again
		now = r.Now()
		if received, _ := r.net.receive(now); received {
			batches++
			r.poller.lastEvent = now
			r.engine.Settle(now)
		}
	}
}

// Progress implements Driver: it receives. For a spinning application it asks the network a few
// times more if nothing has arrived, which is cheaper than further polls. It wakes the
// background goroutine if that sleeps on the network: otherwise each packet would wake it, too.
func (r *Real) Progress() {
	p := &r.poller
	p.lastPoll = r.Now()
	if p.background && p.lastPoll < p.wakeAt {
		p.wakeAt = p.lastPoll // so that the next poll does not wake it again
		r.net.wake()
	}
	r.pollReceived = r.receive(p.lastPoll)
	if r.pollReceived || !r.yields.spinning() {
		return
	}
	for range extraPolls {
		if r.receive(p.lastPoll) {
			r.pollReceived = true
			return
		}
	}
}

// receiveAndSend receives, handles deadlines and sends, for the background goroutine. It reports
// whether it received packets.
func (r *Real) receiveAndSend() (received bool) {
	r.acks.noteUnanswered() // no application polls, which would answer
	now := r.Now()
	received = r.receive(now)
	r.pump(now)
	return received
}

// Yield implements Driver.
func (r *Real) Yield() { r.yields.pollEmpty() }

// receive passes received packets, up to maxBatches batches, to the engine, and reports whether
// there were any. After each full batch it sends, so that acknowledgements keep the peer sending.
func (r *Real) receive(now mono.Time) (received bool) {
	for range maxBatches {
		r.lastReceive = now
		some, more := r.net.receive(now)
		if some {
			r.acks.received()
			r.poller.lastEvent, received = now, true
			r.engine.Settle(now)
		}
		if !more {
			return received
		}
		r.send(now)
		r.now = 0 // read the clock again
		now = r.Now()
	}
	r.net.wakeNextWait() // there is more to receive
	return received
}

// strictDeadline returns the deadline that the goroutine that blocks on the network must not sleep
// through: that of the engine, or the time to retry if the network was full. Timers that may be a
// little late (see DelayingEngine) do not count: the background goroutine handles them.
func (r *Real) strictDeadline() mono.Time {
	at := mono.Never
	if r.full {
		at = r.retryAt
	}
	if r.delayer != nil {
		return min(at, r.delayer.StrictDeadline())
	}
	return min(at, r.engine.Deadline())
}

// sleepTime returns how long the holder of the poller may sleep.
func (r *Real) sleepTime(now mono.Time) time.Duration {
	return r.poller.sleepTime(now, r.strictDeadline())
}

// sleep blocks until the network has something to receive, or for d. The caller holds the poller,
// and the lock, which sleep releases meanwhile.
func (r *Real) sleep(d time.Duration) {
	r.poller.wakeAt = r.Now().Add(d)
	if r.poller.wakeAt == mono.Never {
		d = -1 // no limit
	}
	r.mu.Unlock()
	if err := r.net.wait(d); err != nil {
		time.Sleep(time.Millisecond) // the link is being closed: do not spin meanwhile
	}
	r.lock()
	r.poller.wakeAt = 0
	r.unpark() // the background goroutine parks only while the holder of the poller sleeps
}

// Close implements Driver. Blocked waits return.
func (r *Real) Close() {
	r.mu.Lock()
	if r.closed {
		r.mu.Unlock()
		return
	}
	r.closed = true
	close(r.done)
	r.mu.Unlock()
	r.net.wake()
	<-r.stopped
}
