package roce

import (
	"fmt"

	"github.com/fabrictest/fabrictest/conformance"
	"github.com/fabrictest/fabrictest/conformance/packet/ib"
	"github.com/fabrictest/fabrictest/conformance/rig"
	"github.com/fabrictest/fabrictest/verbs"
)

var readCases = overRC.Cases([]conformance.Case{{
	ID: "rc/read/response-is-cut-at-the-path-mtu", Cite: ibta("9.4.4", "rc/read/1"),
	Title:   "A READ up to the path MTU is answered by RESPONSE_ONLY, a longer one by FIRST, MIDDLEs and LAST, all full but the last",
	Sends:   "READs of 1 byte, of one and two path MTUs, of one byte more, and of 2500 bytes",
	Expects: "packets of these kinds, full but for the last",
	Defects: []string{"AETHInMiddle"}, Run: onConn(Setup{}, func(c *Conn) {
		psn := c.PeerPSN(0)
		for _, n := range []int{1, MTU, MTU + 1, 2 * MTU, 2*MTU + 1, 2500} {
			c.Send(ib.ReadRequest(psn, c.RETH(3, n)))
			for _, want := range ib.ReadResponses(psn, ib.AnyMSN, c.TargetMem.Buf[3:][:n], MTU) {
				got := c.expect(ib.Op(want.Opcode()))
				c.Check(len(got.Payload) == len(want.Payload), fmt.Sprintf("%d bytes of %d in it", len(want.Payload), n), "%v", got)
			}
			psn = psn.Add(ib.Packets(n, MTU))
		}
	}),
}, {
	ID: "rc/read/aeth-in-all-but-middle", Cite: ibta("9.4.4", "rc/read/2"),
	Title:   "READ responses FIRST, LAST and ONLY carry an AETH, MIDDLE carries none",
	Sends:   "a READ of four packets, and one of a single packet",
	Expects: "the data of MIDDLEs begin after the BTH, those of the others after an AETH that acknowledges",
	Defects: []string{"AETHInMiddle"}, Run: onConn(Setup{}, func(c *Conn) {
		c.Send(c.peerRead(0, 4*MTU), c.peerRead(4, 4))
		for i, want := range append(ib.ReadResponses(c.PeerPSN(0), ib.AnyMSN, c.TargetMem.Buf[:4*MTU], MTU),
			ib.ReadResponseOnly(c.PeerPSN(4), ib.AnyMSN, c.TargetMem.Buf[:4])) {
			got := c.expect(want)
			// If the payload was parsed as an AETH, the MSN would be too large.
			c.Check(got.AETH == nil || got.MSN() <= 2, "an AETH", "packet %d: %v", i, got)
		}
	}),
}, {
	ID: "rc/read/response-psns-count-up-from-the-request", Cite: ibta("", "rc/read/3"),
	Title:   "The PSNs of READ responses increase by one from that of the request",
	Sends:   "a READ of four packets whose PSNs wrap around 2^24",
	Expects: "responses with PSNs 16777214, 16777215, 0 and 1",
	Defects: []string{"ReadPSNStuck"}, Run: onConn(Setup{Modify: func(a *verbs.QPAttr) { a.RQPSN = 0xfffffe }}, func(c *Conn) {
		c.Send(c.peerRead(0, 4*MTU))
		for i := range 4 {
			c.expect(ib.Packet{}.WithPSN(c.PeerPSN(i)))
		}
	}),
}, {
	ID: "rc/read/of-nothing-looks-at-no-key", Cite: ibta("C9-88", "rc/read/4"),
	Title:   "A READ of no bytes is answered without checking its key and address",
	Sends:   "a READ of no bytes with a key that does not exist, and an invalid address",
	Expects: "a RESPONSE_ONLY without payload",
	Defects: []string{"ZeroLengthChecksKey"}, Run: onConn(Setup{}, func(c *Conn) {
		c.expectRead(0, ib.At(3, unknownKey(c.TargetMem.RKey()), 0), []byte{})
	}),
}, {
	ID: "rc/read/of-nothing-can-be-posted", Cite: ibta("C9-88", "rc/read/4"),
	Title:   "A READ of no bytes can be posted, is sent and succeeds",
	Sends:   "posts a READ without local memory, and answers it with a RESPONSE_ONLY without payload",
	Expects: "a READ_REQUEST of length 0, and SUCCESS",
	Defects: []string{"ZeroReadFails"}, Run: onConn(Setup{}, func(c *Conn) {
		c.PostSend(c.QP, c.ReadWR(1, 0))
		c.expect(ib.ReadRequest(c.DevicePSN(0), ib.RETH{Len: new(uint32(0))}))
		c.completeWith(ib.ReadResponseOnly(c.DevicePSN(0), 1, nil), 1)
	}),
}, {
	ID: "rc/read/needs-the-right-of-qp-and-region", Cite: ibta("", "rc/read/22", "acc/3", "acc/4"),
	Title:   "A READ needs the remote read right from the QP and from the region",
	Sends:   "a READ to a QP without the right, and one of a region without it",
	Expects: "a NAK for an invalid request, a NAK for a remote access error, and no data",
	Defects: []string{"RightsIgnored"}, Run: OnPort(func(p *Port) {
		const noRead = allAccess &^ verbs.AccessRemoteRead
		c := p.connect(Setup{access: noRead})
		c.expectRefused(ib.ReadRequest(c.PeerPSN(0), rethFor(c.Memory(64, allAccess), 0, 8)), ib.NakInvalidRequest)
		c = c.secondConn(Setup{})
		c.expectRefused(ib.ReadRequest(c.PeerPSN(0), rethFor(c.Memory(64, noRead), 0, 8)), ib.NakRemoteAccess)
		c.expectSilence(silencePeriod)
	}),
}, {
	ID: "rc/read/refused-without-responder-resources", Cite: ibta("", "rc/read/17"),
	Title:   "A responder with max_dest_rd_atomic 0 refuses READs as invalid requests",
	Sends:   "a READ to a QP with max_dest_rd_atomic 0",
	Expects: "a NAK for an invalid request, and no data",
	Defects: []string{"ZeroDepthIsOne"}, Run: onConn(Setup{Modify: withResponderResources(0)}, func(c *Conn) {
		c.expectRefused(c.peerRead(0, 8), ib.NakInvalidRequest)
		c.expectSilence(silencePeriod)
	}),
}, {
	ID: "rc/read/refused-beyond-responder-resources", Cite: ibta("", "rc/read/18"),
	Title:   "A READ beyond max_dest_rd_atomic is refused as an invalid request while the others are not answered",
	Sends:   "to a QP with max_dest_rd_atomic 4: a READ, which is answered, one of 1 MiB and at once four more of 8 bytes",
	Expects: "a NAK for an invalid request with the PSN of the last, and no response to it",
	Defects: []string{"NoRdAtomicLimit"}, Run: onConn(Setup{Modify: withResponderResources(4)}, func(c *Conn) {
		fifth := c.sendLongReads(3)
		c.Send(ib.ReadRequest(fifth, c.RETH(0, 8)))
		c.expectNakAfterReads(fifth)
	}),
}, {
	ID: "rc/read/repeated-reads-use-no-resources", Cite: ibta("", "rc/read/18", "rc/read/5"),
	Title:   "A READ is accepted while responses to earlier READs are repeated, as many as max_dest_rd_atomic",
	Sends:   "to a QP with max_dest_rd_atomic 2: READs of 64 responses and of one; then CNPs, both READs again, and at once a third; to another, a READ of 64 responses, then CNPs, the READ again, and at once two more",
	Expects: "the responses to the READs that are not repeated, after other READ responses or not, and no NAK",
	Defects: []string{"RepeatedReadUnanswered"}, Run: onConn(Setup{Modify: func(a *verbs.QPAttr) { a.PathMTU, a.MaxDestRdAtomic = verbs.MTU256, 2 }}, func(c *Conn) {
		c.expectReadsAfterRepeated([]ib.Packet{c.peerRead(0, memLen), c.peerRead(64, 8)}, 65, 66)
		c = c.secondConn(Setup{Modify: func(a *verbs.QPAttr) { a.PathMTU, a.MaxDestRdAtomic = verbs.MTU256, 2 }})
		c.expectReadsAfterRepeated([]ib.Packet{c.peerRead(0, memLen)}, 64, 66)
	}),
}, {
	ID: "rc/read/requester-keeps-to-max-rd-atomic", Cite: ibta("11.2.4.2", "rc/read/16"),
	Title:   "A requester has at most max_rd_atomic READs and atomics outstanding",
	Sends:   "posts a READ with max_rd_atomic 0, and six (every second an atomic, if the device has them) with max_rd_atomic 3, and answers one after the other",
	Expects: "nothing; then three requests at first, and one more for each answer",
	Defects: []string{"RdAtomicRoundsUp"}, Run: onConn(Setup{Modify: func(a *verbs.QPAttr) { a.MaxRdAtomic = 3 }}, func(c *Conn) {
		const all, most = 6, 3
		none := c.connect(Setup{Modify: func(a *verbs.QPAttr) { a.DestQPN, a.MaxRdAtomic = otherPeerQPN, 0 }})
		_, _ = none.QP.PostSend([]verbs.SendWR{none.ReadWR(9, 8)}) // it may fail, now or later
		c.expectSilence(shortWait)
		c.ExpectNoSuccess()
		c.Completions()
		for i := range all {
			wr := c.ReadWR(uint64(i), 8)
			if i%2 == 1 && c.Caps.Has(verbs.CapAtomics) {
				wr.Opcode = verbs.OpAtomicFetchAdd
			}
			c.PostSend(c.QP, wr)
		}
		asked := c.nextPackets(most)
		for i := range all {
			c.expectSilence(silencePeriod)
			if asked[i].Opcode() == ib.OpFetchAdd {
				c.Send(ib.AtomicAck(c.DevicePSN(i), uint32(i+1), 7))
			} else {
				c.Send(ib.ReadResponseOnly(c.DevicePSN(i), uint32(i+1), Data(8)))
			}
			c.ExpectCompletion(uint64(i), verbs.WCSuccess)
			if i+most < all {
				asked = append(asked, c.expect(ib.Packet{}.WithPSN(c.DevicePSN(i+most))))
			}
		}
	}),
}, {
	ID: "rc/read/duplicate-read-again", Cite: ibta("summary of duplicate requests", "rc/read/5"),
	Title:   "A duplicate READ is executed again and answered in full",
	Sends:   "a READ of three packets and a WRITE of no bytes, then the READ again; CNPs, a READ of 16 responses, and the same again after the first of them",
	Expects: "the same responses to both, though the last READ may be answered anew before all responses to it were sent",
	Defects: []string{"DupReadDropped", "RunningReadNotRepeated"}, Run: onConn(Setup{}, func(c *Conn) {
		c.readStart(2500)
		c.expectAcked(c.peerWrite(3, 0))
		c.readStart(2500)
		c.throttle()
		first := ib.Response(ib.OpReadResponseFirst, c.PeerPSN(4), ib.AnyMSN, nil)
		c.exchange(c.peerRead(4, memLen), first)
		c.Send(c.peerRead(4, memLen))
		c.checkPacket(first, c.expectAfter(func(a *Arrival) bool { return c.PeerPSN(4).Less(a.PSN()) }, first.String()))
	}),
}, {
	ID: "rc/read/part-read-again-keeps-psns-and-bytes", Cite: ibta("9.4.4", "rc/read/6"),
	Title:   "A duplicate of the last part of a READ is answered with the original PSNs and bytes",
	Sends:   "a READ of three packets, then one with the second PSN for the data after the first packet",
	Expects: "responses with the second and third PSN and the bytes that belong to them",
	Defects: []string{"SubReadWhole"}, Run: onConn(Setup{}, func(c *Conn) {
		c.readStart(2500)
		c.readTail(1, 2500)
	}),
}, {
	ID: "rc/read/earlier-part-still-answered-after-a-later-one", Cite: ibta("9.4.4", "rc/read/6"),
	Title:   "Duplicates of earlier parts of a READ are answered after duplicates of later parts",
	Sends:   "a READ of four packets, then its tails from the last, the third and the second packet on, and all of it",
	Expects: "each is answered with the PSNs and bytes that belong to it",
	Defects: []string{"SubReadContinues"}, Run: onConn(Setup{}, func(c *Conn) {
		const n = 4000
		c.readStart(n)
		for k := 3; k >= 0; k-- {
			c.readTail(k, n)
		}
	}),
}, {
	ID: "rc/read/part-read-again-is-a-message-of-its-own", Cite: ibta("", "rc/read/7"), Level: conformance.Should,
	Title:   "The responses to a partial duplicate READ begin with FIRST or ONLY",
	Sends:   "a READ of three packets, then its last two, then its last one",
	Expects: "FIRST and LAST, then ONLY",
	Defects: []string{"SubReadContinues"}, Run: onConn(Setup{}, func(c *Conn) {
		c.readStart(2500)
		for k := 1; k < 3; k++ {
			c.expectRead(k, c.RETH(0, 2500).Skip(k*MTU), c.TargetMem.Buf[k*MTU:2500])
		}
	}),
}, {
	ID: "rc/read/duplicate-beyond-the-original-dropped", Cite: ibta("", "rc/read/9"),
	Title:   "A duplicate READ that reaches beyond the range of the original is dropped",
	Sends:   "a READ of 1000 bytes; with the same PSN, READs that are one byte longer, a packet longer, and start earlier; the original again",
	Expects: "a response to the first and the last only",
	Defects: []string{"DupReadUnchecked"}, Run: onConn(Setup{}, func(c *Conn) {
		c.expectRead(0, c.RETH(256, 1000), c.TargetMem.Buf[256:1256])
		for _, beyond := range []ib.RETH{c.RETH(256, 1001), c.RETH(256, 2*MTU), c.RETH(255, 1000)} {
			c.Send(ib.ReadRequest(c.PeerPSN(0), beyond))
			c.expectSilence(silencePeriod)
		}
		c.expectRead(0, c.RETH(256, 1000), c.TargetMem.Buf[256:1256])
	}),
}, {
	ID: "rc/read/duplicate-with-another-key-dropped", Cite: ibta("", "rc/read/9"),
	Title:   "A duplicate READ with another key is dropped, even if the key is valid for the same addresses",
	Sends:   "a READ, then the same with the key of another region at the same addresses, and with a key that does not exist; then the original again",
	Expects: "a response to the first and the last only",
	Defects: []string{"DupReadUnchecked"}, Run: onConn(Setup{}, func(c *Conn) {
		twin, err := c.PD.RegMR(verbs.MRInit{Buf: make([]byte, memLen), Addr: c.TargetMem.Addr(), Access: allAccess})
		c.Must("a region at chosen addresses", err)
		c.readStart(1000)
		for _, key := range []verbs.RKey{twin.RKey(), unknownKey(c.TargetMem.RKey())} {
			c.Send(ib.ReadRequest(c.PeerPSN(0), ib.At(c.TargetMem.Addr(), uint32(key), 1000)))
			c.expectSilence(silencePeriod)
		}
		c.readStart(1000)
	}),
}, {
	ID: "rc/read/closed-region-refused-at-the-response-that-fails", Cite: ibta("9.7.5", "rc/psn/11", "acc/6"),
	Title:   "If the key of a READ is revoked while its responses are sent, the NAK has the PSN of the response that fails",
	Sends:   "CNPs, and a READ of 64 responses; the region is deregistered after the first of them; a READ of 16 through a type 2 window, if supported, that a SEND invalidates",
	Expects: "responses in order, with the bytes of the region, to the end or up to a NAK for a remote access error with the next PSN",
	Defects: []string{"ReadNAKHasFirstPSN"}, Run: onConn(Setup{Modify: func(a *verbs.QPAttr) { a.PathMTU = verbs.MTU256 }}, func(c *Conn) {
		m := c.Memory(memLen, allAccess)
		c.revokeDuringRead(m, rethFor(m, 0, memLen), func() { c.Must("a region that can be deregistered", m.Close()) })
		if c.Caps.Has(verbs.CapMWType2) {
			c = c.secondConn(Setup{Receives: 1, Modify: func(a *verbs.QPAttr) { a.PathMTU = verbs.MTU256 }})
			const n = 4096
			win := c.bindWindow(verbs.MWType2, 0, n, verbs.AccessRemoteRead)
			c.revokeDuringRead(win.m, win.reth(0, n), func() { c.Send(ib.SendOnlyInv(c.PeerPSN(n/256), win.key, Data(8))) })
		}
	}),
}, {
	ID: "rc/read/duplicate-of-a-closed-region-refused", Cite: ibta("", "rc/read/21"),
	Title:   "A duplicate READ is refused after its region was deregistered",
	Sends:   "a READ, and a duplicate after its region was deregistered; the same with a window, if supported, and its invalidation",
	Expects: "the data, then a NAK for a remote access error",
	Defects: []string{"StaleKeys"}, Run: onConn(Setup{}, func(c *Conn) {
		m := c.Memory(64, allAccess)
		at := rethFor(m, 0, 64)
		c.expectRead(0, at, m.Buf)
		c.Must("a region that can be deregistered", m.Close())
		c.expectReadRefused(0, at)
		c.expectSilence(silencePeriod)
		if c.Caps.Has(verbs.CapMWType2 | verbs.CapLocalInv) {
			c = c.secondConn(Setup{})
			win := c.bindWindow(verbs.MWType2, 0, 64, verbs.AccessRemoteRead)
			c.expectRead(0, win.reth(0, 8), win.m.Buf[:8])
			c.PostSend(c.QP, verbs.SendWR{WRID: 1, Opcode: verbs.OpLocalInv, Flags: verbs.SendSignaled, InvalidateRKey: win.key})
			c.ExpectCompletion(1, verbs.WCSuccess)
			c.expectReadRefused(0, win.reth(0, 8))
		}
	}),
}})

// expectReadsAfterRepeated sends READs, which have PSNs before the peer's k-th, and after CNPs sends
// them again, with READs of one response each from that PSN to before the end-th. It fails the case
// unless these are answered, after other READ responses or not.
func (c *Conn) expectReadsAfterRepeated(repeated []ib.Packet, k, end int) {
	c.Send(repeated...)
	c.nextPackets(k)
	c.throttle()
	c.Send(repeated...)
	for i := k; i < end; i++ {
		c.Send(c.peerRead(i, 8))
	}
	for ; k < end; k++ {
		isEarlier := func(a *Arrival) bool {
			info, _ := a.Info()
			return info.Kind == ib.KindReadResponse && a.PSN().Less(c.PeerPSN(k))
		}
		want := ib.ReadResponseOnly(c.PeerPSN(k), ib.AnyMSN, c.TargetMem.Buf[:8])
		c.checkPacket(want, c.expectAfter(isEarlier, want.String()))
	}
}

// revokeDuringRead sends CNPs, and a READ of m, with a path MTU of 256, and calls revoke after the
// first response. It fails the case unless the others follow, to the end or up to a NAK.
func (c *Conn) revokeDuringRead(m *rig.Memory, at ib.RETH, revoke func()) {
	responses := ib.ReadResponses(c.PeerPSN(0), ib.AnyMSN, m.Buf, 256)
	c.throttle()
	c.exchange(ib.ReadRequest(c.PeerPSN(0), at), responses[0])
	revoke()
	for i, want := range responses[1:] {
		got := c.expect(ib.Packet{})
		if got.IsNak(ib.NakRemoteAccess) {
			c.checkPacket(c.deviceNak(i+1, ib.NakRemoteAccess, ib.AnyMSN), got)
			return
		}
		c.checkPacket(want, got)
	}
}

// withResponderResources returns a modify function that sets max_dest_rd_atomic.
func withResponderResources(n uint8) func(*verbs.QPAttr) {
	return func(a *verbs.QPAttr) { a.MaxDestRdAtomic = n }
}

// longReadLen is the length of a READ that is still being answered when more requests arrive.
const longReadLen = 1 << 20

// sendLongReads sends a READ, which is answered, then CNPs (throttle), a long READ and n short ones
// after it, and returns the next PSN. The CNPs make the device send slowly: otherwise it would
// answer the long READ in no time in the simulator.
func (c *Conn) sendLongReads(n int) ib.PSN {
	long := c.Memory(longReadLen, allAccess)
	c.readStart(8)
	c.throttle()
	// Another CNP directly before the READ: if the host is slow, the device may have raised its
	// rate since throttle.
	c.Send(ib.CNP(), ib.ReadRequest(c.PeerPSN(1), rethFor(long, 0, longReadLen)))
	next := 1 + ib.Packets(longReadLen, MTU)
	for range n {
		c.Send(c.peerRead(next, 8))
		next++
	}
	return c.PeerPSN(next)
}

// expectNakAfterReads waits for the NAK of a request with this PSN, which exceeds the number of
// outstanding READs. The case ends as unsupported if the READs were answered before the request was
// sent, since it is valid then.
func (c *Conn) expectNakAfterReads(psn ib.PSN) {
	sent := c.Now()
	for {
		got := c.expect(ib.Packet{})
		if info, _ := got.Info(); info.Kind != ib.KindReadResponse || !got.PSN().Less(psn) {
			c.checkPacket(ib.Nak(psn, ib.NakInvalidRequest, ib.AnyMSN), got)
			return
		}
		if got.PSN().Add(1) == psn && got.At < sent {
			rig.BenchCannot("the READs were answered before the next request was sent, because the bench was slow")
		}
	}
}

// readStart sends a READ of the first n bytes of TargetMem with the first PSN, which must succeed.
func (c *Conn) readStart(n int) { c.expectRead(0, c.RETH(0, n), c.TargetMem.Buf[:n]) }

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
