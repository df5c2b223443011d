package cm

import (
	"github.com/fabrictest/fabrictest/emu/mono"
	"github.com/fabrictest/fabrictest/emu/softroce/wire"
)

// DelayReply sends an MRA: Accept or ConfirmReply will take up to serviceTimeout,
// a code of 4.096 µs * 2^code. Without this call, the agent sends an MRA when the
// peer retransmits.
func (a *Agent) DelayReply(now mono.Time, id ConnID, serviceTimeout uint8) error {
	c, err := a.lookUp("delay reply of", id, StateREQRcvd, StateREPRcvd)
	if err != nil {
		return err
	}
	if serviceTimeout >= 1<<5 {
		return badParam("delay reply", "service timeout exceeds 5 bits:", serviceTimeout)
	}
	a.sendMRA(c, serviceTimeout)
	return nil
}

// sendMRA sends an MRA for the REQ or REP that c has received and the consumer has not answered.
func (a *Agent) sendMRA(c *conn, serviceTimeout uint8) {
	mra := wire.MRA{LocalCommID: uint32(c.id), RemoteCommID: c.remoteID, About: wire.AboutREQ, ServiceTimeout: serviceTimeout}
	next := StateMRAREQSent
	if c.state == StateREPRcvd {
		mra.About, next = wire.AboutREP, StateMRAREPSent
	}
	c.storeMessage(wire.AttrMRA, c.tid, &mra)
	a.transmit(c)
	c.state = next
}

// autoMRA sends an MRA with the configured timeout, because the peer has retransmitted a message
// that the consumer has not answered.
func (a *Agent) autoMRA(c *conn) {
	a.sendMRA(c, a.cfg.MRATimeout)
}

// handleMRA extends the response timer. A second MRA for the same message does not,
// so that a peer cannot extend it forever.
func (a *Agent) handleMRA(in *incoming, m *wire.MRA) {
	c := a.conns[ConnID(m.RemoteCommID)]
	// The sender of a REQ does not know the peer's ID yet.
	if c == nil || c.isLookup() || m.About != wire.AboutREQ && c.remoteID != m.LocalCommID {
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
