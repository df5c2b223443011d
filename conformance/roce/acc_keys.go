package roce

import (
	"math"

	"github.com/fabrictest/fabrictest/conformance"
	"github.com/fabrictest/fabrictest/conformance/packet/ib"
	"github.com/fabrictest/fabrictest/verbs"
)

var accessCases = overRC.Cases([]conformance.Case{{
	ID:    "acc/key/unknown-key-refused",
	Title: "A WRITE with a key that does not exist is refused with a remote access NAK, and the QP fails",
	Cite:  ibta("Table 63, error class C", "roce/acc/1"), Defects: []string{"AccessNAKsSwapped"},
	Sends:   "WRITEs with keys that differ in some low bits, or some high bits, from one that exists",
	Expects: "a NAK for a remote access error, the QP in ERR",
	Run: OnPort(onEachConn(Setup{}, []uint32{0x55, 0x55000000}, func(c *Conn, turned uint32) {
		c.Send(ib.WriteOnly(c.PeerPSN(0), ib.At(c.TargetMem.Addr(), uint32(c.TargetMem.RKey())^turned, 8), Data(8)).AckReq())
		c.expectNak(c.PeerPSN(0), ib.NakRemoteAccess)
		c.AwaitState(c.QP, verbs.QPStateErr)
		c.ExpectUnchanged(c.TargetMem, 0, 0)
	})),
}, {
	ID:    "acc/key/unknown-key-refused-to-reads-and-atomics",
	Title: "READs and atomics with a key that does not exist are refused with a remote access NAK",
	Cite:  ibta("Table 63, error class C", "roce/acc/1"), Needs: verbs.CapAtomics, Defects: []string{"AccessNAKsSwapped"},
	Sends:   "a READ, a FETCH_ADD and a COMPARE_SWAP with a key that does not exist",
	Expects: "a NAK for a remote access error for each, the QPs in ERR",
	Run: OnPort(onEachConn(Setup{}, []remoteOp{readOp, addOp, swapOp}, func(c *Conn, op remoteOp) {
		at := wordRETH(c.TargetMem, 2)
		at.RKey = new(uint32(unknownKey(c.TargetMem.RKey())))
		c.expectOpRefused(op, at, ib.NakRemoteAccess)
		c.AwaitState(c.QP, verbs.QPStateErr)
	})),
}, {
	ID:    "acc/key/closed-region-refused",
	Title: "The key of a region that was deregistered is refused with a remote access NAK",
	Cite:  ibta("", "roce/acc/6"), Defects: []string{"StaleKeys"},
	Sends:   "a WRITE or a READ to a region, and another after it was deregistered",
	Expects: "the first is executed; to the second a NAK for a remote access error, and memory unchanged",
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
	ID:    "acc/range/one-byte-beyond-refused",
	Title: "An access that ends one byte after its region is refused with a remote access NAK",
	Cite:  ibta("Table 63", "roce/acc/2"), Defects: []string{"RangeSlack"},
	Sends:   "a WRITE and a READ of the last eight bytes of a region, then of eight bytes from one byte later",
	Expects: "the first is executed; to the second a NAK for a remote access error, and no byte changed",
	Run:     OnPort(onEachConn(Setup{}, []remoteOp{writeOp, readOp}, func(c *Conn, op remoteOp) { c.expectBoundsChecked(op, 56, 57) })),
}, {
	ID:    "acc/range/one-byte-before-refused",
	Title: "An access that begins one byte before its region is refused with a remote access NAK",
	Cite:  ibta("Table 63", "roce/acc/2"), Defects: []string{"RangeSlack"},
	Sends:   "a WRITE and a READ of the first eight bytes of a region, then of eight bytes from one byte before",
	Expects: "the first is executed; to the second a NAK for a remote access error, and no byte changed",
	Run:     OnPort(onEachConn(Setup{}, []remoteOp{writeOp, readOp}, func(c *Conn, op remoteOp) { c.expectBoundsChecked(op, 0, -1) })),
}, {
	ID:    "acc/range/address-that-wraps-refused",
	Title: "An access whose address and length wrap around 2^64 is refused with a remote access NAK",
	Cite:  ibta("Table 63", "roce/acc/2"), Defects: []string{"WrappingRange"},
	Sends:   "WRITEs and READs of 8 bytes at 2^64-4 and at 2^64-8",
	Expects: "a NAK for a remote access error, memory unchanged",
	Run: OnPort(func(p *Port) {
		for _, va := range []uint64{math.MaxUint64 - 3, math.MaxUint64 - 7} {
			onEachConn(Setup{}, []remoteOp{writeOp, readOp}, func(c *Conn, op remoteOp) {
				c.expectOpRefused(op, ib.At(va, uint32(c.TargetMem.RKey()), 8), ib.NakRemoteAccess)
			})(p)
		}
	}),
}, {
	ID:    "acc/range/empty-region-opens-nothing",
	Title: "A zero-length region can be registered and grants access to no byte",
	Cite:  ibta("Table 63", "roce/acc/2"), Defects: []string{"NoEmptyMR"},
	Sends:   "with the key of a region of no bytes: a WRITE of nothing, then a WRITE and a READ of one byte",
	Expects: "an ACK for nothing; a NAK for a remote access error for a byte",
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
	ID:    "acc/pd/region-of-another-domain-refused",
	Title: "The key of a region in another protection domain is refused with a remote access NAK",
	Cite:  ibta("", "roce/acc/5"), Defects: []string{"IgnorePD"},
	Sends:   "a WRITE and a READ to a region in another domain than that of the QP",
	Expects: "a NAK for a remote access error, memory unchanged",
	Run: OnPort(onEachConn(Setup{}, []remoteOp{writeOp, readOp}, func(c *Conn, op remoteOp) {
		m := c.otherPDMemory(allAccess)
		c.expectOpRefused(op, rethFor(m, 0, 8), ib.NakRemoteAccess)
		c.ExpectUnchanged(m, 0, 0)
	})),
}, {
	ID:    "acc/pd/srq-domain-does-not-rule-writes",
	Title: "A WRITE to a QP with an SRQ of another PD is checked against the PD of the QP",
	Cite:  ibta("", "roce/acc/5", "roce/srq/1"), Needs: verbs.CapSRQ, Defects: []string{"SRQDomainForWrites"},
	Sends:   "a WRITE with immediate data to a region of the QP's domain, then one to a region of the SRQ's",
	Expects: "the first is executed and completes a receive; to the second a NAK for a remote access error",
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
