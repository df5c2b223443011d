package drive

import (
	"sync"
	"time"

	"github.com/fabrictest/fabrictest/emu/link"
	"github.com/fabrictest/fabrictest/emu/mono"
)

// Real drives an engine in real time.
//
// Whoever waits for the network does so holding the lead, a token of which
// there is one: an application that waits takes it if it can, so that a packet
// wakes the one who wants it and nobody else. A goroutine in the background
// leads when no application has looked for a while.
type Real struct {
	mu     sync.Mutex
	engine machine
	holder DelayingEngine // engine, if it is one
	net    network
	epoch  time.Time
	now    mono.Time // the time, once it was asked for since the lock was taken; else 0
	full   bool      // the network did not take everything
	// retryAt is when a full network is offered the rest.
	retryAt mono.Time

	// A program that answers every message at once has its acknowledgements
	// leave with its answers: one system call for both, and the answer first.
	owed  bool // packets were taken in and nothing has been sent since
	fresh bool // the program has something that it has not answered
	talks bool // it is likely to answer before it looks for more
	// mute is how often in a row it looked for more and had not answered. Now and
	// then all do that talk: what they got may be the end of a request of their own.
	mute int
	came bool // something was taken in by the look under way
	// tookIn is when takeIn last looked at the network.
	tookIn mono.Time

	lead     chan struct{} // holds the token while nobody leads
	ownLead  bool          // the background goroutine leads
	leadTill mono.Time     // when the leader wakes by itself
	visited  mono.Time     // when an application last polled or waited
	stirred  mono.Time     // when anything was last sent or received
	dozing   bool          // the background goroutine waits for rouse
	rouse    chan struct{}
	closed   bool
	done     chan struct{}
	gone     chan struct{}

	spinner spinner
}

const (
	// idle is how long after an application's last visit the background
	// goroutine takes the lead.
	idle = 250 * time.Microsecond
	// nap is how often the background goroutine looks whether it is needed
	// while applications lead.
	nap = time.Millisecond
	// longestWait bounds a leader's sleep, so that a deadline which moves nearer
	// need not interrupt it unless it is nearer than this. It does not while
	// nothing has stirred for quiet: then one sleeps until something does.
	longestWait = 50 * time.Millisecond
	quiet       = time.Second
	// deepAfter is how many naps in a row over the same leader's sleep make the
	// background goroutine sleep too.
	deepAfter = 64
	// linger is how often in vain the background goroutine looks for more before it
	// sleeps: packets come in bursts, and to be woken takes longer than the next is
	// away.
	linger = 32
	// muteAfter is how many messages in a row without an answer show that a program
	// does not talk in turns.
	muteAfter = 4
	// lookAgains is how often more a program's poll in vain looks, if many before it were.
	lookAgains = 3
	// rounds bounds how many batches one call takes in.
	rounds = 16
)

// NewReal starts driving e on l. Time starts at start, which must be positive.
func NewReal(e Engine, l link.Waiter, start mono.Time) *Real {
	r := newReal(e, newDatagrams(e, l), start)
	r.holder, _ = e.(DelayingEngine)
	go r.background()
	return r
}

// newReal returns a driver whose background goroutine is yet to be started.
func newReal(e machine, n network, start mono.Time) *Real {
	r := &Real{
		engine: e, net: n, epoch: time.Now().Add(-time.Duration(start)), visited: start.Add(-idle),
		lead: make(chan struct{}, 1), rouse: make(chan struct{}, 1), done: make(chan struct{}), gone: make(chan struct{}),
	}
	r.lead <- struct{}{}
	return r
}

// Lock enters the device. What is owed to the peer is paid before anything is
// changed: a queue pair that a program takes down has acknowledged what the
// program has seen.
func (r *Real) Lock(c CallKind) {
	r.lock()
	if c == CallControl && r.owed {
		r.silent()
		r.pump(r.Now())
	}
}

// Unlock leaves the device.
func (r *Real) Unlock() { r.mu.Unlock() }

func (r *Real) lock() {
	r.mu.Lock()
	r.now = 0
}

// Now is the time since the epoch. It is read once for each time that the lock
// is taken: a short message takes not much longer than a few looks at the clock.
func (r *Real) Now() mono.Time {
	if r.now == 0 {
		r.now = mono.Time(time.Since(r.epoch))
	}
	return r.now
}

// Pump sends what there is to send.
func (r *Real) Pump() {
	if r.fresh {
		r.fresh, r.talks, r.mute = false, true, 0
	}
	r.stirred = r.Now()
	r.pump(r.stirred)
}

// Found puts off sending for a program that is about to answer.
func (r *Real) PollFound() {
	r.fresh = true
	r.spinner.found()
	if !r.talks {
		r.pump(r.visited)
	}
	if r.owed {
		r.wakeDozer() // should the program go away now
	}
}

// Nothing sends what was put off, or is due. What has just come without a completion
// may have been written to memory that the program looks at next: it has the time until
// it looks here again.
func (r *Real) PollEmpty() {
	if r.came && !r.fresh {
		if r.fresh = true; r.talks && r.engine.Deadline() > r.visited && !r.full {
			r.wakeDozer()
			return
		}
	} else {
		r.silent()
	}
	if r.owed || r.full || r.engine.Deadline() <= r.visited {
		r.pump(r.visited)
	}
}

// silent notes that what the program got has remained without an answer.
func (r *Real) silent() {
	if r.fresh {
		r.fresh = false
		if r.mute++; r.mute >= muteAfter {
			r.talks = false
		}
	}
}

func (r *Real) pump(now mono.Time) {
	if r.engine.Deadline() <= now {
		r.expire(now)
	}
	r.send(now)
}

// expire handles the timers that have expired. It first takes in what has arrived:
// if this process was not scheduled for a while, the answer that a timer waits for
// may be there.
func (r *Real) expire(now mono.Time) {
	if r.tookIn < now {
		r.takeIn(now)
	}
	if r.engine.Deadline() <= now {
		r.engine.Tick(now)
	}
}

// send sends what there is to send, and has a sleeping leader know of the next
// deadline.
func (r *Real) send(now mono.Time) {
	r.owed = false
	r.engine.Settle(now)
	r.flush(now)
	// A leader asleep beyond the next deadline must hear of it. To wake one costs
	// more than any packet that keeping others back may save.
	if r.strictDeadline() < r.leadTill && len(r.lead) == 0 {
		if r.holder != nil && r.holder.Release() {
			r.flush(now)
		}
		if at := r.strictDeadline(); at < r.leadTill {
			r.leadTill = at
			r.net.wake()
		}
	}
	if r.dozing && r.engine.Deadline() < r.leadTill {
		r.wakeDozer()
	}
}

// flush sends what the engine has to send. Between batches it takes in what has arrived:
// a request may have to be answered before the rest of a long answer. When it has taken
// in much, it leaves the rest for the next call, so that others get the lock.
func (r *Real) flush(now mono.Time) {
	for taken := 0; ; {
		more, again := r.net.flush(now)
		if more && taken == rounds {
			more, again = false, 0
		}
		if !more {
			if r.full = again >= 0; r.full {
				r.retryAt = now.Add(again)
			}
			return
		}
		r.now = 0
		now = r.Now()
		if some, _ := r.net.takeIn(now); some {
			taken++
			r.stirred = now
			r.engine.Settle(now)
		}
	}
}

// Progress takes in what has arrived.
func (r *Real) Progress() {
	r.visited = r.Now()
	if r.ownLead && r.visited < r.leadTill {
		r.leadTill = r.visited
		r.net.wake() // or the next packet would wake the background goroutine too
	}
	r.came = r.takeIn(r.visited)
	if !r.came && r.spinner.spins() {
		r.came = r.lookAgain()
	}
}

// lookAgain looks a few times more for a program that is about to do so itself: it is
// sooner done from here.
func (r *Real) lookAgain() bool {
	for range lookAgains {
		if r.takeIn(r.visited) {
			return true
		}
	}
	return false
}

// turn takes in what has arrived and sends what that has caused. It reports
// whether anything had.
func (r *Real) turn() (arrived bool) {
	r.silent()
	now := r.Now()
	arrived = r.takeIn(now)
	r.pump(now)
	return arrived
}

// Idle lets others run now and then.
func (r *Real) Yield() { r.spinner.idle() }

// takeIn moves what has arrived into the engine. Only where there is much does
// it send in between, so that acknowledgements keep the peer going.
func (r *Real) takeIn(now mono.Time) (arrived bool) {
	for range rounds {
		r.tookIn = now
		some, more := r.net.takeIn(now)
		if some {
			r.owed, r.stirred, arrived = true, now, true
			r.engine.Settle(now)
		}
		if !more {
			return arrived
		}
		r.send(now)
		r.now = 0
		now = r.Now()
	}
	r.net.leave()
	return arrived
}

// strictDeadline is the deadline that a leader must not sleep beyond. The
// background goroutine sees to the others.
func (r *Real) strictDeadline() mono.Time {
	at := mono.Never
	if r.full {
		at = r.retryAt
	}
	if r.holder != nil {
		return min(at, r.holder.StrictDeadline())
	}
	return min(at, r.engine.Deadline())
}

// untilNext is how long a leader may sleep.
func (r *Real) untilNext(now mono.Time) time.Duration {
	at := r.strictDeadline()
	if now.Sub(r.stirred) < quiet {
		at = min(at, now.Add(longestWait))
	}
	return max(at.Sub(now), 0)
}

// sleep waits for the network, holding the lead and giving up the lock.
func (r *Real) sleep(d time.Duration) {
	r.leadTill = r.Now().Add(d)
	if r.leadTill == mono.Never {
		d = -1
	}
	r.mu.Unlock()
	if err := r.net.wait(d); err != nil {
		time.Sleep(time.Millisecond) // closing; do not spin meanwhile
	}
	r.lock()
	r.leadTill = 0
	r.wakeDozer()
}

// Close stops driving. Calls that wait return.
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
	<-r.gone
}
