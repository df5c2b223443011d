package rd

import (
	"github.com/fabrictest/fabrictest/emu/dgiwarp/wire"
	"github.com/fabrictest/fabrictest/emu/mono"
)

// EventKind is what Next reports.
type EventKind uint8

// The kinds.
const (
	// EventBegins says that the next segment from Peer begins a flow: whatever of
	// the last one has not come will not come, and numbers begin anew. It also
	// is the first that the owner hears of a peer to which it has not sent.
	EventBegins EventKind = iota + 1
	// EventSegment is the next segment from Peer, in Segment: Accept or Defer it.
	EventSegment
	// EventAcked says that the oldest Acked segments to Peer have arrived, and
	// that their payload is the owner's again.
	EventAcked
	// EventFailed says that the flow to Peer has ended, and why in Err. All that
	// waited for acknowledgement is the owner's again, and nobody knows what of it
	// arrived.
	EventFailed
	// EventGone says that Peer has been forgotten.
	EventGone
)

// Event is something that the owner of a layer must know.
type Event struct {
	Kind    EventKind
	Peer    *Peer
	Segment []byte // borrowed until the next call of Next
	Acked   int
	Err     error
}

// Next returns the next event. A segment that is neither accepted nor deferred
// before the following call counts as deferred.
func (l *Layer) Next(now mono.Time) (Event, bool) {
	l.Defer(now)
	for p, ok := l.notices.Pop(); ok; p, ok = l.notices.Pop() {
		p.set(flagNoticed, false)
		if e, ok := p.news(); ok {
			l.notice(p) // there may be more
			return e, true
		}
	}
	if p := l.arrival.peer; p != nil {
		l.offered = p
		return Event{Kind: EventSegment, Peer: p, Segment: l.arrival.segment}, true
	}
	for p, ok := l.ready.Pop(); ok; p, ok = l.ready.Pop() {
		if p.nextStored() && !p.has(flagBlocked) {
			l.offered = p
			return Event{Kind: EventSegment, Peer: p, Segment: p.stored.buf}, true
		}
	}
	return Event{}, false
}

// news is what there is to report of p besides segments.
func (p *Peer) news() (Event, bool) {
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

// nextStored reports whether the segment that is next in the flow is stored.
func (p *Peer) nextStored() bool { return p.stored != nil && p.stored.seq == p.rcvNext }

// Accept takes the segment that Next has shown. It will be acknowledged.
func (l *Layer) Accept(now mono.Time) {
	p := l.offered
	if p == nil {
		return
	}
	l.offered = nil
	l.blocked.remove(p)
	flags := wire.FlagAckNow
	if l.arrival.peer == p {
		flags = l.arrival.flags
		l.arrival = arrival{}
	} else {
		l.unstore(p)
	}
	p.taken(now, flags)
	if p.nextStored() {
		l.ready.Push(p)
	}
	l.timers.sooner(p)
}

// Defer leaves the segment that Next has shown for later: there is no receive
// for it. Its sender is told to wait, until Resume or until it asks again.
func (l *Layer) Defer(now mono.Time) {
	p := l.offered
	if p == nil {
		return
	}
	l.offered = nil
	l.Count.Busy++
	if l.arrival.peer == p {
		l.arrival = arrival{}
	}
	l.blocked.add(p)
	p.ackNow()
}

// Resume tells up to n peers of a queue pair that were deferred, those that have
// waited longest first, that it has receives again. Not all of them, lest
// thousands send what only one receive waits for. It reports how many it told, and
// whether there are more.
func (l *Layer) Resume(local uint32, n int) (told int, more bool) {
	for p := l.blocked.first; p != nil; {
		follow := p.follow
		if p.Key.Local == local {
			if told == n {
				return told, true
			}
			told++
			l.blocked.remove(p)
			if p.nextStored() {
				l.ready.Push(p)
			}
			p.ackNow()
		}
		p = follow
	}
	return told, false
}

// blockedList holds the peers whose next segment was deferred, in that order.
type blockedList struct{ first, last *Peer }

func (b *blockedList) add(p *Peer) {
	if p.has(flagBlocked) {
		return
	}
	p.set(flagBlocked, true)
	p.prev = b.last
	if b.last == nil {
		b.first = p
	} else {
		b.last.follow = p
	}
	b.last = p
}

func (b *blockedList) remove(p *Peer) {
	if !p.has(flagBlocked) {
		return
	}
	p.set(flagBlocked, false)
	if p.prev == nil {
		b.first = p.follow
	} else {
		p.prev.follow = p.follow
	}
	if p.follow == nil {
		b.last = p.prev
	} else {
		p.follow.prev = p.prev
	}
	p.prev, p.follow = nil, nil
}
