package misuse

import (
	"fmt"
	"slices"

	"github.com/fabrictest/fabrictest/explore"
)

// Any is the source or the tag of a receive that takes any.
const Any = -1

// Mode is the mode of a send.
type Mode uint8

// The modes of sends.
const (
	Standard Mode = iota
	Synchronous
	Ready
	Buffered
)

// opKind is the kind of an operation that a rank can wait for.
type opKind uint8

const (
	sendOp opKind = iota
	recvOp
	probeOp
	collectiveOp
	lockOp
	postOp     // Complete, or an operation after Start, waits for Post
	completeOp // Wait waits for Complete
	otherOp    // completes by itself
)

// Message has the arguments of a send, a receive or a probe. Peer is a world rank or Any.
type Message struct {
	Comm      *Comm
	Peer, Tag int
	Bytes     int
	Mode      Mode
	Place     explore.Place
	// Poll returns the result of the operation, if it is complete.
	Poll func() (Result, bool)
}

// Result is the result of a complete send or receive.
type Result struct {
	Source, Tag, Size int
	Cancelled         bool
	Failed            bool
}

// Op is an operation: a message, or a collective or a window call that others must match.
type Op struct {
	Message
	rank    *Rank
	kind    opKind
	done    bool
	partner *Op // of a receive that has completed: the send
	clock   []uint32
	// completedAt is the clock of the rank after the completion, which calls that happen after it know.
	completedAt uint32
	call        *Call // of a collective
	index       int   // of a collective: in the calls of its communicator
	win         *Window
	target      int // of a window call
	group       []int
}

// Send records the start of a send.
func (r *Rank) Send(m Message) *Op {
	o := r.newOp(sendOp, m)
	if m.Mode == Ready && !slices.ContainsFunc(r.c.receives[m.Peer], func(p *Op) bool { return matches(p, o) }) {
		r.c.report(NotReady, fmt.Sprintf("rank %d has not posted a receive", m.Peer), m.Place)
	}
	r.c.sends[m.Peer] = append(r.c.sends[m.Peer], o)
	r.lookBack(o)
	return o
}

// Recv records that a receive is posted.
func (r *Rank) Recv(m Message) *Op {
	o := r.newOp(recvOp, m)
	r.c.receives[r.rank] = append(r.c.receives[r.rank], o)
	return o
}

// Probe returns the operation of a probe, to wait for.
func (r *Rank) Probe(m Message) *Op { return &Op{Message: m, rank: r, kind: probeOp} }

// newOp returns a message of the rank.
func (r *Rank) newOp(kind opKind, m Message) *Op {
	r.tick()
	return &Op{Message: m, rank: r, kind: kind, clock: slices.Clone(r.clock)}
}

// Complete records that a send or a receive is complete, and its request finished.
func (r *Rank) Complete(o *Op, x Result) {
	r.c.complete(o, x)
	if p := o.partner; p != nil && r.clock != nil {
		r.join(p.clock)
		r.clock[r.rank]++
		o.completedAt = r.clock[r.rank]
	}
}

// BufferChanged reports that the program wrote to the buffer of a pending send.
func (r *Rank) BufferChanged(o *Op, completed explore.Place) {
	r.c.report(BufferChange, "the program wrote to the buffer of a send that was not complete", o.Place, completed)
}

// complete notes the result of an operation once.
func (c *Checker) complete(o *Op, x Result) {
	if o.done {
		return
	}
	o.done = true
	if o.kind != recvOp {
		return
	}
	c.receives[o.rank.rank] = remove(c.receives[o.rank.rank], o)
	if x.Cancelled || x.Failed {
		return
	}
	s := c.take(o.rank.rank, o.Comm.id, x.Source, x.Tag)
	o.partner = s
	if s == nil {
		return
	}
	if x.Size > o.Bytes {
		c.report(Truncated, fmt.Sprintf("the message of rank %d has %d bytes, the buffer %d", x.Source, x.Size, o.Bytes), s.Place, o.Place)
	}
	if o.Peer == Any || o.Tag == Any {
		if o.rank.clock == nil && len(o.rank.took) == maxTook {
			o.rank.took = o.rank.took[1:]
		}
		o.rank.took = append(o.rank.took, o)
		o.rank.wildcardMatched(o)
	}
}

// maxTook limits the completed receives from any source that are kept to explain a deadlock.
const maxTook = 64

// take removes the first send with an envelope, which a receive has matched, and returns it.
func (c *Checker) take(to int, id CommID, source, tag int) *Op {
	for i, s := range c.sends[to] {
		if s.Comm.id == id && s.rank.rank == source && s.Tag == tag {
			c.sends[to] = slices.Delete(c.sends[to], i, i+1)
			return s
		}
	}
	return nil
}

// Matched records that Mprobe has taken a message. Received ends its life.
func (r *Rank) Matched(m Message, source, tag int) *Op {
	o := r.newOp(otherOp, m)
	if o.partner = r.c.take(r.rank, m.Comm.id, source, tag); o.partner != nil {
		r.join(o.partner.clock)
	}
	r.matched = append(r.matched, o)
	return o
}

// Received records that the message of Matched was received into a buffer of n bytes.
func (r *Rank) Received(o *Op, n int, place explore.Place) {
	r.matched = remove(r.matched, o)
	if p := o.partner; p != nil && p.Bytes > n {
		r.c.report(Truncated, fmt.Sprintf("the message of rank %d has %d bytes, the buffer %d", p.rank.rank, p.Bytes, n), p.Place, place)
	}
}

// matches reports whether a receive or a probe matches a send.
func matches(r, s *Op) bool {
	return r.rank.rank == s.Peer && r.Comm.id == s.Comm.id && (r.Peer == Any || r.Peer == s.rank.rank) && (r.Tag == Any || r.Tag == s.Tag)
}

// refresh completes the operations that are complete in the runtime, although the program has not seen
// that.
func (c *Checker) refresh() {
	for _, all := range c.receives {
		for _, o := range slices.Clone(all) {
			if x, done := o.Poll(); done {
				c.complete(o, x)
			}
		}
	}
	for _, all := range c.sends {
		for _, o := range all {
			if !o.done {
				_, o.done = o.Poll()
			}
		}
	}
}

// pairs returns which sends and receives without a known partner match each other: their messages are
// under way.
func (c *Checker) pairs() map[*Op]bool {
	paired := map[*Op]bool{}
	for to, receives := range c.receives {
		for _, r := range receives {
			for _, s := range c.sends[to] {
				if !paired[s] && matches(r, s) {
					paired[s], paired[r] = true, true
					break
				}
			}
		}
	}
	return paired
}

// wildcardMatched reports the other messages that a completed receive could have matched.
func (r *Rank) wildcardMatched(o *Op) {
	for _, s := range r.c.sends[r.rank] {
		r.c.reportRace(o, s)
	}
}

// lookBack reports receives that are complete and could have matched a send that starts now.
func (r *Rank) lookBack(s *Op) {
	for _, o := range r.c.ranks[s.Peer].took {
		r.c.reportRace(o, s)
	}
}

// reportRace reports a race if another message could have matched a receive, because the send does not
// happen after the completion of the receive.
func (c *Checker) reportRace(o, s *Op) {
	p := o.partner
	if !c.o.MessageRaces || !matches(o, s) || s.rank == p.rank || o.completedAt > 0 && s.clock[o.rank.rank] >= o.completedAt {
		return
	}
	c.report(MessageRace, fmt.Sprintf("the receive matched the message of rank %d, and could have matched that of rank %d", p.rank.rank, s.rank.rank), o.Place, p.Place, s.Place)
}

// join makes later calls of the rank happen after what a clock has seen.
func (r *Rank) join(clock []uint32) {
	for i, n := range clock {
		r.clock[i] = max(r.clock[i], n)
	}
}

// remove removes an element from a list.
func remove[T comparable](all []T, x T) []T {
	if i := slices.Index(all, x); i >= 0 {
		return slices.Delete(all, i, i+1)
	}
	return all
}
