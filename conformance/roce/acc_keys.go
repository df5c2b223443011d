package roce

import (
	"math"

	"github.com/fabrictest/fabrictest/conformance"
	"github.com/fabrictest/fabrictest/conformance/packet/ib"
	"github.com/fabrictest/fabrictest/verbs"
)

var accessCases = overRC.Cases([]conformance.Case{{
	ID: "acc/key/unknown-key-refused", Cite: ibta("Table 63, error class C", "roce/acc/1"),
	Run: OnPort(onEachConn(Setup{}, []uint32{0x55, 0x55000000}, func(c *Conn, turned uint32) {
		c.Send(ib.WriteOnly(c.PeerPSN(0), ib.At(c.TargetMem.Addr(), uint32(c.TargetMem.RKey())^turned, 8), Data(8)).AckReq())
		c.expectNak(c.PeerPSN(0), ib.NakRemoteAccess)
		c.AwaitState(c.QP, verbs.QPStateErr)
		c.ExpectUnchanged(c.TargetMem, 0, 0)
	})),
}, {
	ID:   "acc/key/unknown-key-refused-to-reads-and-atomics",
	Cite: ibta("Table 63, error class C", "roce/acc/1"), Needs: verbs.CapAtomics,
	Run: OnPort(onEachConn(Setup{}, []remoteOp{readOp, addOp, swapOp}, func(c *Conn, op remoteOp) {
		at := wordRETH(c.TargetMem, 2)
		at.RKey = new(uint32(unknownKey(c.TargetMem.RKey())))
		c.expectOpRefused(op, at, ib.NakRemoteAccess)
		c.AwaitState(c.QP, verbs.QPStateErr)
	})),
}, {
	ID: "acc/key/closed-region-refused", Cite: ibta("", "roce/acc/6"),
	Run: OnPort(onEachConn(Setup{}, []remoteOp{writeOp, readOp}, func(c *Conn, op remoteOp) {
		m := c.Memory(64, allAccess)
		c.Send(ib.WriteOnly(c.PeerPSN(0), rethFor(m, 0, 8), Data(8)).AckReq())
		c.expectAck(c.PeerPSN(0))
		m.Snapshot()
		at := rethFor(m, 0, 8)
		c.Must("a region that can be deregistered", m.Close())
		c.Send(op.packet(c.PeerPSN(1), at))
		c.expectNak(c.PeerPSN(1), ib.NakRemoteAccess)
		c.ExpectUnchanged(m, 0, 0)
	})),
}, {
	ID: "acc/range/one-byte-beyond-refused", Cite: ibta("Table 63", "roce/acc/2"),
	Run: OnPort(onEachConn(Setup{}, []remoteOp{writeOp, readOp}, func(c *Conn, op remoteOp) { c.expectBoundsChecked(op, 56, 57) })),
}, {
	ID: "acc/range/one-byte-before-refused", Cite: ibta("Table 63", "roce/acc/2"),
	Run: OnPort(onEachConn(Setup{}, []remoteOp{writeOp, readOp}, func(c *Conn, op remoteOp) { c.expectBoundsChecked(op, 0, -1) })),
}, {
	ID: "acc/range/address-that-wraps-refused", Cite: ibta("Table 63", "roce/acc/2"),
	Run: OnPort(func(p *Port) {
		for _, va := range []uint64{math.MaxUint64 - 3, math.MaxUint64 - 7} {
			onEachConn(Setup{}, []remoteOp{writeOp, readOp}, func(c *Conn, op remoteOp) {
				c.expectOpRefused(op, ib.At(va, uint32(c.TargetMem.RKey()), 8), ib.NakRemoteAccess)
			})(p)
		}
	}),
}, {
	ID: "acc/range/empty-region-opens-nothing", Cite: ibta("Table 63", "roce/acc/2"),
	Run: OnPort(onEachConn(Setup{}, []remoteOp{writeOp, readOp}, func(c *Conn, op remoteOp) {
		mr, err := c.PD.RegMR(verbs.MRInit{Buf: c.TargetMem.Buf[:0], Access: allAccess})
		c.Must("a region of no bytes", err)
		at := ib.At(mr.Addr(), uint32(mr.RKey()), 0)
		c.Send(ib.WriteOnly(c.PeerPSN(0), at, nil).AckReq())
		c.expectAck(c.PeerPSN(0))
		c.Send(op.packet(c.PeerPSN(1), at.Sized(1)))
		c.expectNak(c.PeerPSN(1), ib.NakRemoteAccess)
		c.ExpectUnchanged(c.TargetMem, 0, 0)
	})),
}, {
	ID: "acc/pd/region-of-another-domain-refused", Cite: ibta("", "roce/acc/5"),
	Run: OnPort(onEachConn(Setup{}, []remoteOp{writeOp, readOp}, func(c *Conn, op remoteOp) {
		m := c.otherPDMemory(allAccess)
		c.expectOpRefused(op, rethFor(m, 0, 8), ib.NakRemoteAccess)
		c.ExpectUnchanged(m, 0, 0)
	})),
}, {
	ID: "acc/pd/srq-domain-does-not-rule-writes", Cite: ibta("", "roce/acc/5", "roce/srq/1"), Needs: verbs.CapSRQ,
	Run: OnPort(func(p *Port) {
		pd := p.otherPD()
		srq, foreign := p.newSRQ(pd), p.MemoryIn(pd, 64, allAccess)
		c := p.connect(Setup{srq: srq})
		c.PostRecv(srq, 1, foreign.SGE(32, 8))
		c.Send(ib.WriteOnlyImm(c.PeerPSN(0), c.RETH(0, 8), 7, Data(8)).AckReq())
		c.expectAck(c.PeerPSN(0))
		c.ExpectRecv(1, 8)
		c.Send(ib.WriteOnly(c.PeerPSN(1), rethFor(foreign, 0, 8), Data(8)).AckReq())
		c.expectNak(c.PeerPSN(1), ib.NakRemoteAccess)
		c.ExpectUnchanged(foreign, 0, 0)
	}),
}})

// expectBoundsChecked registers 64 bytes, and fails the case unless the operation is
// executed on the eight bytes at offset inside and refused at offset outside.
func (c *Conn) expectBoundsChecked(op remoteOp, inside, outside int) {
	m := c.Memory(64, allAccess)
	c.expectOpExecuted(op, rethFor(m, inside, 8))
	m.Snapshot()
	c.Send(op.packet(c.PeerPSN(1), rethFor(m, outside, 8)))
	c.expectNak(c.PeerPSN(1), ib.NakRemoteAccess)
	c.Sync()
	c.ExpectUnchanged(m, 0, 0)
}
