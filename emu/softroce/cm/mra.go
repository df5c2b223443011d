package cm

import "github.com/fabrictest/fabrictest/emu/softroce/wire"

// sendMRA sends an MRA because the peer has retransmitted its REQ or REP: the consumer has not
// answered that yet.
func (a *Agent) sendMRA(c *conn) {
	mra := wire.MRA{LocalCommID: uint32(c.id), RemoteCommID: c.peer.id, About: wire.AboutREQ, ServiceTimeout: a.cfg.MRATimeout}
	next := StateMRAREQSent
	if c.state == StateREPRcvd {
		mra.About, next = wire.AboutREP, StateMRAREPSent
	}
	c.storeMessage(wire.AttrMRA, c.tid, &mra)
	a.transmit(c)
	c.state = next
}

// handleMRA extends the response timer. A second MRA for the same message does not,
// so that a peer cannot extend it forever.
func (a *Agent) handleMRA(in *incoming, m *wire.MRA) {
	c := a.conns[ConnID(m.RemoteCommID)]
	// The sender of a REQ does not know the peer's ID yet.
	if c == nil || c.isSIDR() || m.About != wire.AboutREQ && c.peer.id != m.LocalCommID {
		a.counters.UnknownConn++
		return
	}
	if c.madRoute.Remote != in.from {
		a.counters.BadSource++
		return
	}
	switch {
	case m.About == wire.AboutREQ && c.state == StateREQSent:
		c.state = StateMRAREQRcvd
	case m.About == wire.AboutREP && c.state == StateREPSent:
		c.state = StateMRAREPRcvd
	case m.About == wire.AboutREQ && c.state == StateMRAREQRcvd, m.About == wire.AboutREP && c.state == StateMRAREPRcvd:
		a.counters.Duplicates.count(wire.AttrMRA)
		return
	default:
		a.counters.WrongState++
		return
	}
	a.armTimer(c, in.now.Add(a.cfg.peerTimeout(m.ServiceTimeout)+c.packetLifetime))
	a.notify(c, Event{Kind: EventMRA, ServiceTimeout: m.ServiceTimeout, PrivateData: m.PrivateData[:]})
}
