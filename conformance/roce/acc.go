package roce

import (
	"math"

	"github.com/fabrictest/fabrictest/conformance"
	"github.com/fabrictest/fabrictest/conformance/packet/ib"
	"github.com/fabrictest/fabrictest/conformance/rig"
	"github.com/fabrictest/fabrictest/verbs"
)

var accessCases = overRC.Cases([]conformance.Case{{
	ID: "acc/key/unknown-key-refused", Cite: ibta("Table 63, error class C", "acc/1"),
	Title:   "A WRITE with a key that does not exist is refused with a remote access NAK, and the QP fails",
	Sends:   "WRITEs with keys that differ in some low bits, or some high bits, from one that exists",
	Expects: "a NAK for a remote access error, the QP in ERR",
	Defects: []string{"AccessNAKsSwapped"}, Run: onEachConn(Setup{}, []uint32{0x55, 0x55000000}, func(c *Conn, turned uint32) {
		c.expectOpRefused(writeOp, ib.At(c.TargetMem.Addr(), uint32(c.TargetMem.RKey())^turned, 8))
		c.AwaitState(c.QP, verbs.QPStateErr)
	}),
}, {
	ID:   "acc/key/unknown-key-refused-to-reads-and-atomics",
	Cite: ibta("Table 63, error class C", "acc/1"), Needs: verbs.CapAtomics,
	Title:   "READs, atomics and other WRITEs with a key that does not exist are refused with a remote access NAK",
	Sends:   "a READ, a FETCH_ADD, a COMPARE_SWAP, a WRITE with immediate data and the first packet of a long WRITE, with a key that does not exist",
	Expects: "a NAK for a remote access error for each, the QPs in ERR",
	Defects: []string{"AccessNAKsSwapped"}, Run: onEachConn(Setup{Receives: 1}, []remoteOp{readOp, addOp, swapOp, writeImmOp, writeFirstOp}, func(c *Conn, op remoteOp) {
		at := wordRETH(c.TargetMem, 2)
		at.RKey = new(uint32(unknownKey(c.TargetMem.RKey())))
		c.expectOpRefused(op, at)
		c.AwaitState(c.QP, verbs.QPStateErr)
	}),
}, {
	ID: "acc/key/closed-region-refused", Cite: ibta("", "acc/6"),
	Title:   "The key of a region that was deregistered is refused with a remote access NAK",
	Sends:   "a WRITE or a READ to a region, and another after it was deregistered",
	Expects: "the first is executed; to the second a NAK for a remote access error, and memory unchanged",
	Defects: []string{"StaleKeys"}, Run: onEachConn(Setup{}, []remoteOp{writeOp, readOp}, func(c *Conn, op remoteOp) {
		m := c.Memory(64, allAccess)
		c.expectAcked(ib.WriteOnly(c.PeerPSN(0), rethFor(m, 0, 8), Data(8)).AckReq())
		m.Snapshot()
		at := rethFor(m, 0, 8)
		c.Must("a region that can be deregistered", m.Close())
		c.expectRefused(op.packet(c.PeerPSN(1), at), ib.NakRemoteAccess)
		c.ExpectUntouched(m)
	}),
}, {
	ID: "acc/key/closed-during-a-write-refused", Cite: ibta("", "acc/6"),
	Title:   "A WRITE of several packets is refused from the packet on that arrives after its key was revoked",
	Sends:   "the FIRST packet of a WRITE to a region, its LAST packet, with immediate data, when the region was deregistered; the same with a type 2 window, if supported, that is invalidated",
	Expects: "an ACK, then a NAK for a remote access error, the bytes of the LAST packet unchanged, and a receive that completes in error",
	Defects: []string{"WriteKeyCheckedOnce"}, Run: onConn(Setup{Receives: 1}, func(c *Conn) {
		m := c.Memory(2*MTU, allAccess)
		c.revokeDuringWrite(m, rethFor(m, 0, 0), func() { c.Must("a region that can be deregistered", m.Close()) })
		if c.Caps.Has(verbs.CapMWType2 | verbs.CapLocalInv) {
			c = c.secondConn(Setup{Receives: 1})
			win := c.bindWindow(verbs.MWType2, 0, 2*MTU, verbs.AccessRemoteWrite)
			c.revokeDuringWrite(win.m, win.reth(0, 0), func() { c.invalidate(win) })
		}
	}),
}, {
	ID: "acc/range/one-byte-beyond-refused", Cite: ibta("Table 63", "acc/2"),
	Title:   "An access that ends one byte after its region is refused with a remote access NAK",
	Sends:   "a WRITE and a READ of the last eight bytes of a region, then of eight bytes from one byte later; a WRITE and a READ of three packets that end one byte after it",
	Expects: "the first are executed; to the others a NAK for a remote access error, and no byte changed by those of one packet",
	Defects: []string{"RangeSlack"}, Run: OnPort(func(p *Port) {
		eachConn(p, Setup{}, []remoteOp{writeOp, readOp}, func(c *Conn, op remoteOp) { c.expectBoundsChecked(op, 56, 57) })
		eachConn(p, Setup{}, []bool{true, false}, func(c *Conn, isWrite bool) {
			const n = 2500
			at := c.RETH(memLen-n+1, n)
			if !isWrite {
				c.expectReadRefused(0, at)
				return
			}
			c.Send(ib.Write(c.PeerPSN(0), at, Data(n), MTU)...)
			// The device may refuse the first packet, or the one that leaves the region.
			got := c.expectAfter(func(a *Arrival) bool { return a.IsAck(ib.AckPositive) && a.PSN() != c.PeerPSN(2) }, "a NAK for a remote access error")
			c.Check(got.IsNak(ib.NakRemoteAccess), "a NAK for a remote access error", "%v", got)
		})
	}),
}, {
	ID: "acc/range/one-byte-before-refused", Cite: ibta("Table 63", "acc/2"),
	Title:   "An access that begins one byte before its region is refused with a remote access NAK",
	Sends:   "a WRITE and a READ of the first eight bytes of a region, then of eight bytes from one byte before",
	Expects: "the first is executed; to the second a NAK for a remote access error, and no byte changed",
	Defects: []string{"RangeSlack"}, Run: onEachConn(Setup{}, []remoteOp{writeOp, readOp}, func(c *Conn, op remoteOp) { c.expectBoundsChecked(op, 0, -1) }),
}, {
	ID: "acc/range/address-that-wraps-refused", Cite: ibta("Table 63", "acc/2"),
	Title:   "An access whose address and length wrap around 2^64 is refused with a remote access NAK",
	Sends:   "WRITEs and READs of 8 bytes at 2^64-4 and at 2^64-8",
	Expects: "a NAK for a remote access error, memory unchanged",
	Defects: []string{"WrappingRange"}, Run: OnPort(func(p *Port) {
		for _, va := range []uint64{math.MaxUint64 - 3, math.MaxUint64 - 7} {
			eachConn(p, Setup{}, []remoteOp{writeOp, readOp}, func(c *Conn, op remoteOp) {
				c.expectOpRefused(op, ib.At(va, c.TargetMem.RKey(), 8))
			})
		}
	}),
}, {
	ID: "acc/range/empty-region-opens-nothing", Cite: ibta("Table 63", "acc/2"),
	Title:   "A zero-length region can be registered and grants access to no byte",
	Sends:   "with the key of a region of no bytes: a WRITE of nothing, then a WRITE and a READ of one byte",
	Expects: "an ACK for nothing; a NAK for a remote access error for a byte",
	Defects: []string{"NoEmptyMR"}, Run: onEachConn(Setup{}, []remoteOp{writeOp, readOp}, func(c *Conn, op remoteOp) {
		mr, err := c.PD.RegMR(verbs.MRInit{Buf: c.TargetMem.Buf[:0], Access: allAccess})
		c.Must("a region of no bytes", err)
		at := ib.At(mr.Addr(), uint32(mr.RKey()), 0)
		c.expectAcked(ib.WriteOnly(c.PeerPSN(0), at, nil).AckReq())
		c.expectRefused(op.packet(c.PeerPSN(1), at.Sized(1)), ib.NakRemoteAccess)
		c.ExpectUntouched(c.TargetMem)
	}),
}, {
	ID: "acc/pd/region-of-another-domain-refused", Cite: ibta("C10-56", "acc/5"),
	Title:   "The key of a region in another protection domain is refused with a remote access NAK",
	Sends:   "a WRITE and a READ to a region in another domain than that of the QP",
	Expects: "a NAK for a remote access error, memory unchanged",
	Defects: []string{"IgnorePD"}, Run: onEachConn(Setup{}, []remoteOp{writeOp, readOp}, func(c *Conn, op remoteOp) {
		m := c.otherPDMemory(allAccess)
		c.expectNoEffect(m, op.packet(c.PeerPSN(0), rethFor(m, 0, 8)), ib.NakRemoteAccess)
	}),
}, {
	ID: "acc/pd/srq-domain-does-not-rule-writes", Cite: ibta("C10-56", "acc/5", "srq/1"), Needs: verbs.CapSRQ,
	Title:   "A WRITE to a QP with an SRQ of another PD is checked against the PD of the QP",
	Sends:   "a WRITE with immediate data to a region of the QP's domain, then one to a region of the SRQ's",
	Expects: "the first is executed and completes a receive; to the second a NAK for a remote access error",
	Defects: []string{"SRQDomainForWrites"}, Run: OnPort(func(p *Port) {
		pd := p.otherPD()
		srq, foreign := p.newSRQ(pd), p.MemoryIn(pd, 64, allAccess)
		c := p.connect(Setup{srq: srq})
		c.PostRecv(srq, 1, foreign.SGE(32, 8))
		c.expectAcked(ib.WriteOnlyImm(c.PeerPSN(0), c.RETH(0, 8), 7, Data(8)).AckReq())
		c.ExpectRecv(1, 8)
		c.expectNoEffect(foreign, writeOp.packet(c.PeerPSN(1), rethFor(foreign, 0, 8)), ib.NakRemoteAccess)
	}),
}, {
	ID: "acc/rights/region-without-remote-write-refuses", Cite: ibta("C10-57", "acc/3"),
	Title:   "A WRITE to a region without the remote write right is refused with a remote access NAK",
	Sends:   "WRITEs to a region that grants everything else, and to one that grants nothing",
	Expects: "a NAK for a remote access error, memory unchanged",
	Defects: []string{"RightsIgnored"}, Run: onEachConn(Setup{}, []verbs.Access{noRemoteWrite, verbs.AccessLocalWrite}, func(c *Conn, access verbs.Access) {
		m := c.Memory(64, access)
		c.expectNoEffect(m, writeOp.packet(c.PeerPSN(0), rethFor(m, 0, 8)), ib.NakRemoteAccess)
	}),
}, {
	ID: "acc/rights/qp-without-remote-write-refuses", Cite: ibta("", "acc/4"),
	Title:   "A WRITE to a QP without the remote write right is refused, whatever the region grants",
	Sends:   "a WRITE of one packet and one of three to a region that grants everything, on a QP that does not",
	Expects: "a NAK, and memory unchanged",
	Defects: []string{"RightsIgnored"}, Run: onEachConn(Setup{access: noRemoteWrite}, []int{8, 2500}, func(c *Conn, n int) {
		m := c.Memory(memLen, allAccess)
		c.Send(ib.Write(c.PeerPSN(0), rethFor(m, 0, n), Data(n), MTU)...)
		got := c.expect(ib.Op(ib.OpAcknowledge).WithPSN(c.PeerPSN(0)))
		// Another case checks the NAK code.
		c.Check(got.IsAck(ib.AckNegative) && !got.IsNak(ib.NakSequence), "a fatal NAK", "%v", got)
		c.Sync()
		c.ExpectUntouched(m)
	}),
}, {
	ID: "acc/rights/qp-without-the-right-is-an-invalid-request", Cite: ibta("", "acc/4"), Needs: verbs.CapAtomics,
	// A QP has no local write right, so this grants nothing.
	Title:   "An operation that the QP does not permit is refused as an invalid request",
	Sends:   "a WRITE without and with immediate data, a READ, a FETCH_ADD and a COMPARE_SWAP to a region that grants everything, on a QP that grants nothing",
	Expects: "a NAK for an invalid request for each",
	Defects: []string{"AccessNAKsSwapped"}, Run: onEachConn(Setup{access: verbs.AccessLocalWrite, Receives: 1}, []remoteOp{writeOp, writeImmOp, readOp, addOp, swapOp}, func(c *Conn, op remoteOp) {
		m := c.Memory(64, allAccess)
		c.expectNoEffect(m, op.packet(c.PeerPSN(0), wordRETH(m, 2)), ib.NakInvalidRequest)
	}),
}, {
	ID: "acc/event/refused-write-reported-to-the-responder", Cite: ibta("C9-222.1.1", "acc/7", "async/1"),
	Title:   "A request that is refused for its key raises an event of the responder's QP",
	Sends:   "a WRITE, and to another QP a READ, with a key that does not exist",
	Expects: "the event QP_ACCESS_ERR with each QP",
	Defects: []string{"NoQPEvents"}, Run: OnPort(func(p *Port) {
		// Do not synchronize here: the synchronization QP causes events too.
		for _, op := range []remoteOp{writeOp, readOp} {
			c := p.connect(Setup{})
			c.expectRefused(op.packet(c.PeerPSN(0), c.unknownKeyRETH(8)), ib.NakRemoteAccess)
			e := c.ExpectEvent(verbs.EventQPAccessErr)
			c.Check(e.QP != nil && e.QP.QPN() == c.QP.QPN(), "the event of the QP that refused it", "%+v", e)
		}
	}),
}, {
	ID: "acc/place/refused-write-places-nothing", Cite: ibta("", "acc/8"),
	// A WRITE of several packets of which only the last is out of bounds is not
	// tested: the device may place the packets before the refused one.
	Title:   "A refused WRITE places no byte",
	Sends:   "WRITEs of one packet to a region without remote write, and to one that ends a byte before; one of three packets to the first",
	Expects: "a NAK; no byte in or around the region changed",
	Defects: []string{"PlacedBeforeCheck"}, Run: onEachConn(Setup{}, []refusedWrite{{noRemoteWrite, 0, 16}, {noRemoteWrite, 0, 2500}, {allAccess, memLen - 15, 16}}, func(c *Conn, w refusedWrite) {
		m := c.Memory(memLen, w.access)
		c.Send(ib.Write(c.PeerPSN(0), rethFor(m, w.off, w.n), Data(w.n), MTU)...)
		c.expectNak(c.PeerPSN(0), ib.NakRemoteAccess)
		c.Sync()
		c.ExpectUntouched(m)
	}),
}})

// expectBoundsChecked registers 64 bytes. It fails the case unless the device executes op on eight
// bytes at offset inside, and refuses it at offset outside.
func (c *Conn) expectBoundsChecked(op remoteOp, inside, outside int) {
	m := c.Memory(64, allAccess)
	c.expectOpExecuted(0, op, rethFor(m, inside, 8))
	c.expectNoEffect(m, op.packet(c.PeerPSN(1), rethFor(m, outside, 8)), ib.NakRemoteAccess)
}

const noRemoteWrite = allAccess &^ verbs.AccessRemoteWrite

// refusedWrite is a WRITE of n bytes to offset off of a region with these access rights.
type refusedWrite struct {
	access verbs.Access
	off, n int
}

// revokeDuringWrite sends the FIRST packet of a WRITE to the start of m, calls revoke, and fails the
// case unless the LAST packet, with immediate data, is then refused and not placed, and the receive
// completes in error.
func (c *Conn) revokeDuringWrite(m *rig.Memory, at ib.RETH, revoke func()) {
	parts := ib.Write(c.PeerPSN(0), at, Data(2*MTU), MTU)
	c.expectAcked(parts[0].AckReq())
	m.Snapshot()
	revoke()
	c.expectNoEffect(m, ib.New(ib.OpWriteLastImm, c.PeerPSN(1), parts[1].Payload).WithImm(7), ib.NakRemoteAccess)
	c.expectErrorCompletion(1) // flushed, or with the cause
}
