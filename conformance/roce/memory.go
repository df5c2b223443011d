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

// unknownKey returns a key that no region has. Both its index and its low byte differ
// from those of k.
func unknownKey(k verbs.RKey) verbs.RKey { return k ^ 0x00fff055 }

// unknownKeyRETH returns the RETH for n bytes of TargetMem with a key that no region has.
func (c *Conn) unknownKeyRETH(n int) ib.RETH {
	return ib.At(c.TargetMem.Addr(), unknownKey(c.TargetMem.RKey()), n)
}

// deregisteredRETH is unknownKeyRETH with the key of a deregistered region.
func (c *Conn) deregisteredRETH(n int) ib.RETH {
	m := c.Memory(64, allAccess)
	key := m.RKey()
	c.Must("a region that can be deregistered", m.Close())
	return ib.At(c.TargetMem.Addr(), key, n)
}

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
