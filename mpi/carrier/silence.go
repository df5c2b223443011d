package carrier

import (
	"errors"
	"fmt"
	"time"
)

// A rank that waits for a peer that is gone, or cut off, would wait for ever: nobody
// tells it. So every now and then it looks which of those that it waits for have been
// silent for a while, and asks whether they are there. That others are not silent says
// nothing: they may be asking themselves. A NIC answers for a program that is busy;
// where it does not, a peer has some time to answer itself.

var errGone = errors.New("its program has ended")

// listen looks after peers that are silent.
func (c *Carrier) listen() {
	now := c.Now()
	if now < c.nextLook() {
		return
	}
	c.looked = now
	c.suspectRails(now)
	c.up.EachAwaitedPeer(func(rank int) {
		if rank == c.env.Rank {
			return
		}
		p := c.peer(rank)
		switch {
		case p.lost != nil:
		case c.env.Control.Gone(rank):
			c.lose(p, errGone)
		case p.beside == nil && now-p.heard >= c.cfg.KeepaliveIdle:
			c.ask(p)
		}
	})
}

// ask asks a peer whether it is there.
func (c *Carrier) ask(p *peer) {
	if p.pings++; p.pings > 1 {
		c.tryAnotherRail(p)
	}
	dg := c.datagrams(p)
	connected := false
	for _, k := range p.conns {
		if k == nil || k.state == failed {
			continue
		}
		connected = true
		if k.state == open && k.free > spare && k.under == 0 && k.canSettle() {
			c.leaveBy(p, k, ping, nil, nil)
		}
		if p.lost != nil {
			return
		}
	}
	switch {
	case connected && dg != nil: // the NIC tells if it is not
		return
	case dg != nil && dg.reliable:
		if dg.free > 0 {
			c.leaveBy(p, dg, ping, nil, nil)
		}
		return
	case dg != nil && dg.free > 0:
		c.leaveBy(p, dg, ping, nil, nil)
	case dg == nil && !connected:
		c.wantConnections(p)
	}
	// Time in which this rank was not scheduled is not silence of the peer: probes count.
	if silent := time.Duration(p.pings-1) * c.cfg.KeepaliveIdle; silent > c.cfg.PeerTimeout {
		c.lose(p, fmt.Errorf("it has not answered %d probes in at least %v (%s)", p.pings, silent.Round(time.Millisecond), p.describe()))
	}
}

// noteStall notes that Progress was not called for long: the program was busy, or the
// process was not scheduled. What waits on a rail has then waited for this rank.
func (c *Carrier) noteStall() {
	now := c.Now()
	if now-c.progressed > 2*c.cfg.KeepaliveIdle {
		c.resumed = now
	}
	c.progressed = now
}

// nextLook is when silence may have become suspicious.
func (c *Carrier) nextLook() time.Duration { return c.looked + c.cfg.KeepaliveIdle }

// describe says how it stands with a peer, for who has to find out why it is silent.
func (p *peer) describe() string {
	text := fmt.Sprintf("%d words wait", len(p.queue))
	for i, k := range p.conns {
		if k != nil {
			text += fmt.Sprintf("; connection %d on rail %d is %v, with %d credits and %d requests under way", k.number, i, k.state, k.credits, k.under)
		}
	}
	return text
}
