// Package drive runs a protocol engine on a link: it owns the clock, the lock, the
// goroutines and the calls of the link, so that engines need none of them. Real and
// RealStreams are drivers in real time; package sim has those of simulated
// worlds. Providers use a driver through the interfaces Driver and StreamDriver.
package drive

import (
	"fmt"
	"time"

	"github.com/fabrictest/fabrictest/emu/link"
	"github.com/fabrictest/fabrictest/emu/mono"
)

// Engine is a protocol engine on a packet link. The driver calls it under its lock.
type Engine interface {
	// Input processes a received datagram.
	Input(now mono.Time, d *link.Datagram)
	// Settle delivers the events and completions that inputs and calls have caused.
	Settle(now mono.Time)
	// Output fills ds with datagrams to send and returns their number. Fewer than
	// len(ds) means that there are no more. It writes payloads to the buffers in ds,
	// those of a NewBatch back to back.
	Output(now mono.Time, ds []link.Datagram) int
	// Tick handles the timers that have expired by now.
	Tick(now mono.Time)
	// Deadline is when Tick must be called next.
	Deadline() mono.Time
}

// DelayingEngine is an Engine that may delay packets, such as ACKs, to send fewer of them.
type DelayingEngine interface {
	Engine
	// Release makes Output return delayed packets, and reports whether there are
	// any. Deadlines may then be later.
	Release() bool
	// StrictDeadline is Deadline without the timers that may be a millisecond late.
	// For a sleep of microseconds the kernel sets and cancels a hardware timer, which
	// takes longer than most packets do.
	StrictDeadline() mono.Time
}

// InPlaceEngine is an Engine that can build packets in the memory of a link.InPlaceLink.
type InPlaceEngine interface {
	Engine
	// BuildInPlace makes Output lay out all packets, in any buffer, as such a link demands. It returns
	// the length of the longest packet, or 0 if the engine cannot.
	BuildInPlace() (maxLen int)
}

// Driver drives an engine for a provider. Methods are called with the lock held
// unless they say otherwise.
//
// A verb is Lock, the work, Pump, Unlock. A poll is
//
//	Lock(CallPoll)
//	poll the CQ; if it has a completion: Unlock, done
//	Progress
//	poll the CQ again
//	PollFound if it has a completion now, else PollEmpty
//	Unlock
//	Yield if it had none
//
// PollFound or PollEmpty must follow Progress under the same lock: received packets
// may have to be acknowledged. (The steps are not one method with a function that
// polls the CQ, which would be allocated at every poll.)
type Driver interface {
	// Lock enters the device; the caller does not hold the lock. In a simulated
	// world Lock takes the virtual time that the call costs, and other programs run.
	Lock(c CallKind)
	Unlock()
	Now() mono.Time
	// Pump settles the engine, sends its packets and schedules its next deadline. A
	// provider calls it after every call of the engine that may change either.
	Pump()
	// Progress passes received packets to the engine without blocking, and settles.
	Progress()
	// PollFound says that the application's poll returned a completion. Packets may
	// wait for the application's answer.
	PollFound()
	// PollEmpty says that the poll returned nothing.
	PollEmpty()
	// Yield follows a poll that returned nothing; the caller does not hold the lock.
	// It yields the processor now and then.
	Yield()
	// NewCond returns a condition variable. Reports of deadlocks print reason.
	NewCond(reason fmt.Stringer) Cond
	// Close stops the driver; the caller does not hold the lock. The caller notifies
	// the conditions before, and closes the link afterwards.
	Close()
}

// Placer is a Driver that can delay the writes of the device to memory.
type Placer interface {
	// Placement reports whether it does, whether it places pieces of 64 bytes on their own, and whether
	// atomics overtake writes.
	Placement() (relaxed, pieces, atomicsOvertake bool)
	// Place calls write, which writes n bytes, later, after or before other writes.
	Place(n int, write func())
	// PlaceAll calls all of them that it has not called yet.
	PlaceAll()
}

// Cond is a condition variable of the driver's lock.
type Cond interface {
	// Wait releases the lock until Notify is called or timeout has passed; a negative
	// timeout never does. It reports whether Notify was called. It may return
	// early: check the condition again.
	Wait(timeout time.Duration) bool
	// Notify wakes all waiters.
	Notify()
}

// CallKind is a kind of verb call. Simulated drivers charge a time for each.
type CallKind uint8

// Kinds of calls.
const (
	CallControl CallKind = iota // creates, changes or destroys an object
	CallPost
	CallPoll
	CallWait // waits for or queries something, which takes no simulated time
)

// ByteCosts is a Driver in which operations take a time that depends on their size. The caller does
// not hold the lock.
type ByteCosts interface{ SpendBytes(what ByteCost, n int) }

// ByteCost is an operation whose time depends on a number of bytes.
type ByteCost uint8

// The operations with such a time.
const (
	Inline         ByteCost = iota // writes the data of a short work request to the NIC
	Registration                   // registers memory
	Deregistration                 // deregisters memory
)

// WaitReason is a text for NewCond.
type WaitReason string

// String returns the text.
func (r WaitReason) String() string { return string(r) }

// BatchSize is how many datagrams a driver moves at a time.
const BatchSize = 64

// NewBatch returns BatchSize datagrams, which an engine fills with packets for a link to send. They
// share one buffer, in which the packets follow each other, so that a link with segmentation offload
// (GSO) can send them as one. It has room for BatchSize packets of mtu bytes, at most of jumbo frames.
func NewBatch(mtu int) []link.Datagram {
	const jumbo = 9216
	ds := make([]link.Datagram, BatchSize)
	ds[0].Payload = make([]byte, 0, BatchSize*min(mtu, jumbo))
	return ds
}

// Batches are batches of datagrams that send queues share. Each datagram has a buffer, which grows on
// demand.
type Batches struct{ free [][]link.Datagram }

// get returns a batch that no queue has.
func (b *Batches) get() []link.Datagram {
	n := len(b.free)
	if n == 0 {
		return make([]link.Datagram, BatchSize)
	}
	ds := b.free[n-1]
	b.free = b.free[:n-1]
	return ds
}

// put returns a batch whose first used datagrams have been sent. Of those only the buffers stay.
func (b *Batches) put(ds []link.Datagram, used int) {
	for i := range ds[:used] {
		ds[i] = link.Datagram{Payload: ds[i].Payload[:0]}
	}
	b.free = append(b.free, ds)
}

// SendQueue holds datagrams of an engine until the link takes them.
type SendQueue struct {
	ds         []link.Datagram // nil while a queue with shared batches is empty
	shared     *Batches        // nil for a queue with a batch of its own
	limit      int             // datagrams of a shared batch that the queue uses
	head, tail int
	more       bool // the last batch was full: there may be more
	place      placement
}

// NewSendQueue returns a queue for packets of up to mtu bytes.
func NewSendQueue(mtu int) SendQueue { return SendQueue{ds: NewBatch(mtu)} }

// newQueueFor returns a queue between an engine and a link. The engine builds packets in the memory
// of the link if both can.
func newQueueFor(e Engine, l link.PacketLink) SendQueue {
	to, ok := l.(link.InPlaceLink)
	from, can := e.(InPlaceEngine)
	if ok && can {
		if maxLen := from.BuildInPlace(); maxLen > 0 {
			q := NewSendQueue(max(l.MTU(), link.PlaceAfter(maxLen)))
			q.place = placement{link: to, maxLen: maxLen, own: q.ds[0].Payload}
			return q
		}
	}
	return NewSendQueue(l.MTU())
}

// placement decides where an engine builds packets: in the memory of a link, or in a buffer of the
// queue if the link has no room. After a batch with long packets, the next batch has few packets,
// so that the peer receives the first while the engine builds others.
type placement struct {
	link   link.InPlaceLink // nil if packets are never built in place
	maxLen int
	own    []byte
	long   bool // the last batch had long packets
}

const (
	// longPacket is the mean length from which the packets of a batch count as long, and longBatch
	// the number of long packets that are built at a time.
	longPacket = 1024
	longBatch  = 8
)

// batch returns the datagrams of ds that the engine may fill: few if the last batch had long
// packets. It makes the payload of the first the buffer for the packets of all: memory of the link
// if that has room for a packet, else p.own. With p.link nil it changes nothing.
func (p *placement) batch(ds []link.Datagram) []link.Datagram {
	if p.link == nil {
		return ds
	}
	n := len(ds)
	if p.long {
		n = min(n, longBatch)
	}
	b := p.link.SendBuffer(n, p.maxLen)
	fit := (len(b) + link.PlaceAfter(0)) / link.PlaceAfter(p.maxLen)
	if fit == 0 {
		ds[0].Payload = p.own
		return ds[:n]
	}
	ds[0].Payload = b[:0]
	return ds[:min(n, fit)]
}

// built records whether the packets of the batch ds, which the engine has just built, are long: the
// next batch then has at most longBatch packets. It estimates their mean length by that of the
// first and the last.
func (p *placement) built(ds []link.Datagram) {
	if p.link != nil && len(ds) > 0 {
		first, last := ds[0].Payload, ds[len(ds)-1].Payload
		p.long = (len(first)+len(last))/2 >= longPacket
	}
}

// NewSharedSendQueue returns a queue that takes a batch from those shared while it is not empty. It
// takes less memory, and serves links without segmentation offload. All queues that share batches
// must be used by one goroutine.
func NewSharedSendQueue(shared *Batches) SendQueue {
	return SendQueue{shared: shared, limit: BatchSize}
}

// SetLimit bounds a queue with shared batches to n packets, at least 1 and at most BatchSize.
func (q *SendQueue) SetLimit(n int) { q.limit = max(1, min(n, BatchSize)) }

// borrow takes a shared batch for an empty queue.
func (q *SendQueue) borrow() {
	if q.shared != nil {
		q.ds = q.shared.get()[:q.limit]
	}
}

// release returns the batch of an empty queue to those shared.
func (q *SendQueue) release() {
	if q.shared != nil {
		q.shared.put(q.ds[:BatchSize], q.tail)
		q.ds, q.head, q.tail = nil, 0, 0
	}
}

// Flush sends the datagrams that l did not take the last time, and then up to a batch
// of e's output. It reports whether there may be more to send, and whether l is full. It drops
// the datagrams if l is closed.
func (q *SendQueue) Flush(now mono.Time, e Engine, l link.PacketLink) (more, full bool) {
	for {
		empty := q.head == q.tail
		if empty {
			q.borrow()
			batch := q.place.batch(q.ds)
			q.head, q.tail, q.more = 0, e.Output(now, batch), false
			if q.tail == 0 {
				q.release()
				return false, false
			}
			q.more = q.tail == len(batch)
			q.place.built(batch[:q.tail])
		}
		n, err := l.Send(now, q.ds[q.head:q.tail])
		q.head += n
		switch {
		case err != nil:
			q.head = q.tail // the link is closed: drop the packets
			q.release()
			return false, false
		case q.head < q.tail:
			return true, true
		}
		q.release()
		if empty {
			return q.more, false
		}
	}
}
