package roce

import (
	"encoding/binary"

	"github.com/fabrictest/fabrictest/conformance"
	"github.com/fabrictest/fabrictest/conformance/packet/ib"
	"github.com/fabrictest/fabrictest/conformance/rig"
	"github.com/fabrictest/fabrictest/verbs"
)

// otherPeerQPN is the peer's queue pair of a second connection.
const otherPeerQPN = 0x0fedcb

// secondConn makes a second connection between the peer and the device.
func (c *Conn) secondConn(s Setup) *Conn {
	s.Modify = func(a *verbs.QPAttr) { a.DestQPN = otherPeerQPN }
	return c.connect(s)
}

// onEachConn makes the body of a case that calls steps for each of the variants, each time with
// a new connection: most refusals move the queue pair to ERR.
func onEachConn[V any](s Setup, variants []V, steps func(*Conn, V)) func(*conformance.Bench) error {
	return OnPort(func(p *Port) { eachConn(p, s, variants, steps) })
}

// eachConn is onEachConn for a part of a body.
func eachConn[V any](p *Port, s Setup, variants []V, steps func(*Conn, V)) {
	for _, v := range variants {
		p.Note("now %+v", v)
		steps(p.connect(s), v)
		// Discard packets of the old connection.
		p.Sync()
		p.DiscardSkipped()
	}
}

// expectAck fails the case unless the device acknowledges the peer's requests up to this
// PSN, at once or in several ACKs.
func (c *Conn) expectAck(psn ib.PSN) {
	for {
		got := c.expect(ib.Ack(ib.AnyPSN, ib.AnyMSN))
		switch d := got.PSN().Sub(psn); {
		case d == 0:
			return
		case d > 0:
			c.checkPacket(ib.Ack(psn, ib.AnyMSN), got)
		}
	}
}

// expectNak fails the case unless the device sends a NAK with this PSN and code. ACKs of
// earlier requests may come before.
func (c *Conn) expectNak(psn ib.PSN, code ib.NakCode) {
	for {
		got := c.expect(ib.Packet{})
		if !got.IsAck(ib.AckPositive) || !got.PSN().Less(psn) {
			c.checkPacket(ib.Nak(psn, code, ib.AnyMSN), got)
			return
		}
	}
}

// expectReadResponses fails the case unless the device answers a READ with these bytes.
func (c *Conn) expectReadResponses(psn ib.PSN, bytes []byte) {
	for _, want := range ib.ReadResponses(psn, ib.AnyMSN, bytes, MTU) {
		c.expect(want)
	}
}

// expectAcked sends a request, and fails the case unless the device acknowledges it.
func (c *Conn) expectAcked(request ib.Packet) {
	c.Send(request)
	c.expectAck(request.PSN())
}

// expectRefused sends a request, and fails the case unless the device answers it by a NAK with
// this code.
func (c *Conn) expectRefused(request ib.Packet, code ib.NakCode) {
	c.Send(request)
	c.expectNak(request.PSN(), code)
}

// rethFor returns the RETH for n bytes of a region from off on.
func rethFor(m *rig.Memory, off, n int) ib.RETH {
	return ib.At(m.Addr()+uint64(off), uint32(m.RKey()), n)
}

// rdmaRemote is the remote address that requests of the device use. The peer has no
// memory there: the case makes up its content.
var rdmaRemote = verbs.Remote{Addr: 0x7f11_2233_4455_6600, RKey: 0xa1b2c3d4}

// rdmaRemoteRETH returns the RETH for n bytes at rdmaRemote.
func rdmaRemoteRETH(n int) ib.RETH { return ib.At(rdmaRemote.Addr, uint32(rdmaRemote.RKey), n) }

// postRead makes the device read n bytes from the peer into the start of localMem.
func (c *Conn) postRead(n int) {
	c.PostSend(c.QP, verbs.SendWR{WRID: 1, Opcode: verbs.OpRDMARead, Flags: verbs.SendSignaled, SGL: c.LocalMem.SGL(0, n), Remote: rdmaRemote})
}

// postWrite makes the device write n bytes from the start of localMem to the peer.
func (c *Conn) postWrite(id uint64, n int) {
	c.PostSend(c.QP, verbs.SendWR{WRID: id, Opcode: verbs.OpRDMAWrite, Flags: verbs.SendSignaled, SGL: c.LocalMem.SGL(0, n), Remote: rdmaRemote})
}

// unknownKey returns a key that no region has. Both its index and its low byte differ
// from those of k.
func unknownKey(k verbs.RKey) verbs.RKey { return k ^ 0x00fff055 }

// wordRETH returns the RETH for the n-th word of a region.
func wordRETH(m *rig.Memory, n int) ib.RETH { return rethFor(m, m.WordOffset(n), 8) }

// setWord sets the initial value of the n-th word.
func setWord(m *rig.Memory, n int, v uint64) {
	binary.NativeEndian.PutUint64(m.Buf[m.WordOffset(n):], v)
	m.Snapshot()
}

// expectWord fails the case unless the n-th word has this value and the rest of the
// region is unchanged.
func (c *Conn) expectWord(m *rig.Memory, n int, v uint64) {
	c.Sync()
	c.ExpectBytes(m, m.WordOffset(n), binary.NativeEndian.AppendUint64(nil, v))
	c.ExpectUnchanged(m, m.WordOffset(n), 8)
}

// expectRequestFails fails the case unless the next completion is that of request 1, with
// an error.
func (c *Conn) expectRequestFails() {
	wc := c.NextCompletion()
	c.Check(wc.WRID == 1 && wc.Status != verbs.WCSuccess, "the request to complete with an error", "%s", rig.Describe(&wc))
}

// otherPDMemory registers 64 bytes in another protection domain.
func (c *Conn) otherPDMemory(access verbs.Access) *rig.Memory {
	return c.MemoryIn(c.otherPD(), 64, access)
}

// otherPD allocates another protection domain.
func (p *Port) otherPD() verbs.PD {
	pd, err := p.Device.AllocPD()
	p.Must("another protection domain", err)
	return pd
}

// newSRQ returns a shared receive queue for four receives.
func (p *Port) newSRQ(pd verbs.PD) verbs.SRQ {
	return p.CreateSRQ(verbs.SRQInit{PD: pd, MaxWR: 4, MaxSGE: 1})
}
