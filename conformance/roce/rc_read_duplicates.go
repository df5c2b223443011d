package roce

import (
	"github.com/fabrictest/fabrictest/conformance"
	"github.com/fabrictest/fabrictest/conformance/packet/ib"
	"github.com/fabrictest/fabrictest/verbs"
)

var readAgainCases = overRC.Cases([]conformance.Case{{
	ID: "rc/read/duplicate-read-again", Cite: ibta("summary of duplicate requests", "roce/rc/read/5"),
	Run: onConn(Setup{}, func(c *Conn) {
		read := c.readOnce(2500)
		c.Send(ib.WriteOnly(c.PeerPSN(3), c.RETH(0, 0), nil).AckReq())
		c.expectAck(c.PeerPSN(3))
		c.Send(read)
		c.expectReadResponses(c.PeerPSN(0), c.TargetMem.Buf[:2500])
	}),
}, {
	ID: "rc/read/part-read-again-keeps-psns-and-bytes", Cite: ibta("9.4.4", "roce/rc/read/6"),
	Run: onConn(Setup{}, func(c *Conn) {
		c.readOnce(2500)
		c.readTail(1, 2500)
	}),
}, {
	ID: "rc/read/earlier-part-still-answered-after-a-later-one", Cite: ibta("9.4.4", "roce/rc/read/6"),
	Run: onConn(Setup{}, func(c *Conn) {
		const n = 4000
		c.readOnce(n)
		for k := 3; k >= 0; k-- {
			c.readTail(k, n)
		}
	}),
}, {
	ID: "rc/read/part-read-again-is-a-message-of-its-own", Cite: ibta("", "roce/rc/read/7"), Level: conformance.Should,
	Run: onConn(Setup{}, func(c *Conn) {
		c.readOnce(2500)
		for k := 1; k < 3; k++ {
			c.Send(ib.ReadRequest(c.PeerPSN(k), c.RETH(0, 2500).Skip(k*MTU)))
			c.expectReadResponses(c.PeerPSN(k), c.TargetMem.Buf[k*MTU:2500])
		}
	}),
}, {
	ID: "rc/read/duplicate-beyond-the-original-dropped", Cite: ibta("", "roce/rc/read/9"),
	Run: onConn(Setup{}, func(c *Conn) {
		original := ib.ReadRequest(c.PeerPSN(0), c.RETH(256, 1000))
		c.Send(original)
		c.expectReadResponses(c.PeerPSN(0), c.TargetMem.Buf[256:1256])
		for _, beyond := range []ib.RETH{c.RETH(256, 1001), c.RETH(256, 2*MTU), c.RETH(255, 1000)} {
			c.Send(ib.ReadRequest(c.PeerPSN(0), beyond))
			c.expectSilence(silencePeriod)
		}
		c.Send(original)
		c.expectReadResponses(c.PeerPSN(0), c.TargetMem.Buf[256:1256])
	}),
}, {
	ID: "rc/read/duplicate-with-another-key-dropped", Cite: ibta("", "roce/rc/read/9"),
	Run: onConn(Setup{}, func(c *Conn) {
		twin, err := c.PD.RegMR(verbs.MRInit{Buf: make([]byte, memLen), Addr: c.TargetMem.Addr(), Access: allAccess})
		c.Must("a region at chosen addresses", err)
		original := c.readOnce(1000)
		for _, key := range []verbs.RKey{twin.RKey(), unknownKey(c.TargetMem.RKey())} {
			c.Send(ib.ReadRequest(c.PeerPSN(0), ib.At(c.TargetMem.Addr(), uint32(key), 1000)))
			c.expectSilence(silencePeriod)
		}
		c.Send(original)
		c.expectReadResponses(c.PeerPSN(0), c.TargetMem.Buf[:1000])
	}),
}, {
	ID: "rc/read/duplicate-of-a-closed-region-refused", Cite: ibta("", "roce/rc/read/21"),
	Run: onConn(Setup{}, func(c *Conn) {
		m := c.Memory(64, allAccess)
		read := ib.ReadRequest(c.PeerPSN(0), rethFor(m, 0, 64))
		c.Send(read)
		c.expectReadResponses(c.PeerPSN(0), m.Buf)
		c.Must("a region that can be deregistered", m.Close())
		c.Send(read)
		c.expectNak(c.PeerPSN(0), ib.NakRemoteAccess)
		c.expectSilence(silencePeriod)
		if c.Caps.Has(verbs.CapMWType2 | verbs.CapLocalInv) {
			c.secondConn(Setup{}).readInvalidatedWindow()
		}
	}),
}})

// readInvalidatedWindow reads through a window, and fails the case unless a duplicate of
// the READ is refused after the window was invalidated.
func (c *Conn) readInvalidatedWindow() {
	win := c.bindWindow(verbs.MWType2, 0, 64, verbs.AccessRemoteRead)
	c.expectRead(0, win.reth(0, 8), win.m.Buf[:8])
	c.PostSend(c.QP, verbs.SendWR{WRID: 1, Opcode: verbs.OpLocalInv, Flags: verbs.SendSignaled, InvalidateRKey: win.key})
	c.ExpectCompletion(1, verbs.WCSuccess)
	c.expectReadRefused(0, win.reth(0, 8))
}

// readOnce reads n bytes from the start of targetMem with the first PSN, and returns the
// request.
func (c *Conn) readOnce(n int) ib.Packet {
	read := ib.ReadRequest(c.PeerPSN(0), c.RETH(0, n))
	c.Send(read)
	c.expectReadResponses(c.PeerPSN(0), c.TargetMem.Buf[:n])
	return read
}

// readTail requests the responses to a READ of n bytes again, from the k-th on. The
// opcodes of the responses may be those of a new message or of the original one.
func (c *Conn) readTail(k, n int) {
	c.Send(ib.ReadRequest(c.PeerPSN(k), c.RETH(0, n).Skip(k*MTU)))
	for ; k < ib.Packets(n, MTU); k++ {
		got := c.expect(ib.Packet{}.WithPSN(c.PeerPSN(k)).WithPayload(c.TargetMem.Buf[k*MTU : min((k+1)*MTU, n)]))
		info, _ := got.Info()
		c.Check(info.Kind == ib.KindReadResponse, "a READ response", "%v", got)
	}
}
