package carrier

import (
	"errors"
	"fmt"
	"time"
)

// A rank that waits for a dead or unreachable peer gets no error from the network.
// Therefore it probes awaited peers that are silent. A NIC acknowledges probes for a busy
// program; other peers have PeerTimeout to answer.

var errGone = errors.New("the program of the peer has ended")

// keepalive is when the rank has checked its peers, and when it could.
type keepalive struct {
	lastCheck    time.Duration // of silent peers
	lastProgress time.Duration // when Progress was last called
	stalledUntil time.Duration // when Progress was last called after a long pause
}

// progressed notes a call of Progress. After a pause of more than two KeepaliveIdle (idle),
// requests on a rail have waited for this rank, not for the peer.
func (k *keepalive) progressed(now, idle time.Duration) {
	if now-k.lastProgress > 2*idle {
		k.stalledUntil = now
	}
	k.lastProgress = now
}

// next is when silent peers are checked next.
func (k *keepalive) next(idle time.Duration) time.Duration { return k.lastCheck + idle }

// checkSilentPeers probes awaited peers from which nothing has arrived for KeepaliveIdle.
func (c *Carrier) checkSilentPeers() {
	now := c.Now()
	if now < c.keepalive.next(c.cfg.KeepaliveIdle) {
		return
	}
	c.keepalive.lastCheck = now
	c.checkRails(now)
	c.up.EachAwaitedPeer(func(rank int) {
		if rank == c.env.Rank {
			return
		}
		p := c.peer(rank)
		switch {
		case p.lost != nil:
		case c.env.Control.Gone(rank):
			c.losePeer(p, errGone)
		case p.shm == nil && now-p.lastHeard >= c.cfg.KeepaliveIdle:
			c.probe(p)
		}
	})
}

// probe sends a keepalive probe, or declares the peer lost after PeerTimeout.
func (c *Carrier) probe(p *peer) {
	if p.probes++; p.probes > 1 {
		c.switchRail(p)
	}
	dg := c.datagrams(p)
	connected := false
	for k := range p.eachConn {
		if k.state == failed {
			continue
		}
		connected = true
		if k.canProbe() && k.Outstanding() == 0 {
			c.sendOn(p, k, probe, nil, nil)
		}
		if p.lost != nil {
			return
		}
	}
	switch {
	case connected && dg != nil: // the NIC reports an unreachable peer
		return
	case dg != nil && dg.Reliable:
		if dg.Free() > 0 {
			c.sendOn(p, dg, probe, nil, nil)
		}
		return
	case dg != nil && dg.Free() > 0:
		c.sendOn(p, dg, probe, nil, nil)
	case dg == nil && !connected:
		c.startMissingConns(p)
	}
	// Unanswered probes count, not time: this rank may not have been scheduled.
	if silent := time.Duration(p.probes-1) * c.cfg.KeepaliveIdle; silent > c.cfg.PeerTimeout {
		c.losePeer(p, fmt.Errorf("no answer to %d probes in at least %v (%s)", p.probes, silent.Round(time.Millisecond), p.describe()))
	}
}

// describe returns the queues and connections of a peer for an error message.
func (p *peer) describe() string {
	text := fmt.Sprintf("%d messages queued", len(p.queue))
	for k := range p.eachConn {
		text += fmt.Sprintf("; connection %d on rail %d is %v, with %d credits and %d requests outstanding",
			k.cm.generation, k.rail.Num, k.state, k.credits.available, k.Outstanding())
	}
	return text
}
