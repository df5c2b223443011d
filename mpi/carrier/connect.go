package carrier

import (
	"fmt"

	"github.com/fabrictest/fabrictest/verbs"
)

// Connections are made by words over datagrams where there are such: who wants one
// asks, the other answers, and either can use it when it has heard of the other. If
// both ask at the same time, the question of the lower rank counts.

// connect begins to make a connection.
func (c *Carrier) connect(p *peer, r *rail) error {
	if r.dg == nil {
		return r.calls.call(p)
	}
	if p.rank == c.env.Rank {
		return c.connectSelf(p, r)
	}
	k, err := c.newConn(p, r, asked)
	if err != nil {
		return err
	}
	c.say(p, ask, k.hand().bytes())
	return nil
}

func (k *conn) hand() hand {
	return hand{rail: k.rail.num, qpn: k.qp.QPN(), psn: k.psn(k.c.env.Rank), credits: k.c.cfg.Receives + reserve}
}

// psn is where a rank's packets of the connection begin to be counted.
func (k *conn) psn(rank int) uint32 {
	x := k.c.env.Seed ^ uint64(rank)<<32 ^ uint64(k.peer.rank+k.c.env.Rank)<<8 ^ uint64(k.rail.num)
	x *= 0x9e3779b97f4a7c15
	return uint32(x>>40) & (1<<24 - 1)
}

// say sends a word about connections, which waits for none.
func (c *Carrier) say(p *peer, what kind, body []byte) {
	if dg := c.datagrams(p); len(p.control) == 0 && dg.hasRoom(p, prefixLen+len(body)) {
		c.leaveBy(p, dg, what, nil, body)
		return
	}
	p.control = append(p.control, outgoing{kind: what, data: body})
	c.isBusy(p)
}

// pumpControl lets words about connections leave that had no room.
func (c *Carrier) pumpControl(p *peer) {
	for len(p.control) > 0 && p.lost == nil {
		o := p.control[0]
		dg := c.datagrams(p)
		if !dg.hasRoom(p, prefixLen+len(o.data)) {
			return
		}
		p.control = p.control[1:]
		c.leaveBy(p, dg, o.kind, nil, o.data)
	}
}

// connectionWord takes what a peer says about a connection.
func (c *Carrier) connectionWord(p *peer, what kind, body []byte) error {
	switch what {
	case ready: // that it came is all that it says
		return nil
	case bye, goodbye:
		if len(body) != 1 || int(body[0]) >= len(c.rails) {
			return fmt.Errorf("%w: a farewell on no rail: % x", errMalformed, body)
		}
		if k := p.conns[body[0]]; k != nil {
			k.farewell(what)
		}
		return nil
	}
	h, err := c.parseHand(body)
	if err != nil {
		return err
	}
	if c.rails[h.rail].dg == nil {
		return fmt.Errorf("%w: connections are not made by word on rail %d", errMalformed, h.rail)
	}
	k := p.conns[h.rail]
	if what == answer {
		if k == nil || k.state != asked {
			return fmt.Errorf("%w: an answer to no question", errMalformed)
		}
		if h.qpn == noQP {
			return c.refused(k)
		}
		if err := k.join(h); err != nil {
			k.broke(err)
			return nil
		}
		k.state = open
		c.stats.ConnectionsOpened++
		c.isBusy(p)
		c.leaveBy(p, k, ready, nil, nil)
		return nil
	}
	if k != nil && k.leaving && k.state != failed { // the peer has seen its end
		c.end(k)
		k = nil
	}
	switch {
	case k == nil && c.cfg.Design == Hybrid && c.full():
		c.say(p, answer, hand{rail: h.rail, qpn: noQP}.bytes())
		return nil
	case k == nil:
		if k, err = c.newConn(p, c.rails[h.rail], answered); err != nil {
			return err
		}
	case k.state == asked && p.rank < c.env.Rank: // theirs counts
		k.state = answered
	case k.state == asked: // ours does, and they know
		return nil
	default: // the rail has failed, or there is one
		return nil
	}
	if err := k.join(h); err != nil {
		k.broke(err)
		return nil
	}
	c.stats.ConnectionsOpened++
	c.say(p, answer, k.hand().bytes())
	return nil
}

// How long a NIC waits for an acknowledgement, and how often it retransmits. A peer is lost
// after two seconds or more: a rank on a busy machine may be stalled for one. A NIC waits
// for receives as long as it takes.
const (
	ackTimeout = 16 // 4.096 µs · 2^16
	retries    = 7
	rnrTimer   = 8 // 160 µs
	rnrForever = 7
)

// join connects our end to the peer's.
func (k *conn) join(h hand) error {
	k.credits = h.credits
	return k.rail.join(k.qp, k.peer, h, k.psn(k.c.env.Rank))
}

// join connects a queue pair to one of a peer's.
func (r *rail) join(qp verbs.QP, p *peer, h hand, psn uint32) error {
	reads := min(r.attr.MaxQPRdAtomic, r.attr.MaxQPInitAtomic)
	attr := verbs.QPAttr{
		State: verbs.QPStateRTR, AH: r.address(r.card(p).gid), PathMTU: r.mtu, DestQPN: h.qpn, RQPSN: h.psn,
		MaxDestRdAtomic: reads, MinRNRTimer: rnrTimer,
	}
	mask := verbs.QPAttrState | verbs.QPAttrAV | verbs.QPAttrPathMTU | verbs.QPAttrDestQPN | verbs.QPAttrRQPSN |
		verbs.QPAttrMaxDestRdAtomic | verbs.QPAttrMinRNRTimer
	if err := qp.Modify(attr, mask); err != nil {
		return err
	}
	attr = verbs.QPAttr{
		State: verbs.QPStateRTS, SQPSN: psn, MaxRdAtomic: reads,
		Timeout: ackTimeout, RetryCnt: retries, RNRRetry: rnrForever,
	}
	return qp.Modify(attr, verbs.QPAttrState|verbs.QPAttrSQPSN|verbs.QPAttrMaxQPRdAtomic|
		verbs.QPAttrTimeout|verbs.QPAttrRetryCnt|verbs.QPAttrRNRRetry)
}

// Connections that nobody uses are given back. Who wants to says bye, as the last
// thing on it; the other answers when it has nothing under way there any more. What
// either has to say then makes another.

// giveBackIdle begins to give back what was not used for long. With several rails nothing
// is: a farewell waits for its turn behind what another rail brings, and nobody could tell
// it from a failure.
func (c *Carrier) giveBackIdle() {
	if c.cfg.IdleTimeout == 0 || c.Now()-c.swept < c.cfg.IdleTimeout/2 || len(c.rails) > 1 {
		return
	}
	c.swept = c.Now()
	for _, p := range c.peers {
		if p == nil || p.lost != nil || p.busy {
			continue
		}
		for _, k := range p.conns {
			if k != nil && k.canLeave() && c.Now()-k.used >= c.cfg.IdleTimeout {
				k.leave()
			}
		}
	}
}

// canLeave reports whether nothing is under way on a connection, so that it can be given
// back.
func (k *conn) canLeave() bool { return k.state == open && k.under == 0 && k.hasCredit() }

// leave begins to give it back.
func (k *conn) leave() {
	k.state = closing
	k.c.leaveBy(k.peer, k, bye, nil, []byte{byte(k.rail.num)})
}

// canSettle reports whether a packet can leave that is part of what keeps credits going.
func (k *conn) canSettle() bool { return k.credits > 0 || !k.limited }

func (k *conn) hasCredit() bool { return k.credits > reserve || !k.limited }

// farewell takes a bye or a goodbye.
func (k *conn) farewell(what kind) {
	k.heardBye = true
	switch {
	case k.state == open || k.state == answered:
		k.state = closing
		k.c.isBusy(k.peer)
		k.depart()
	case what == bye && k.rail.limited():
		// Both have said bye, and nobody knows whether his came. The lower rank answers.
		if k.heardBye = k.c.env.Rank < k.peer.rank; k.heardBye {
			k.c.isBusy(k.peer)
			k.depart()
		}
	case what == bye: // both have; the peer may not have heard ours yet
		if k.leaving = true; k.under == 0 {
			k.c.end(k)
		}
	default: // of what we sent only the bye can be under way, and the peer has it
		k.leaving = true
		k.c.end(k)
	}
}

// closed looks whether the peer has closed its end of a connection that lingers. Where
// receives are shared, no completion tells of it.
func (k *conn) closed() {
	if k.lingers && !k.ended && k.manager != nil && k.manager.WaitDisconnect(0) == nil {
		k.c.end(k)
	}
}

// depart says goodbye when nothing else is under way. The connection ends with it.
func (k *conn) depart() {
	if k.state != closing || !k.heardBye || k.leaving || k.under > 0 || !k.canSettle() {
		return
	}
	// A completion on iWARP says that TCP has it: who closes then may cut it off.
	k.leaving, k.lingers = true, k.rail.limited()
	k.c.leaveBy(k.peer, k, goodbye, nil, []byte{byte(k.rail.num)})
}
