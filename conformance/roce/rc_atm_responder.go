package roce

import (
	"math"

	"github.com/fabrictest/fabrictest/conformance"
	"github.com/fabrictest/fabrictest/conformance/packet/ib"
	"github.com/fabrictest/fabrictest/verbs"
)

var atomicCases = conformance.Group{Needs: verbs.CapRC | verbs.CapAtomics, Labels: labelRC}.Cases([]conformance.Case{{
	ID: "rc/atm/cas-stores-only-if-equal", Cite: ibta("", "roce/rc/atm/1"),
	Run: onConn(Setup{}, func(c *Conn) {
		const was, swap = 0x0123456789abcdef, 0xfedcba9876543210
		setWord(c.TargetMem, 2, was)
		c.Send(ib.CompareSwap(c.PeerPSN(0), wordRETH(c.TargetMem, 2), was^1<<40, swap))
		c.expect(ib.AtomicAck(c.PeerPSN(0), ib.AnyMSN, was))
		c.expectWord(c.TargetMem, 2, was)
		c.Send(ib.CompareSwap(c.PeerPSN(1), wordRETH(c.TargetMem, 2), was, swap))
		c.expect(ib.AtomicAck(c.PeerPSN(1), ib.AnyMSN, was))
		c.expectWord(c.TargetMem, 2, swap)
	}),
}, {
	ID: "rc/atm/fetch-add-wraps", Cite: ibta("", "roce/rc/atm/2"),
	Run: onConn(Setup{}, func(c *Conn) {
		value := uint64(1) << 60
		setWord(c.TargetMem, 2, value)
		for i, add := range []uint64{5, math.MaxUint64, math.MaxUint64 - value - 4, 1} {
			c.Send(ib.FetchAdd(c.PeerPSN(i), wordRETH(c.TargetMem, 2), add))
			c.expect(ib.AtomicAck(c.PeerPSN(i), ib.AnyMSN, value))
			value += add
			c.expectWord(c.TargetMem, 2, value)
		}
	}),
}, {
	ID: "rc/atm/misaligned-address-refused", Cite: ibta("9.4.5", "roce/rc/atm/3"),
	Run: OnPort(onEachConn(Setup{}, []int{1, 2, 4}, func(c *Conn, off int) {
		at := wordRETH(c.TargetMem, 2).Skip(off)
		c.expectAtomicRefused(ib.FetchAdd(c.PeerPSN(0), at, 1), ib.NakInvalidRequest)
		c = c.secondConn(Setup{})
		c.expectAtomicRefused(ib.CompareSwap(c.PeerPSN(0), at, 0, 1), ib.NakInvalidRequest)
	})),
}, {
	ID: "rc/atm/qp-without-the-right-refuses", Cite: ibta("", "roce/rc/atm/8"),
	Run: onConn(Setup{access: allAccess &^ verbs.AccessRemoteAtomic}, func(c *Conn) {
		m := c.Memory(64, allAccess)
		c.expectAtomicRefused(ib.FetchAdd(c.PeerPSN(0), wordRETH(m, 2), 1), ib.NakInvalidRequest)
		c.ExpectUnchanged(m, 0, 0)
	}),
}, {
	ID: "rc/atm/region-without-the-right-refuses", Cite: ibta("", "roce/rc/atm/8", "roce/rc/atm/13"),
	Run: OnPort(onEachConn(Setup{}, []verbs.Access{
		allAccess &^ verbs.AccessRemoteAtomic, verbs.AccessRemoteRead,
	}, func(c *Conn, access verbs.Access) {
		m := c.Memory(64, access)
		c.expectAtomicRefused(ib.FetchAdd(c.PeerPSN(0), wordRETH(m, 2), 1), ib.NakRemoteAccess)
		c.ExpectUnchanged(m, 0, 0)
	})),
}, {
	ID: "rc/atm/end-of-the-region-refused", Cite: ibta("", "roce/rc/atm/13"),
	Run: OnPort(onEachConn(Setup{}, []int{4, 0}, func(c *Conn, inside int) {
		// Register a part of the memory again, so that the case sees changes after
		// its end.
		n := c.TargetMem.WordOffset(2) + inside
		mr, err := c.PD.RegMR(verbs.MRInit{Buf: c.TargetMem.Buf[:n:n], Addr: c.TargetMem.Addr(), Access: allAccess})
		c.Must("a region at chosen addresses", err)
		at := wordRETH(c.TargetMem, 2)
		at.RKey = new(uint32(mr.RKey()))
		c.expectAtomicRefused(ib.FetchAdd(c.PeerPSN(0), at, 1<<33+1), ib.NakRemoteAccess)
	})),
}, {
	ID: "rc/atm/qps-do-not-lose-updates", Cite: ibta("", "roce/rc/atm/9"),
	Run: onConn(Setup{}, func(c *Conn) {
		const rounds, atATime, start = 50, 4, 1 << 40
		setWord(c.TargetMem, 2, start)
		other, seen := c.secondConn(Setup{}), make(map[uint64]bool)
		for n := 0; n < rounds*atATime; n += atATime {
			for i := range atATime {
				c.Send(ib.FetchAdd(c.PeerPSN(n+i), wordRETH(c.TargetMem, 2), 1))
				other.Send(ib.FetchAdd(other.PeerPSN(n+i), wordRETH(c.TargetMem, 2), 1))
			}
			for _, p := range c.nextPackets(2 * atATime) {
				c.checkPacket(ib.Op(ib.OpAtomicAcknowledge), p)
				was := *p.AtomicAck.Original
				c.Check(!seen[was] && was-start < 2*rounds*atATime, "an original value that no other atomic returned", "%v", p)
				seen[was] = true
			}
		}
		c.expectWord(c.TargetMem, 2, start+2*rounds*atATime)
	}),
}})

// expectAtomicRefused sends an atomic with the first PSN, and fails the case unless the
// device sends a NAK with this code and leaves memory unchanged.
func (c *Conn) expectAtomicRefused(atomic ib.Packet, code ib.NakCode) {
	c.Send(atomic)
	c.expectNak(c.PeerPSN(0), code)
	c.Sync()
	c.ExpectUnchanged(c.TargetMem, 0, 0)
}
