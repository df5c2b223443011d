package model

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"time"

	"github.com/fabrictest/fabrictest/conformance/packet/ib"
)

// CMState is the state of a connection in the communication manager of the device.
type CMState uint8

// The states. A connection that was rejected or given up before it was established is idle.
const (
	CMIdle          CMState = iota
	CMRequested             // passive: REQ received; the application has not decided
	CMReplied               // passive: REP sent
	CMRequesting            // active: REQ sent
	CMEstablished           //
	CMDisconnecting         // DREQ sent
	CMTimeWait              // disconnected
)

// String returns the name of the state.
func (s CMState) String() string {
	return [...]string{"idle", "REQ received", "REP sent", "REQ sent", "established", "DREQ sent", "time wait"}[s]
}

// The messages that an MRA or a REJ can be about.
const (
	CMAboutREQ uint8 = iota
	CMAboutREP
	CMAboutOther
)

// Reasons of a REJ.
const (
	CMRejectTimeout   ib.Reason = 4 // after the last retry, or of an application that no longer waits
	cmRejectInvalidID ib.Reason = 6
	CMRejectStale     ib.Reason = 10 // the queue pair has a connection
	cmRejectSameID    ib.Reason = 30
)

// Status codes of an APR.
const (
	aprInvalidID  = 1
	aprInvalidLID = 7
	aprStatuses   = 14
)

// CMReject returns a REJ to the sender of a message, without additional information.
func CMReject(sender *uint32, about uint8, reason ib.Reason) ib.REJ {
	return ib.REJ{RemoteCommID: sender, About: &about, Reason: &reason, InfoLen: new(uint8(0)), Info: []byte{}}
}

// CMRejectGUID returns the REJ of a sender that no longer waits. Its additional information is the
// GUID of the sender's CA.
func CMRejectGUID(local, remote *uint32, guid uint64) ib.REJ {
	return ib.REJ{
		LocalCommID: local, RemoteCommID: remote, About: new(CMAboutOther), Reason: new(CMRejectTimeout),
		InfoLen: new(uint8(8)), Info: binary.BigEndian.AppendUint64(nil, guid),
	}
}

// CMConn is the model of one connection in the communication manager of the device. The methods
// return the messages that the device sends in response.
type CMConn struct {
	Active bool
	State  CMState
	// PeerID and DeviceID are the communication IDs; DeviceID is 0 until the device has sent it, in
	// a REQ, an MRA or a REP.
	PeerID, DeviceID   uint32
	PeerGUID           uint64
	PeerQPN, DeviceQPN uint32
	// WasEstablished: the application got its connection.
	WasEstablished bool
	// OpenResult: the specification does not say whether the application gets a connection.
	OpenResult bool
	// MayEnd: the connection may have ended by a REJ, or not. Ended says which.
	MayEnd bool
	// Cancelled: the peer may have withdrawn its REQ. The device may still send a REP.
	Cancelled bool
	// Withdrawn: the peer has withdrawn its REQ. The device must not send a REP.
	Withdrawn bool
	// Reject is the REJ that ended an active connection.
	Reject *ib.REJ
	// Reply is the REP of the connection.
	Reply *ib.REP
}

// CMReply is the response of the device to a message: Must, or any of May or nothing if it is nil.
type CMReply struct {
	Must ib.Message
	May  []ib.Message
}

// Receive returns the response to a message from the peer of the connection. If its IDs are not
// those of the connection, the state does not change.
func (c *CMConn) Receive(m ib.Message) CMReply {
	switch m := m.(type) {
	case ib.REQ:
		return c.receiveREQ(m)
	case ib.REP:
		return c.receiveREP(m)
	case ib.RTU:
		if !c.knows(m.LocalCommID, m.RemoteCommID) || c.State == CMIdle || c.State == CMTimeWait {
			return c.rejectUnknownIDs(m.LocalCommID)
		}
		if c.State == CMReplied {
			c.establish()
		}
	case ib.MRA:
		// The device may reject it. If it does not, it waits longer, which the caller checks.
		return c.rejectUnknownIDs(m.LocalCommID)
	case ib.REJ:
		c.receiveREJ(m)
	case ib.DREQ:
		return c.receiveDREQ(m)
	case ib.DREP:
		if c.knows(m.LocalCommID, m.RemoteCommID) && c.State == CMDisconnecting {
			c.State = CMTimeWait
		}
	case ib.LAP:
		return c.receiveLAP(m)
	}
	return CMReply{}
}

// rejectUnknownIDs is the response to a message whose IDs the device does not know: none, or a REJ.
func (c *CMConn) rejectUnknownIDs(sender *uint32) CMReply {
	return CMReply{May: []ib.Message{CMReject(sender, CMAboutOther, cmRejectInvalidID)}}
}

// receiveLAP returns the response to a LAP: none, or an APR, whose status is that of an invalid ID
// if and only if the device does not know the connection. In time wait every status is permitted
// but invalid LID, which is never permitted: RoCE has no LIDs.
func (c *CMConn) receiveLAP(m ib.LAP) (reply CMReply) {
	known := c.knows(m.LocalCommID, m.RemoteCommID) && c.State != CMIdle
	for status := range uint8(aprStatuses) {
		if status != aprInvalidLID && (known != (status == aprInvalidID) || c.State == CMTimeWait) {
			reply.May = append(reply.May, ib.APR{LocalCommID: m.RemoteCommID, RemoteCommID: m.LocalCommID, Status: &status})
		}
	}
	return reply
}

// knows reports whether a message has the IDs of the connection, and the device knows both. It may
// have forgotten a request that was withdrawn.
func (c *CMConn) knows(sender, receiver *uint32) bool {
	forgotten := c.State == CMRequested && c.Cancelled
	return c.DeviceID != 0 && c.State != CMRequesting && !forgotten && *receiver == c.DeviceID && *sender == c.PeerID
}

func (c *CMConn) establish() { c.State, c.WasEstablished = CMEstablished, true }

// Data models a valid request packet on the queue pair: it stands for a lost RTU.
func (c *CMConn) Data() {
	if c.State == CMReplied {
		c.establish()
	}
}

// MRASent notes an MRA of the device about the REQ. Its REP must have the same communication ID.
func (c *CMConn) MRASent(m ib.MRA) { c.DeviceID = *m.LocalCommID }

// receiveREQ returns the permitted responses to a duplicate REQ, which is one with the peer's
// communication ID: none, an MRA before the end of the connection and a REJ after it. If the device
// has sent a REP, it may repeat it to the same QPN. It may reject a REQ with another QPN.
func (c *CMConn) receiveREQ(m ib.REQ) (reply CMReply) {
	mra := ib.MRA{RemoteCommID: &c.PeerID, About: new(CMAboutREQ)}
	if c.DeviceID != 0 {
		mra.LocalCommID = &c.DeviceID
	}
	switch c.State {
	case CMRequested:
		reply.May = []ib.Message{mra}
	case CMReplied, CMEstablished:
		reply.May = []ib.Message{mra}
		if *m.QPN == c.PeerQPN { // else a REP would connect another queue pair of the peer
			reply.May = append(reply.May, *c.Reply)
		}
	case CMDisconnecting, CMTimeWait:
		reply.May = []ib.Message{CMReject(&c.PeerID, CMAboutREQ, CMRejectStale)}
	}
	if *m.QPN != c.PeerQPN {
		reply.May = append(reply.May, CMReject(&c.PeerID, CMAboutREQ, cmRejectSameID))
	}
	return reply
}

// receiveREP returns the response to a REP: an RTU if it is for a REQ of the device, else none or a
// REJ. After the end of the connection all are permitted.
func (c *CMConn) receiveREP(m ib.REP) CMReply {
	rtu := ib.RTU{LocalCommID: m.RemoteCommID, RemoteCommID: m.LocalCommID}
	refused := []ib.Message{
		CMReject(m.LocalCommID, CMAboutREP, cmRejectInvalidID), CMReject(m.LocalCommID, CMAboutREP, CMRejectStale),
	}
	forREQ := c.Active && *m.RemoteCommID == c.DeviceID
	duplicate := forREQ && c.Reply != nil && *m.LocalCommID == c.PeerID
	switch {
	case forREQ && c.State == CMRequesting:
		c.PeerID, c.PeerQPN, c.Reply = *m.LocalCommID, *m.QPN, &m
		c.establish()
		return CMReply{Must: rtu}
	case duplicate && c.State == CMEstablished:
		return CMReply{Must: rtu}
	case duplicate && (c.State == CMDisconnecting || c.State == CMTimeWait):
		return CMReply{May: append(refused, rtu)}
	}
	return CMReply{May: refused}
}

// receiveREJ notes a REJ, which ends the connection or, once it is established, may end it.
func (c *CMConn) receiveREJ(m ib.REJ) {
	if c.State == CMRequesting && *m.RemoteCommID == c.DeviceID {
		c.State, c.Reject = CMIdle, &m
		return
	}
	if c.State == CMRequested && *m.LocalCommID == c.PeerID {
		c.receiveCancel(m)
	}
	if !c.knows(m.LocalCommID, m.RemoteCommID) {
		return
	}
	switch c.State {
	case CMReplied:
		c.State = CMIdle
	case CMEstablished, CMDisconnecting:
		c.MayEnd = true
	}
}

// receiveCancel notes a REJ before the REP. The REQ is withdrawn if the REJ identifies the
// connection: by the ID of the device or, in a REJ with reason timeout of a peer that does not know
// this ID, by the GUID of the peer's CA. One with another GUID is not for c.
func (c *CMConn) receiveCancel(m ib.REJ) {
	known := c.DeviceID != 0 && *m.RemoteCommID == c.DeviceID
	if *m.RemoteCommID == 0 && *m.Reason == CMRejectTimeout && *m.InfoLen >= 8 {
		known = bytes.Equal(m.Info, binary.BigEndian.AppendUint64(nil, c.PeerGUID))
		if !known {
			return
		}
	}
	c.Cancelled, c.Withdrawn = true, c.Withdrawn || known
}

// Ended resolves MayEnd by the observation that the connection has ended, or not.
func (c *CMConn) Ended(ended bool) {
	if c.MayEnd && ended {
		c.State = CMTimeWait
	}
	c.MayEnd = false
}

// receiveDREQ returns the response to a DREQ, which ends the connection: a DREP. If the device does
// not know the connection, it may also be a REJ or none. A DREQ with a wrong QPN has no response
// while there is a connection; after its end it may have a DREP.
func (c *CMConn) receiveDREQ(m ib.DREQ) CMReply {
	drep := ib.DREP{LocalCommID: m.RemoteCommID, RemoteCommID: m.LocalCommID}
	if !c.knows(m.LocalCommID, m.RemoteCommID) {
		return CMReply{May: append(c.rejectUnknownIDs(m.LocalCommID).May, drep)}
	}
	if *m.RemoteQPN != c.DeviceQPN && c.State != CMTimeWait && c.State != CMIdle {
		return CMReply{}
	}
	switch c.State {
	case CMReplied:
		c.OpenResult = true // the connection ends before it was established
		fallthrough
	case CMEstablished, CMDisconnecting:
		c.State = CMTimeWait
		return CMReply{Must: drep}
	case CMTimeWait, CMIdle:
		if *m.RemoteQPN == c.DeviceQPN && c.WasEstablished {
			return CMReply{Must: drep}
		}
	}
	return CMReply{May: []ib.Message{drep}}
}

// GiveUp changes the state as the device does when its last retransmission of a REQ, REP or DREQ was
// not answered in time.
func (c *CMConn) GiveUp() {
	switch c.State {
	case CMReplied, CMRequesting:
		c.State = CMIdle
	case CMDisconnecting:
		c.State = CMTimeWait
	}
}

// CMTimer is the retransmission of a message until the response arrives. The times are those
// of the caller's clock.
type CMTimer struct {
	// Timeout is the response timeout of the message, and Delay the longest that the path adds.
	Timeout, Delay time.Duration
	Retries        int // that are left
	// earliest and latest are the limits of the next retransmission, and of giving up.
	earliest, latest time.Duration
	prolonged        bool // by an MRA
}

// Start notes that the message was sent.
func (t *CMTimer) Start(now time.Duration) {
	// A tenth early is permitted, as the caller may have read the clock late, and half a timeout
	// late.
	t.earliest, t.latest = now+t.Timeout*9/10, now+t.Timeout*3/2+t.Delay
	t.prolonged = false
}

// Prolong notes that the peer has sent an MRA with a service timeout. Another MRA may, or may not,
// prolong the time again.
func (t *CMTimer) Prolong(now, service time.Duration) {
	if !t.prolonged {
		t.earliest = now + service*9/10 // a short service timeout may replace a long response timeout
	}
	t.prolonged = true
	t.latest = max(t.latest, now+service+t.Timeout*3/2+t.Delay)
}

// Retransmitted notes a retransmission, and returns an error if it is early or one too many.
func (t *CMTimer) Retransmitted(now time.Duration) error {
	if t.Retries == 0 {
		return fmt.Errorf("no retransmission after the last retry")
	}
	if now < t.earliest {
		return fmt.Errorf("no retransmission for another %v", t.earliest-now)
	}
	t.Retries--
	t.Start(now)
	return nil
}

// Earliest returns the earliest time of the next retransmission, or of giving up.
func (t *CMTimer) Earliest() time.Duration { return t.earliest }

// Latest returns the latest time of the next retransmission, or of giving up.
func (t *CMTimer) Latest() time.Duration { return t.latest }

// GivenUp reports whether the device may have given up: after the last retry, or
// after the service timeout of an MRA.
func (t *CMTimer) GivenUp(now time.Duration) bool {
	return (t.Retries == 0 || t.prolonged) && now >= t.earliest
}
