package rd

import (
	"github.com/fabrictest/fabrictest/emu/dgiwarp/wire"
	"github.com/fabrictest/fabrictest/emu/mono"
)

// EventKind is the kind of an Event.
type EventKind uint8

// The kinds.
const (
	// EventBegins: the next segment from Peer begins a new flow, and sequence numbers restart.
	// Missing segments of the previous flow will not arrive. It is the first event of a peer
	// that was not sent to.
	EventBegins EventKind = iota + 1
	// EventSegment: Segment is the next from Peer. The owner must call Accept or Defer.
	EventSegment
	// EventAcked: the oldest Acked segments to Peer arrived. Their payload is no longer used.
	EventAcked
	// EventFailed: the flow to Peer has ended because of Err. The payload of all segments is
	// no longer used; it is unknown which unacknowledged segments have arrived.
	EventFailed
	// EventGone: Peer has been removed.
	EventGone
)

// Event is an event for the owner of a layer.
type Event struct {
	Kind    EventKind
	Peer    *Peer
	Segment []byte // borrowed until the next call of Next
	Acked   int
	Err     error
}

// Next returns the next event, false if there is none: first acknowledgements, failures, removals
// and new flows, then the segment that has just arrived, then stored segments that are next in
// their flow. A segment not accepted before the following call is deferred.
func (l *Layer) Next() (Event, bool) {
	l.Defer()
	for p, ok := l.notices.Pop(); ok; p, ok = l.notices.Pop() {
		p.set(flagEventQueued, false)
		if e, ok := p.nextEvent(); ok {
			l.queueEvent(p) // there may be more
			return e, true
		}
	}
	if p := l.arrival.peer; p != nil {
		l.offered = p
		return Event{Kind: EventSegment, Peer: p, Segment: l.arrival.segment}, true
	}
	for p, ok := l.ready.Pop(); ok; p, ok = l.ready.Pop() {
		if p.recv.nextStored() && !p.has(flagBlocked) {
			l.offered = p
			return Event{Kind: EventSegment, Peer: p, Segment: p.recv.stored.buf}, true
		}
	}
	return Event{}, false
}

// nextEvent returns p's next event: segments acked, a failure, the removal of p, or a new flow. It
// returns false if there is none.
func (p *Peer) nextEvent() (Event, bool) {
	e := Event{Peer: p}
	switch {
	case p.acked > 0:
		e.Kind, e.Acked = EventAcked, int(p.acked)
		p.acked = 0
	case p.err != nil:
		e.Kind, e.Err = EventFailed, p.err
		if p.Gone() {
			e.Kind = EventGone
		}
		p.err = nil
	case p.has(flagBegins) && !p.Gone():
		e.Kind = EventBegins
		p.set(flagBegins, false)
	default:
		return e, false
	}
	return e, true
}

// nextStored reports whether the next segment of the flow is in the store.
func (f *recvFlow) nextStored() bool { return f.stored != nil && f.stored.seq == f.next }

// Accept accepts the segment that Next returned, which is then acknowledged.
func (l *Layer) Accept(now mono.Time) {
	p := l.offered
	if p == nil {
		return
	}
	l.offered = nil
	l.blocked.remove(p)
	flags := wire.FlagAckNow // of a stored segment, whose own flags are not kept
	if l.arrival.peer == p {
		flags = l.arrival.flags
		l.arrival = arrival{}
	} else {
		l.unstore(p)
	}
	p.segmentAccepted(now, flags)
	if p.recv.nextStored() {
		l.ready.Push(p)
	}
	l.timers.SetIfEarlier(&p.timer, p.deadline())
}

// Defer refuses the segment that Next returned, because no receive is posted, and sends window 0 to
// the peer. A stored segment stays; any other the peer retransmits after Resume, or as a probe.
func (l *Layer) Defer() {
	p := l.offered
	if p == nil {
		return
	}
	l.offered = nil
	l.Count.Busy++
	if l.arrival.peer == p {
		l.arrival = arrival{} // not stored: the sender retransmits it
	}
	l.blocked.add(p)
	p.ackNow()
}

// Resume tells up to n deferred peers of a queue pair, longest waiting first, by an acknowledgement
// that receives are posted again. Without the limit, thousands of peers would send for one receive.
// Resume returns the number of resumed peers, and whether there are more.
func (l *Layer) Resume(local uint32, n int) (resumed int, more bool) {
	for p := l.blocked.first; p != nil; {
		next := p.nextBlocked
		if p.Key.LocalQP == local {
			if resumed == n {
				return resumed, true
			}
			resumed++
			l.blocked.remove(p)
			if p.recv.nextStored() {
				l.ready.Push(p)
			}
			p.ackNow()
		}
		p = next
	}
	return resumed, false
}

// blockedList is the list of peers whose next segment was deferred, oldest first.
type blockedList struct{ first, last *Peer }

// add appends a peer, unless it is in the list.
func (b *blockedList) add(p *Peer) {
	if p.has(flagBlocked) {
		return
	}
	p.set(flagBlocked, true)
	p.prevBlocked = b.last
	if b.last == nil {
		b.first = p
	} else {
		b.last.nextBlocked = p
	}
	b.last = p
}

// remove removes a peer from the list of peers whose next segment was deferred, if it is in the
// list.
func (b *blockedList) remove(p *Peer) {
	if !p.has(flagBlocked) {
		return
	}
	p.set(flagBlocked, false)
	if p.prevBlocked == nil {
		b.first = p.nextBlocked
	} else {
		p.prevBlocked.nextBlocked = p.nextBlocked
	}
	if p.nextBlocked == nil {
		b.last = p.prevBlocked
	} else {
		p.nextBlocked.prevBlocked = p.prevBlocked
	}
	p.prevBlocked, p.nextBlocked = nil, nil
}
