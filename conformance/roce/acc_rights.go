package roce

import (
	"github.com/fabrictest/fabrictest/conformance"
	"github.com/fabrictest/fabrictest/conformance/packet/ib"
	"github.com/fabrictest/fabrictest/verbs"
)

const noRemoteWrite = allAccess &^ verbs.AccessRemoteWrite

var rightsCases = overRC.Cases([]conformance.Case{{
	ID: "acc/rights/region-without-remote-write-refuses", Cite: ibta("", "roce/acc/3"),
	Run: OnPort(onEachConn(Setup{}, []verbs.Access{noRemoteWrite, verbs.AccessLocalWrite}, func(c *Conn, access verbs.Access) {
		m := c.Memory(64, access)
		c.expectOpRefused(writeOp, rethFor(m, 0, 8), ib.NakRemoteAccess)
		c.ExpectUnchanged(m, 0, 0)
	})),
}, {
	ID: "acc/rights/qp-without-remote-write-refuses", Cite: ibta("", "roce/acc/4"),
	Run: OnPort(onEachConn(Setup{access: noRemoteWrite}, []int{8, 2500}, func(c *Conn, n int) {
		m := c.Memory(memLen, allAccess)
		c.Send(ib.Write(c.PeerPSN(0), rethFor(m, 0, n), Data(n), MTU)...)
		got := c.expect(ib.Op(ib.OpAcknowledge).WithPSN(c.PeerPSN(0)))
		// Another case checks the NAK code.
		c.Check(got.IsAck(ib.AckNegative) && !got.IsNak(ib.NakSequence), "a fatal NAK", "%v", got)
		c.Sync()
		c.ExpectUnchanged(m, 0, 0)
	})),
}, {
	ID: "acc/rights/qp-without-the-right-is-an-invalid-request", Cite: ibta("", "roce/acc/4"), Needs: verbs.CapAtomics,
	// A QP has no local write right, so this grants nothing.
	Run: OnPort(onEachConn(Setup{access: verbs.AccessLocalWrite}, []remoteOp{writeOp, readOp, addOp}, func(c *Conn, op remoteOp) {
		m := c.Memory(64, allAccess)
		c.expectOpRefused(op, wordRETH(m, 2), ib.NakInvalidRequest)
		c.ExpectUnchanged(m, 0, 0)
	})),
}, {
	ID: "acc/event/refused-write-reported-to-the-responder", Cite: ibta("C9-222.1.1", "roce/acc/7", "roce/async/1"),
	Run: OnPort(func(p *Port) {
		// Do not synchronize here: the synchronization QP causes events too.
		for _, op := range []remoteOp{writeOp, readOp} {
			c := p.connect(Setup{})
			c.Send(op.packet(c.PeerPSN(0), ib.At(c.TargetMem.Addr(), uint32(unknownKey(c.TargetMem.RKey())), 8)))
			c.expectNak(c.PeerPSN(0), ib.NakRemoteAccess)
			e := c.ExpectEvent(verbs.EventQPAccessErr)
			c.Check(e.QP != nil && e.QP.QPN() == c.QP.QPN(), "the event of the QP that refused it", "%+v", e)
		}
	}),
}, {
	ID: "acc/place/refused-write-places-nothing", Cite: ibta("", "roce/acc/8"),
	// A WRITE of several packets of which only the last is out of bounds is not
	// tested: the device may place the packets before the refused one.
	Run: OnPort(onEachConn(Setup{}, []refusedWrite{{noRemoteWrite, 0, 16}, {noRemoteWrite, 0, 2500}, {allAccess, memLen - 15, 16}}, func(c *Conn, w refusedWrite) {
		m := c.Memory(memLen, w.access)
		c.Send(ib.Write(c.PeerPSN(0), rethFor(m, w.off, w.n), Data(w.n), MTU)...)
		c.expectNak(c.PeerPSN(0), ib.NakRemoteAccess)
		c.Sync()
		c.ExpectUnchanged(m, 0, 0)
	})),
}})

// refusedWrite is a WRITE of n bytes to offset off of a region with these access rights.
type refusedWrite struct {
	access verbs.Access
	off, n int
}
