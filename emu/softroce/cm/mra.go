package cm

import (
	"github.com/fabrictest/fabrictest/emu/mono"
	"github.com/fabrictest/fabrictest/emu/softroce/mad"
)

// DelayReply tells the peer that Accept or ConfirmReply will take up to the
// service timeout, a code. Without it, a peer that asks again is told so by
// itself.
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

func (a *Agent) sendMRA(c *conn, serviceTimeout uint8) {
	mra := mad.MRA{LocalCommID: uint32(c.id), RemoteCommID: c.remoteID, About: mad.AboutREQ, ServiceTimeout: serviceTimeout}
	next := StateMRAREQSent
	if c.state == StateREPRcvd {
		mra.About, next = mad.AboutREP, StateMRAREPSent
	}
	c.keep(mad.AttrMRA, c.tid, &mra)
	a.transmit(c)
	c.state = next
}

// autoMRA asks an impatient peer for time, because the consumer takes it.
func (a *Agent) autoMRA(c *conn) {
	a.sendMRA(c, a.cfg.MRATimeout)
}

// handleMRA waits longer for an answer. A second MRA to the same message does
// not extend it further, so that a peer cannot put us off for ever.
func (a *Agent) handleMRA(in *incoming, m *mad.MRA) {
	c := a.conns[ConnID(m.RemoteCommID)]
	// The REQ's sender does not know the peer's ID yet.
	if c == nil || c.isLookup() || m.About != mad.AboutREQ && c.remoteID != m.LocalCommID {
		a.counters.UnknownConn++
		return
	}
	if c.madRoute.remote != in.from {
		a.counters.BadSource++
		return
	}
	switch {
	case m.About == mad.AboutREQ && c.state == StateREQSent:
		c.state = StateMRAREQRcvd
	case m.About == mad.AboutREP && c.state == StateREPSent:
		c.state = StateMRAREPRcvd
	case m.About == mad.AboutREQ && c.state == StateMRAREQRcvd, m.About == mad.AboutREP && c.state == StateMRAREPRcvd:
		a.counters.Duplicates.count(mad.AttrMRA)
		return
	default:
		a.counters.WrongState++
		return
	}
	a.timers.arm(c, in.now.Add(a.cfg.peerTimeout(m.ServiceTimeout)+c.packetsLive))
	a.notify(c, Event{Kind: EventMRA, ServiceTimeout: m.ServiceTimeout, PrivateData: m.PrivateData[:]})
}
