package roce

import (
	"encoding/binary"

	"github.com/fabrictest/fabrictest/conformance/packet/ib"
	"github.com/fabrictest/fabrictest/conformance/rig"
	"github.com/fabrictest/fabrictest/verbs"
)

// What the cases about memory share: those of READs, WRITEs, atomics, SENDs, rights
// and windows.

// labelRC are those of the cases of RC.
var labelRC = []string{"service:rc"}

// mtuBytes is the path MTU of the connections of these cases.
var mtuBytes = pathMTU.Bytes()

// otherPeerQPN is the peer's end of a second connection.
const otherPeerQPN = 0x0fedcb

// secondConn makes a second connection of the peer's to the device.
func (c *conn) secondConn(s setup) *conn {
	s.modify = func(a *verbs.QPAttr) { a.DestQPN = otherPeerQPN }
	return c.connect(s)
}

// onEachConn makes a body that runs another for each of some things, each time with a
// connection of its own: most refusals end theirs.
func onEachConn[T any](s setup, things []T, body func(*conn, T)) func(*port) {
	return func(p *port) {
		for _, thing := range things {
			p.Note("now %+v", thing)
			body(p.connect(s), thing)
			// Whatever the device had to say to the old connection is not for the new.
			p.Sync()
			p.DiscardSkipped()
		}
	}
}

// expectAck ends the case unless the device acknowledges the peer's requests up to this
// one. It may acknowledge earlier ones separately.
func (c *conn) expectAck(psn ib.PSN) {
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

// expectNak ends the case unless the device refuses the peer's request for this reason.
// It may acknowledge earlier ones before.
func (c *conn) expectNak(psn ib.PSN, code ib.NakCode) {
	for {
		got := c.expect(ib.Packet{})
		if !got.IsAck(ib.AckPositive) || !got.PSN().Less(psn) {
			c.checkPacket(ib.Nak(psn, code, ib.AnyMSN), got)
			return
		}
	}
}

// expectReadResponses ends the case unless the device answers a READ with these bytes.
func (c *conn) expectReadResponses(psn ib.PSN, bytes []byte) {
	for _, want := range ib.ReadResponses(psn, ib.AnyMSN, bytes, mtuBytes) {
		c.expect(want)
	}
}

// rethFor names n bytes of a region to the device, from off on.
func rethFor(m *rig.Memory, off, n int) ib.RETH {
	return ib.At(m.Addr()+uint64(off), uint32(m.RKey()), n)
}

// rdmaRemote is memory of the peer's. There is none: the case says what is in it.
var rdmaRemote = verbs.Remote{Addr: 0x7f11_2233_4455_6600, RKey: 0xa1b2c3d4}

// rdmaRemoteRETH is its first n bytes.
func rdmaRemoteRETH(n int) ib.RETH { return ib.At(rdmaRemote.Addr, uint32(rdmaRemote.RKey), n) }

// postRead has the device read n bytes of the peer's memory to the beginning of its own.
func (c *conn) postRead(n int) {
	c.PostSend(c.qp, verbs.SendWR{WRID: 1, Opcode: verbs.OpRDMARead, Flags: verbs.SendSignaled, SGL: c.localMem.SGL(0, n), Remote: rdmaRemote})
}

// postWrite has the device write n bytes from the beginning of its memory.
func (c *conn) postWrite(id uint64, n int) {
	c.PostSend(c.qp, verbs.SendWR{WRID: id, Opcode: verbs.OpRDMAWrite, Flags: verbs.SendSignaled, SGL: c.localMem.SGL(0, n), Remote: rdmaRemote})
}

// unknownKey is one that no region has: neither its index nor what follows it.
func unknownKey(k verbs.RKey) verbs.RKey { return k ^ 0x00fff055 }

// wordRETH is the n-th word of a region, for a peer.
func wordRETH(m *rig.Memory, n int) ib.RETH { return rethFor(m, m.WordOffset(n), 8) }

// setWord gives a word a value before anything happens.
func setWord(m *rig.Memory, n int, v uint64) {
	binary.NativeEndian.PutUint64(m.Buf[m.WordOffset(n):], v)
	m.Snapshot()
}

// expectWord ends the case unless a word has this value, and nothing else of the region
// has changed.
func (c *conn) expectWord(m *rig.Memory, n int, v uint64) {
	c.Sync()
	c.ExpectBytes(m, m.WordOffset(n), binary.NativeEndian.AppendUint64(nil, v))
	c.ExpectUnchanged(m, m.WordOffset(n), 8)
}

// expectRequestFails ends the case unless the next completion is of request 1, and in error.
func (c *conn) expectRequestFails() {
	wc := c.NextCompletion()
	c.Check(wc.WRID == 1 && wc.Status != verbs.WCSuccess, "the request to complete in error", "%s", rig.Describe(&wc))
}

// otherPDMemory is memory in another protection domain.
func (c *conn) otherPDMemory(access verbs.Access) *rig.Memory {
	return c.MemoryIn(c.otherPD(), 64, access)
}

// otherPD is a protection domain in which the connection's queue pair is not.
func (p *port) otherPD() verbs.PD {
	pd, err := p.Device.AllocPD()
	p.Must("another protection domain", err)
	return pd
}

// newSRQ is a small shared receive queue in a domain.
func (p *port) newSRQ(pd verbs.PD) verbs.SRQ {
	srq, err := p.Device.CreateSRQ(verbs.SRQInit{PD: pd, MaxWR: 4, MaxSGE: 1})
	p.Must("a shared receive queue", err)
	return srq
}
