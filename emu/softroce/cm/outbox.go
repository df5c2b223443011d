package cm

import (
	"encoding/binary"
	"net/netip"

	"github.com/fabrictest/fabrictest/emu/softroce/wire"
)

// Route has the addresses and header fields of MADs to a peer.
type Route struct {
	Local, Remote netip.Addr
	PKey          uint16
	FlowLabel     uint32
	TrafficClass  uint8
	HopLimit      uint8
}

// Outgoing is a MAD to be sent from QP 1 to the peer's QP 1.
type Outgoing struct {
	Route
	MAD *[wire.MADLen]byte // valid until the next call of NextMAD
}

// packet is a MAD in the outbox.
type packet struct {
	route Route
	mad   [wire.MADLen]byte
}

type message interface{ Append([]byte) []byte }

// NextMAD removes and returns the oldest MAD to send, or false. A MAD is valid until the next call.
func (a *Agent) NextMAD() (Outgoing, bool) {
	p, ok := a.outbox.Pop()
	if !ok {
		return Outgoing{}, false
	}
	a.sent = p
	return Outgoing{p.route, &a.sent.mad}, true
}

// post queues a MAD to send, or drops it if MaxOutbox MADs are queued.
func (a *Agent) post(r Route, attr wire.Attr, b *[wire.MADLen]byte) {
	if a.outbox.Len() >= a.cfg.MaxOutbox {
		a.counters.OutboxFull++
		return
	}
	a.counters.Sent.count(attr)
	a.outbox.Push(packet{route: r, mad: *b})
}

// sendOnce sends a message that is not retransmitted.
func (a *Agent) sendOnce(r Route, attr wire.Attr, tid uint64, m message) {
	var b [wire.MADLen]byte
	m.Append(wire.NewMADHeader(attr, tid).Append(b[:0])) // into b, which has room for a whole MAD
	a.post(r, attr, &b)
}

// storeMessage makes m the message that c retransmits.
func (c *retransmission) storeMessage(attr wire.Attr, tid uint64, m message) {
	m.Append(wire.NewMADHeader(attr, tid).Append(c.msg[:0]))
	c.msgAttr = attr
}

// transmit sends the message stored in c.
func (a *Agent) transmit(c *conn) { a.post(c.madRoute, c.msgAttr, &c.msg) }

// resend retransmits the message stored in c.
func (a *Agent) resend(c *conn) {
	a.counters.Resent.count(c.msgAttr)
	a.transmit(c)
}

// resendForDuplicate retransmits the message stored in c with the transaction ID of the duplicate
// request that it answers.
func (a *Agent) resendForDuplicate(c *conn, tid uint64) {
	const tidOffset = 8 // in the MAD header
	binary.BigEndian.PutUint64(c.msg[tidOffset:], tid)
	a.resend(c)
}
