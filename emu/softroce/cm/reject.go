package cm

import (
	"encoding/binary"

	"github.com/fabrictest/fabrictest/emu/mono"
	"github.com/fabrictest/fabrictest/emu/softroce/wire"
)

// Reject rejects a request or a reply, or revokes an Accept before the RTU arrived.
// info is up to 72 bytes, depending on reason; private up to 148. The ID is then invalid, but after
// a revoked Accept it stays valid until EventTimeWaitExit.
func (a *Agent) Reject(now mono.Time, id ConnID, reason wire.REJReason, info, private []byte) error {
	c, err := a.lookUp("reject", id, StateREQRcvd, StateMRAREQSent, StateREPRcvd, StateMRAREPSent, StateREPSent, StateMRAREPRcvd)
	if err != nil {
		return err
	}
	if reason == wire.ReasonPrimaryLID || reason == wire.ReasonAlternateLID {
		return badParam("reject", "LIDs mean nothing on RoCEv2:", reason)
	}
	return a.reject(now, c, reason, info, private)
}

// reject sends a REJ for the REQ or REP that c has received, and deletes c. If c itself has sent a
// REP, the REJ revokes it, and c enters time wait.
func (a *Agent) reject(now mono.Time, c *conn, reason wire.REJReason, info, private []byte) error {
	rej := wire.REJ{LocalCommID: uint32(c.id), RemoteCommID: c.peer.id, Reason: reason}
	if err := rej.SetInfo(info); err != nil {
		return err
	}
	if err := wire.FillField(rej.PrivateData[:], private); err != nil {
		return err
	}
	switch c.state {
	case StateREQRcvd:
		rej.LocalCommID = 0 // not known to the peer
		rej.About = wire.AboutREQ
	case StateMRAREQSent:
		rej.About = wire.AboutREQ
	case StateREPRcvd, StateMRAREPSent:
		rej.About = wire.AboutREP
	default:
		rej.About = wire.AboutOther
	}
	a.sendOnce(c.madRoute, wire.AttrREJ, c.tid, &rej)
	if c.state == StateREPSent || c.state == StateMRAREPRcvd {
		a.enterTimeWait(now, c)
	} else {
		a.release(c)
	}
	return nil
}

// rejectREQ rejects a REQ for which no connection is created. info is empty or a GID.
func (a *Agent) rejectREQ(in *incoming, commID uint32, reason wire.REJReason, info []byte) {
	a.counters.Refused++
	rej := wire.REJ{RemoteCommID: commID, About: wire.AboutREQ, Reason: reason}
	if rej.SetInfo(info) == nil { // it fits
		a.sendOnce(a.replyRoute(in), wire.AttrREJ, in.tid, &rej)
	}
}

// rejectUnknown sends a REJ for a message of an unknown connection, so that the
// peer stops retransmitting.
func (a *Agent) rejectUnknown(in *incoming, local, remote uint32, about wire.About) {
	rej := wire.REJ{LocalCommID: local, RemoteCommID: remote, About: about, Reason: wire.ReasonInvalidCommID}
	a.sendOnce(a.replyRoute(in), wire.AttrREJ, in.tid, &rej)
}

// rejectTimeout sends a REJ with reason timeout. The CA GUID in its additional information
// identifies the connection to a peer whose communication ID is unknown here.
func (a *Agent) rejectTimeout(c *conn) {
	rej := wire.REJ{LocalCommID: uint32(c.id), RemoteCommID: c.peer.id, About: wire.AboutOther, Reason: wire.ReasonTimeout}
	binary.BigEndian.PutUint64(rej.Info[:], a.cfg.CAGUID)
	rej.InfoLen = 8
	a.sendOnce(c.madRoute, wire.AttrREJ, c.tid, &rej)
}

// findRejected returns the connection that a REJ is for. If there is none, or the REJ does not come
// from its peer, findRejected counts the REJ as dropped and returns nil.
func (a *Agent) findRejected(in *incoming, m *wire.REJ) *conn {
	var c *conn
	switch info := m.AdditionalInfo(); {
	case m.RemoteCommID == 0 && m.Reason == wire.ReasonTimeout && len(info) >= 8:
		// The requester timed out before it knew the local ID.
		c = a.byRemote[remoteKey{binary.BigEndian.Uint64(info), m.LocalCommID}]
	case m.About == wire.AboutREQ:
		// The peer may have rejected the REQ without creating an ID. After a REP, the
		// REJ can only be for an old duplicate of the REQ.
		c = a.conns[ConnID(m.RemoteCommID)]
		if c != nil && !c.awaitsREP() {
			a.counters.WrongState++
			return nil
		}
	default:
		// The peer may time out before its REP arrives; its ID is then unknown.
		c = a.conns[ConnID(m.RemoteCommID)]
		if c == nil || !c.awaitsREP() {
			c, _ = a.findConn(in, m.RemoteCommID, m.LocalCommID)
			return c
		}
	}
	if c == nil {
		a.counters.UnknownConn++
		return nil
	}
	if c.madRoute.Remote != in.from {
		a.counters.BadSource++
		return nil
	}
	return c
}

// handleREJ ends a connection that the peer rejected or gave up.
func (a *Agent) handleREJ(in *incoming, m *wire.REJ) {
	c := a.findRejected(in, m)
	if c == nil {
		return
	}
	e := Event{
		Kind: EventRejected, Reason: m.Reason, About: m.About,
		Info: m.AdditionalInfo(), PrivateData: m.PrivateData[:],
	}
	switch c.state {
	case StateREQSent, StateMRAREQRcvd, StateREQRcvd, StateMRAREQSent:
		// Packets of the old connection may still arrive at a stale queue pair.
		if m.Reason == wire.ReasonStale && c.active {
			a.notify(c, e)
			a.enterTimeWait(in.now, c)
			return
		}
		e.Final = true
		a.notify(c, e)
		a.release(c)
	case StateREPSent, StateMRAREPRcvd, StateREPRcvd, StateMRAREPSent:
		a.notify(c, e)
		a.enterTimeWait(in.now, c)
	case StateEstablished, StateDREQSent:
		a.notify(c, Event{Kind: EventDisconnected})
		a.enterTimeWait(in.now, c)
	default:
		a.counters.WrongState++
	}
}
