package cm

import (
	"github.com/fabrictest/fabrictest/emu/mono"
	"github.com/fabrictest/fabrictest/emu/softroce/wire"
)

// Disconnect sends a DREQ; private is up to 220 bytes. The result is
// EventDisconnected or EventTimedOut, followed by EventTimeWaitExit.
func (a *Agent) Disconnect(now mono.Time, id ConnID, private []byte) error {
	c, err := a.lookUp("disconnect", id, StateEstablished)
	if err != nil {
		return err
	}
	return a.startDREQ(now, c, private)
}

// startDREQ sends a DREQ with private data, and awaits the DREP.
func (a *Agent) startDREQ(now mono.Time, c *conn, private []byte) error {
	dreq := wire.DREQ{LocalCommID: uint32(c.id), RemoteCommID: c.remoteID, RemoteQPN: c.remoteQPN}
	if err := wire.FillField(dreq.PrivateData[:], private); err != nil {
		return err
	}
	c.storeMessage(wire.AttrDREQ, uint64(c.id), &dreq)
	a.sendAndAwait(now, c, StateDREQSent)
	return nil
}

// DisconnectReply answers EventDisconnectRequested with a DREP, which the consumer must do if
// Config.ConsumerDREP is set; private is up to 224 bytes.
func (a *Agent) DisconnectReply(now mono.Time, id ConnID, private []byte) error {
	c, err := a.lookUp("answer disconnect of", id, StateDREQRcvd)
	if err != nil {
		return err
	}
	return a.sendDREP(now, c, private)
}

// sendDREP sends a DREP with private data, and enters time wait.
func (a *Agent) sendDREP(now mono.Time, c *conn, private []byte) error {
	drep := wire.DREP{LocalCommID: uint32(c.id), RemoteCommID: c.remoteID}
	if err := wire.FillField(drep.PrivateData[:], private); err != nil {
		return err
	}
	c.storeMessage(wire.AttrDREP, c.tid, &drep)
	a.transmit(c)
	a.enterTimeWait(now, c)
	return nil
}

// handleDREQ disconnects and sends a DREP. It also answers a DREQ for an unknown
// connection, so that the peer stops retransmitting.
func (a *Agent) handleDREQ(in *incoming, m *wire.DREQ) {
	c, mayAnswer := a.findConn(in, m.RemoteCommID, m.LocalCommID)
	if c == nil {
		if mayAnswer {
			a.drepWithoutConn(in, m)
		}
		return
	}
	if m.RemoteQPN != c.localQPN {
		a.counters.BadQPN++
		return
	}
	switch c.state {
	case StateEstablished, StateREPSent, StateMRAREPRcvd, StateREPRcvd, StateMRAREPSent:
		// The RTU may have been lost: the peer was connected.
		c.tid = in.tid
		a.notify(c, Event{Kind: EventDisconnectRequested, PrivateData: m.PrivateData[:]})
		a.timers.Stop(&c.timer)
		if c.state = StateDREQRcvd; !a.cfg.ConsumerDREP {
			a.sendDREP(in.now, c, nil)
		}
	case StateDREQSent: // both sides disconnect at once
		c.tid = in.tid
		a.notify(c, Event{Kind: EventDisconnected, PrivateData: m.PrivateData[:]})
		a.sendDREP(in.now, c, nil)
	case StateDREQRcvd:
		a.counters.Duplicates.count(wire.AttrDREQ)
	case StateTimeWait:
		a.counters.Duplicates.count(wire.AttrDREQ)
		if c.msgAttr == wire.AttrDREP {
			a.repeatForDuplicate(c, in.tid)
		} else {
			a.sendOnce(c.madRoute, wire.AttrDREP, in.tid, &wire.DREP{LocalCommID: uint32(c.id), RemoteCommID: c.remoteID})
		}
	default:
		a.counters.WrongState++
	}
}

// drepWithoutConn answers a DREQ for an unknown connection.
func (a *Agent) drepWithoutConn(in *incoming, m *wire.DREQ) {
	drep := wire.DREP{LocalCommID: m.RemoteCommID, RemoteCommID: m.LocalCommID}
	a.sendOnce(a.replyRoute(in), wire.AttrDREP, in.tid, &drep)
}

// handleDREP completes Disconnect.
func (a *Agent) handleDREP(in *incoming, m *wire.DREP) {
	c, _ := a.findConn(in, m.RemoteCommID, m.LocalCommID)
	if c == nil {
		return
	}
	switch c.state {
	case StateDREQSent:
		a.notify(c, Event{Kind: EventDisconnected, PrivateData: m.PrivateData[:]})
		a.enterTimeWait(in.now, c)
	case StateTimeWait:
		a.counters.Duplicates.count(wire.AttrDREP)
	default:
		a.counters.WrongState++
	}
}
