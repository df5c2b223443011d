package roce

import (
	"fmt"

	"github.com/fabrictest/fabrictest/conformance"
	"github.com/fabrictest/fabrictest/conformance/packet/ib"
	"github.com/fabrictest/fabrictest/verbs"
)

var windowCases = overRC.Cases([]conformance.Case{{
	ID: "mw/access/range-of-the-window-only", Cite: ibta("", "roce/mw/5"), Needs: verbs.CapMWType2,
	Run: OnPort(windowRange(verbs.MWType2)),
}, {
	ID: "mw/access/range-of-a-type-1-window-only", Cite: ibta("", "roce/mw/5"), Needs: verbs.CapMWType1,
	Run: OnPort(windowRange(verbs.MWType1)),
}, {
	ID: "mw/access/rights-of-the-window-only", Cite: ibta("", "roce/mw/6"), Needs: verbs.CapMWType2,
	Run: OnPort(onEachConn(Setup{}, []windowAccess{
		{verbs.AccessRemoteRead, readOp, writeOp}, {verbs.AccessRemoteWrite, writeOp, readOp},
	}, func(c *Conn, w windowAccess) {
		win := c.bindWindow(verbs.MWType2, 1024, 256, w.access)
		c.expectOpExecuted(w.granted, win.reth(0, 8))
		win.m.Snapshot()
		c.Send(w.refused.packet(c.PeerPSN(1), win.reth(0, 8)))
		c.expectNak(c.PeerPSN(1), ib.NakRemoteAccess)
		c.Sync()
		c.ExpectUnchanged(win.m, 0, 0)
	})),
}, {
	ID: "mw/access/atomics-through-a-window", Cite: ibta("", "roce/mw/6"), Needs: verbs.CapMWType2 | verbs.CapAtomics,
	Run: onConn(Setup{}, func(c *Conn) {
		m := c.bindableMemory()
		at := m.WordOffset(128)
		setWord(m, 128, 41)
		granting := bindRange(m, at, 64, verbs.AccessRemoteAtomic)
		key := c.bind(c.newWindow(verbs.MWType2), granting)
		c.Send(ib.FetchAdd(c.PeerPSN(0), windowRETH(granting, key, 0, 8), 1))
		c.expect(ib.AtomicAck(c.PeerPSN(0), ib.AnyMSN, 41))
		c.expectWord(m, 128, 42)
		other := bindRange(m, at, 64, verbs.AccessRemoteRead|verbs.AccessRemoteWrite)
		key = c.bind(c.newWindow(verbs.MWType2), other)
		c.Send(ib.FetchAdd(c.PeerPSN(1), windowRETH(other, key, 0, 8), 1))
		c.expectNak(c.PeerPSN(1), ib.NakRemoteAccess)
		c.expectWord(m, 128, 42)
	}),
}, {
	ID: "mw/access/type-2-on-its-own-qp-only", Cite: ibta("", "roce/mw/7"), Needs: verbs.CapMWType2,
	Run: onConn(Setup{}, func(c *Conn) {
		win := c.bindWindow(verbs.MWType2, 1024, 256, verbs.AccessRemoteRead)
		c.expectRead(0, win.reth(0, 8), win.m.Buf[1024:1032])
		c.secondConn(Setup{}).expectOpRefused(readOp, win.reth(0, 8), ib.NakRemoteAccess)
	}),
}, {
	ID:   "mw/access/zero-based-window-begins-at-zero",
	Cite: ibta("o10-36.2.2", "roce/mw/10"), Needs: verbs.CapMWType2 | verbs.CapZeroBased,
	Run: onConn(Setup{}, func(c *Conn) {
		win := c.bindWindow(verbs.MWType2, 1024, 256, verbs.AccessRemoteRead|verbs.AccessZeroBased)
		c.expectRead(0, ib.At(0, win.key, 8), win.m.Buf[1024:1032])
		c.expectRead(1, ib.At(248, win.key, 8), win.m.Buf[1272:1280])
		c.expectReadRefused(2, win.reth(0, 8))
	}),
}, {
	ID:   "mw/access/zero-based-region-begins-at-zero",
	Cite: ibta("o10-36.2.2", "roce/mw/10", "roce/acc/2"), Needs: verbs.CapZeroBased,
	Run: onConn(Setup{}, func(c *Conn) {
		m := c.Memory(64, allAccess|verbs.AccessZeroBased)
		c.expectRead(0, ib.At(0, m.RKey(), 8), m.Buf[:8])
		c.expectRead(1, ib.At(56, m.RKey(), 8), m.Buf[56:])
		c.expectReadRefused(2, ib.At(57, m.RKey(), 8))
	}),
}, {
	ID: "mw/life/region-with-windows-is-not-left-open", Cite: ibta("10.6.7.2.6", "roce/mw/11"), Needs: verbs.CapMWType2,
	Run: onConn(Setup{}, func(c *Conn) {
		win := c.bindWindow(verbs.MWType2, 1024, 256, verbs.AccessRemoteRead)
		if err := win.m.Close(); err != nil {
			c.expectRead(0, win.reth(0, 8), win.m.Buf[1024:1032])
			return
		}
		c.expectOpRefused(readOp, win.reth(0, 8), ib.NakRemoteAccess)
	}),
}, {
	ID: "mw/life/qp-with-windows-can-be-destroyed", Cite: ibta("o10-2.2.5", "roce/mw/12"), Needs: verbs.CapMWType2,
	// A known device waits for the window for most of a minute, gives up, and later
	// dereferences the destroyed QP.
	Labels: []string{conformance.Dangerous},
	Run: onConn(Setup{}, func(c *Conn) {
		info, mw := bindRange(c.bindableMemory(), 1024, 256, verbs.AccessRemoteRead), c.newWindow(verbs.MWType2)
		key := c.bind(mw, info)
		began := c.Now()
		c.Must("a QP with a bound window that can be destroyed", c.QP.Close())
		took := c.Now() - began
		c.Check(took < c.ResponseTimeout(), fmt.Sprintf("a QP with a bound window that is destroyed within %v", c.ResponseTimeout()), "after %v", took)
		c.secondConn(Setup{}).expectOpRefused(readOp, windowRETH(info, key, 0, 8), ib.NakRemoteAccess)
		c.Must("a window that can be freed", mw.Close())
	}),
}, {
	ID:   "mw/life/local-invalidate-waits-for-earlier-requests",
	Cite: ibta("10.6.5.1", "roce/mw/14"), Needs: verbs.CapMWType2 | verbs.CapLocalInv,
	Run: onConn(Setup{}, func(c *Conn) {
		win := c.bindWindow(verbs.MWType2, 1024, 256, verbs.AccessRemoteRead)
		c.postRead(8)
		c.expect(ib.ReadRequest(c.DevicePSN(0), rdmaRemoteRETH(8)))
		c.PostSend(c.QP, verbs.SendWR{WRID: 2, Opcode: verbs.OpLocalInv, Flags: verbs.SendSignaled, InvalidateRKey: win.key})
		c.expectRead(0, win.reth(0, 8), win.m.Buf[1024:1032])
		c.ExpectNoCompletion()
		c.completeWith(ib.ReadResponseOnly(c.DevicePSN(0), 1, Data(8)), 1, 2)
		c.expectReadRefused(1, win.reth(0, 8))
	}),
}})

// windowAccess are the access rights of a window, with an operation that they grant and
// one that they do not.
type windowAccess struct {
	access           verbs.Access
	granted, refused remoteOp
}

// windowRange is the body of the cases about the range of a window.
func windowRange(kind verbs.MWType) func(*Port) {
	return func(p *Port) {
		for _, outside := range []int{252, -4} {
			onEachConn(Setup{}, []remoteOp{readOp, writeOp}, func(c *Conn, op remoteOp) {
				win := c.bindWindow(kind, 1024, 256, verbs.AccessRemoteRead|verbs.AccessRemoteWrite)
				c.expectOpExecuted(op, win.reth(248, 8))
				win.m.Snapshot()
				c.Send(op.packet(c.PeerPSN(1), win.reth(outside, 8)))
				c.expectNak(c.PeerPSN(1), ib.NakRemoteAccess)
				c.Sync()
				c.ExpectUnchanged(win.m, 0, 0)
			})(p)
		}
	}
}
