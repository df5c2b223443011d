package cm

import (
	"encoding/binary"

	"github.com/fabrictest/fabrictest/emu/mono"
	"github.com/fabrictest/fabrictest/emu/softroce/mad"
)

// Reject refuses a request or a reply, or takes an acceptance back while the
// peer has not confirmed it. info is up to 72 bytes, by reason; private up to
// 148. After refusing a request or a reply the ID means nothing; an acceptance
// taken back ends in EventTimeWaitExit.
func (a *Agent) Reject(now mono.Time, id ConnID, reason mad.Reason, info, private []byte) error {
	c, err := a.lookUp("reject", id, StateREQRcvd, StateMRAREQSent, StateREPRcvd, StateMRAREPSent, StateREPSent, StateMRAREPRcvd)
	if err != nil {
		return err
	}
	if reason == mad.ReasonPrimaryLID || reason == mad.ReasonAlternateLID {
		return badParam("reject", "LIDs mean nothing on RoCEv2:", reason)
	}
	return a.reject(now, c, reason, info, private)
}

func (a *Agent) reject(now mono.Time, c *conn, reason mad.Reason, info, private []byte) error {
	rej := mad.REJ{LocalCommID: uint32(c.id), RemoteCommID: c.remoteID, Reason: reason}
	if err := rej.SetInfo(info); err != nil {
		return err
	}
	if err := mad.Fill(rej.PrivateData[:], private); err != nil {
		return err
	}
	switch c.state {
	case StateREQRcvd:
		rej.LocalCommID = 0 // the peer has never seen it
		rej.About = mad.AboutREQ
	case StateMRAREQSent:
		rej.About = mad.AboutREQ
	case StateREPRcvd, StateMRAREPSent:
		rej.About = mad.AboutREP
	default:
		rej.About = mad.AboutOther
	}
	a.sendOnce(c.madRoute, mad.AttrREJ, c.tid, &rej)
	if c.state == StateREPSent || c.state == StateMRAREPRcvd {
		a.enterTimeWait(now, c)
	} else {
		a.release(c)
	}
	return nil
}

// refuse answers a REQ that gets no connection.
func (a *Agent) refuse(in *incoming, commID uint32, reason mad.Reason, info []byte) {
	a.counters.Refused++
	rej := mad.REJ{RemoteCommID: commID, About: mad.AboutREQ, Reason: reason}
	if rej.SetInfo(info) == nil {
		a.sendOnce(a.reply(in), mad.AttrREJ, in.tid, &rej)
	}
}

// disown tells the sender of a message that its connection does not exist
// here, so that it need not wait for its retries to run out.
func (a *Agent) disown(in *incoming, local, remote uint32, about mad.About) {
	rej := mad.REJ{LocalCommID: local, RemoteCommID: remote, About: about, Reason: mad.ReasonInvalidCommID}
	a.sendOnce(a.reply(in), mad.AttrREJ, in.tid, &rej)
}

// giveUp tells the peer that we wait no longer. The GUID lets it find the
// connection even if we never learned the ID it uses.
func (a *Agent) giveUp(c *conn) {
	rej := mad.REJ{LocalCommID: uint32(c.id), RemoteCommID: c.remoteID, About: mad.AboutOther, Reason: mad.ReasonTimeout}
	binary.BigEndian.PutUint64(rej.Info[:], a.cfg.CAGUID)
	rej.InfoLen = 8
	a.sendOnce(c.madRoute, mad.AttrREJ, c.tid, &rej)
}

// rejected finds the connection that a REJ is about.
func (a *Agent) rejected(in *incoming, m *mad.REJ) *conn {
	var c *conn
	switch info := m.AdditionalInfo(); {
	case m.RemoteCommID == 0 && m.Reason == mad.ReasonTimeout && len(info) >= 8:
		// From a requester that gave up before it knew our ID.
		c = a.byRemote[remoteKey{binary.BigEndian.Uint64(info), m.LocalCommID}]
	case m.About == mad.AboutREQ:
		// Whoever refuses a REQ need not have made an ID. Once there has been a
		// REP, a refusal of the REQ can only be of an old copy of it.
		c = a.conns[ConnID(m.RemoteCommID)]
		if c != nil && c.state != StateREQSent && c.state != StateMRAREQRcvd {
			a.counters.WrongState++
			return nil
		}
	default:
		// A peer may give up before its REP reaches us, and so before we know the
		// ID that it rejects under.
		if c = a.conns[ConnID(m.RemoteCommID)]; c == nil || c.state != StateREQSent && c.state != StateMRAREQRcvd {
			c, _ = a.pair(in, m.RemoteCommID, m.LocalCommID)
			return c
		}
	}
	if c == nil {
		a.counters.UnknownConn++
		return nil
	}
	if c.madRoute.remote != in.from {
		a.counters.BadSource++
		return nil
	}
	return c
}

// handleREJ ends a connection that the peer refused or gave up.
func (a *Agent) handleREJ(in *incoming, m *mad.REJ) {
	c := a.rejected(in, m)
	if c == nil {
		return
	}
	e := Event{
		Kind: EventRejected, Reason: m.Reason, About: m.About,
		Info: m.AdditionalInfo(), PrivateData: m.PrivateData[:],
	}
	switch c.state {
	case StateREQSent, StateMRAREQRcvd, StateREQRcvd, StateMRAREQSent:
		// A stale queue pair may still get packets of the connection it is
		// mistaken for.
		if m.Reason == mad.ReasonStale && c.active {
			a.notify(c, e)
			a.enterTimeWait(in.now, c)
			return
		}
		e.Final = true
		a.notify(c, e)
		a.release(c)
	case StateREPSent, StateMRAREPRcvd, StateREPRcvd, StateMRAREPSent, StateEstablished:
		a.notify(c, e)
		a.enterTimeWait(in.now, c)
	case StateDREQSent:
		a.notify(c, Event{Kind: EventDisconnected})
		a.enterTimeWait(in.now, c)
	default:
		a.counters.WrongState++
	}
}
