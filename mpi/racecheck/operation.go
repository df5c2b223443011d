package racecheck

import "github.com/fabrictest/fabrictest/explore"

// Op is an operation that owns buffers of its rank until it is complete there, and a part of a window until
// it is complete at the target.
type Op struct {
	place   explore.Place
	start   clock
	buffers []*access
	remote  *access // nil if it has none
	reads   bool    // the operation only reads the window
	window  *window
	target  int // rank of the window
	origin  int // rank of the window

	message    *Message // that a receive has matched
	sync       *Message // of a synchronous send
	collective *collective
	participant
}

// startBuffers starts an operation on buffers of a rank, whose event has begun.
func (c *Checker) startBuffers(p explore.Place, reads, writes [][]byte) *Op {
	o := &Op{place: p, start: c.snapshot(p.Rank)}
	o.addBuffers(c, Load, reads)
	o.addBuffers(c, Store, writes)
	return o
}

// addBuffers adds the buffers that an operation reads or writes.
func (o *Op) addBuffers(c *Checker, kind Kind, buffers [][]byte) {
	for _, mem := range buffers {
		if len(mem) == 0 {
			continue
		}
		a := newAccess(o.place, kind, mem, o.start)
		a.isBuffer = true
		o.buffers = append(o.buffers, a)
		c.addLocal(a)
	}
}

// completeAtOrigin records that the origin has completed an operation at an epoch. Data that has been
// fetched has been read at the target, too.
func (o *Op) completeAtOrigin(at epoch) {
	for _, a := range o.buffers {
		if a.done.at == 0 {
			a.done = at
		}
	}
	if o.remote != nil && o.reads {
		o.completeAtTarget(at)
	}
}

// completeAtTarget records that an operation is complete at its target.
func (o *Op) completeAtTarget(at epoch) {
	if o.remote != nil && o.remote.done.at == 0 {
		o.remote.done = at
	}
}

// Done records that a rank knows of the completion of an operation at this rank: a blocking call has
// returned, or a request was found complete. What it waited for is ordered before what follows.
func (c *Checker) Done(p explore.Place, o *Op) {
	c.begin(p)
	r := &c.ranks[p.Rank]
	if o.message != nil {
		r.clock.join(o.message.sent)
	}
	if o.sync != nil {
		r.clock.join(o.sync.received)
	}
	if o.collective != nil {
		c.endCollective(p.Rank, o)
	}
	o.completeAtOrigin(epoch{p.Rank, r.clock[p.Rank]})
}

// Failed removes an operation that was not started.
func (c *Checker) Failed(o *Op) {
	at := epoch{o.place.Rank, c.ranks[o.place.Rank].clock[o.place.Rank]}
	o.completeAtTarget(at)
	o.completeAtOrigin(at)
}
