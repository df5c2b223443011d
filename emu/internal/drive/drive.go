// Package drive runs an engine on a link: it is where time, sockets, locks and
// goroutines meet the pure part. An engine's provider is written against
// Driver and does not know which world it lives in; package simdrive has the
// Driver of the simulated one.
package drive

import (
	"fmt"
	"time"

	"github.com/fabrictest/fabrictest/emu/link"
	"github.com/fabrictest/fabrictest/emu/mono"
)

// Engine is what a driver drives. It is called under the driver's lock.
type Engine interface {
	Input(now mono.Time, d *link.Datagram)
	// Settle hands on what inputs and calls have caused: events, completions.
	Settle(now mono.Time)
	// Output fills ds with what is to be sent. Fewer than fit mean that there is
	// no more. The payloads lie in the buffers that ds brings, those of a
	// NewBatch one behind the other.
	Output(now mono.Time, ds []link.Datagram) int
	Tick(now mono.Time)
	Deadline() mono.Time
}

// Holder is an Engine that may keep packets back for a moment in the hope to
// save some.
type DelayingEngine interface {
	Engine
	// Release makes Output give what is kept back, and reports whether there is
	// anything. Deadlines may then be later.
	Release() bool
	// StrictDeadline is Deadline but for what may as well be a millisecond late.
	// A sleep that is to end in microseconds makes the kernel set a hardware timer
	// and take it back, which takes longer than most packets do.
	StrictDeadline() mono.Time
}

// Driver is the world as a provider sees it. Methods are called with the lock
// held unless they say otherwise.
//
// A verb is Lock, the work, Pump, Unlock. A poll is
//
//	Lock(CallPoll)
//	look; if there is something: Unlock, done
//	Progress
//	look again
//	Found if there is something now, else Nothing
//	Unlock
//	Idle if there was nothing
//
// and Progress is never called without the one or the other after it, under
// the same lock: what was taken in may owe the peer an answer. (The steps are
// not one method with a function to look as its argument, since that function
// would be allocated at every poll.)
type Driver interface {
	// Lock enters the device, not holding the lock. In a simulated world it is
	// also where the call costs time and others may run.
	Lock(c CallKind)
	Unlock()
	Now() mono.Time
	// Pump settles, sends what the engine has to send and sees to its next
	// deadline. A provider calls it after anything that may have changed either.
	Pump()
	// Progress takes in what has arrived, without waiting, and settles. It is
	// what makes a program that polls its own driver.
	Progress()
	// Found says that the program has got what it polled for, and now acts on
	// it. What the engine has to send meanwhile may wait for that.
	PollFound()
	// Nothing says that the poll found nothing.
	PollEmpty()
	// Idle is called, not holding the lock, by a poll that found nothing.
	Yield()
	// NewCond returns a place to wait. what is for reports of deadlocks.
	NewCond(what fmt.Stringer) Cond
	// Close ends the driving, not holding the lock. The link is the caller's,
	// and so are the gates: it has notified them, for a driver need not.
	Close()
}

// Gate is where calls wait until something is announced.
type Cond interface {
	// Wait gives the lock up until Notify is called or timeout has passed
	// (never, if it is negative), and reports whether it was notified. Like a
	// condition it may wake for nothing: look again.
	Wait(timeout time.Duration) bool
	// Notify wakes all who wait.
	Notify()
}

// Call says what a provider was asked to do, for those who charge time for it.
type CallKind uint8

// Calls.
const (
	CallControl CallKind = iota // creating, changing, destroying
	CallPost
	CallPoll
	CallWait
)

// Name is a gate's reason to wait that is plain text.
type WaitReason string

// String is the text.
func (n WaitReason) String() string { return string(n) }

// Batch is how many datagrams a driver moves at a time.
const BatchSize = 64

// NewBatch returns datagrams for an engine to fill. The first one's buffer has
// room for all of them if they are of up to mtu bytes, or of a jumbo frame if
// that is less: an engine lays packets one behind the other, so that a link which
// joins them need not gather them, and grows what does not fit.
func NewBatch(mtu int) []link.Datagram {
	const jumbo = 9216
	ds := make([]link.Datagram, BatchSize)
	ds[0].Payload = make([]byte, 0, BatchSize*min(mtu, jumbo))
	return ds
}

// Outbox keeps what an engine has put out until the link takes it.
type SendQueue struct {
	ds         []link.Datagram
	head, tail int
}

// NewSendQueue returns an outbox for packets of up to mtu bytes.
func NewSendQueue(mtu int) SendQueue { return SendQueue{ds: NewBatch(mtu)} }

// NewSmallSendQueue returns an outbox whose packets have buffers of their own, which grow
// as they are needed: where nothing joins packets, and there are many devices.
func NewSmallSendQueue() SendQueue { return SendQueue{ds: make([]link.Datagram, BatchSize)} }

// Limit has it hold no more than n packets: what is in it has its place on the wire.
func (o *SendQueue) SetLimit(n int) { o.ds = o.ds[:max(1, min(n, len(o.ds)))] }

// Flush moves packets from e to l, up to a batch of them after what l did not take the
// last time. It reports whether e may have more, and whether l takes no more.
func (o *SendQueue) Flush(now mono.Time, e Engine, l link.PacketLink) (more, full bool) {
	for {
		fresh := o.head == o.tail
		if fresh {
			o.head, o.tail = 0, e.Output(now, o.ds)
			if o.tail == 0 {
				return false, false
			}
		}
		n, err := l.Send(now, o.ds[o.head:o.tail])
		o.head += n
		switch {
		case err != nil:
			o.head = o.tail // a link that is gone takes everything
			return false, false
		case o.head < o.tail:
			return true, true
		case fresh:
			return o.tail == len(o.ds), false
		}
	}
}
