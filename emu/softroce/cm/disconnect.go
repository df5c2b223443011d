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

// startDREQ sends a DREQ with private data, in a transaction of its own, and awaits the DREP.
func (a *Agent) startDREQ(now mono.Time, c *conn, private []byte) error {
	dreq := wire.DREQ{LocalCommID: uint32(c.id), RemoteCommID: c.peer.id, RemoteQPN: c.peer.qpn}
	if err := wire.FillField(dreq.PrivateData[:], private); err != nil {
		return err
	}
	c.storeMessage(wire.AttrDREQ, uint64(c.id), &dreq)
	a.sendAndAwait(now, c, StateDREQSent)
	return nil
}

// sendDREP answers a DREQ with a DREP, and enters time wait.
func (a *Agent) sendDREP(in *incoming, c *conn) {
	c.tid = in.tid
	c.storeMessage(wire.AttrDREP, c.tid, &wire.DREP{LocalCommID: uint32(c.id), RemoteCommID: c.peer.id})
	a.transmit(c)
	a.enterTimeWait(in.now, c)
}

// handleDREQ disconnects and sends a DREP. It also answers a DREQ for an unknown
// connection, so that the peer stops retransmitting.
func (a *Agent) handleDREQ(in *incoming, m *wire.DREQ) {
	c, mayAnswer := a.findConn(in, m.RemoteCommID, m.LocalCommID)
	if c == nil {
		if mayAnswer {
			drep := wire.DREP{LocalCommID: m.RemoteCommID, RemoteCommID: m.LocalCommID}
			a.sendOnce(a.replyRoute(in), wire.AttrDREP, in.tid, &drep)
		}
		return
	}
	if m.RemoteQPN != c.localQPN {
		a.counters.BadQPN++
		return
	}
	switch c.state {
	case StateEstablished, StateREPSent, StateMRAREPRcvd, StateREPRcvd, StateMRAREPSent:
		// The peer may disconnect although this side has not received, or not yet sent, the RTU.
		a.notify(c, Event{Kind: EventDisconnectRequested, PrivateData: m.PrivateData[:]})
		a.sendDREP(in, c)
	case StateDREQSent: // both sides disconnect at once
		a.notify(c, Event{Kind: EventDisconnected, PrivateData: m.PrivateData[:]})
		a.sendDREP(in, c)
	case StateTimeWait:
		a.counters.Duplicates.count(wire.AttrDREQ)
		if c.msgAttr == wire.AttrDREP {
			a.resendForDuplicate(c, in.tid)
		} else {
			a.sendOnce(c.madRoute, wire.AttrDREP, in.tid, &wire.DREP{LocalCommID: uint32(c.id), RemoteCommID: c.peer.id})
		}
	default:
		a.counters.WrongState++
	}
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

// Close ends a connection or SIDR request in any state: it rejects a pending REQ or REP of the peer,
// gives up its own REQ with a REJ for a timeout, or disconnects. A connection that is disconnecting
// or in time wait goes on with that. After Close the ID is invalid and has no more events.
func (a *Agent) Close(now mono.Time, id ConnID) error {
	c := a.conns[id]
	if c == nil || c.closed {
		_, err := a.lookUp("close", id) // returns the error for an unknown ID
		return err
	}
	c.closed = true
	switch c.state {
	case StateREQSent, StateMRAREQRcvd:
		a.rejectTimeout(c)
		a.release(c)
	case StateREQRcvd, StateMRAREQSent, StateREPRcvd, StateMRAREPSent, StateREPSent, StateMRAREPRcvd:
		return a.reject(now, c, wire.ReasonConsumer, nil, nil)
	case StateEstablished:
		return a.startDREQ(now, c, nil)
	case StateSIDRREQSent:
		a.release(c)
	case StateSIDRREQRcvd:
		return a.answerSIDR(now, c, SIDRReplyParam{Status: wire.SIDRRejected})
	}
	return nil
}
