package roce

import (
	"github.com/fabrictest/fabrictest/conformance"
	"github.com/fabrictest/fabrictest/conformance/packet/ib"
	"github.com/fabrictest/fabrictest/verbs"
)

// halfPSNs is half of the PSN space. As many PSNs before the expected one are duplicates,
// and the others are early.
const halfPSNs = 1 << 23

var psnCases = overRC.Cases([]conformance.Case{{
	ID:    "rc/psn/gap-naked-with-the-expected-psn",
	Title: "A request after a gap is answered by a NAK with the expected PSN, and the missing request is accepted then",
	Cite:  ibta("error class B", "roce/rc/psn/5", "roce/rc/psn/11"), Defects: []string{"AckPSNOff"},
	Sends:   "a SEND, then a SEND, a WRITE or a READ two PSNs further, then the one that was left out",
	Expects: "a NAK for a sequence error with the PSN that was left out, then an ACK for that",
	Run: onPort(func(p *port) {
		for _, early := range []ib.Opcode{ib.OpSendOnly, ib.OpWriteOnly, ib.OpReadRequest} {
			c := p.connect(setup{receives: 4})
			c.send(ib.SendOnly(c.peerPSN(0), data(8)))
			c.ExpectRecv(1, 8)
			c.drain() // an ACK without AckReq
			c.send(packetOf(c, early, 3))
			c.expectIgnoringCNPs(ib.Nak(c.peerPSN(1), ib.NakSequence, ib.AnyMSN))
			c.send(ib.SendOnly(c.peerPSN(1), data(8)).AckReq())
			c.expectIgnoringCNPs(ib.Ack(c.peerPSN(1), ib.AnyMSN))
			c.ExpectRecv(2, 8)
		}
	}),
}, {
	ID:    "rc/psn/gap-naked-once",
	Title: "A gap in the PSNs is answered by one NAK, however many packets follow it",
	Cite:  ibta("error class B", "roce/rc/psn/6"), Defects: []string{"NAKStorm"},
	Sends:   "a SEND, then three more after a gap",
	Expects: "an ACK, then one NAK for a sequence error with the PSN of the gap, and nothing else",
	Run: onRC(func(c *conn) {
		c.send(ib.SendOnly(c.peerPSN(0), data(8)).AckReq())
		c.expectIgnoringCNPs(ib.Ack(c.peerPSN(0), ib.AnyMSN))
		for i := 2; i < 5; i++ {
			c.send(ib.SendOnly(c.peerPSN(i), data(8)).AckReq())
		}
		c.expectIgnoringCNPs(ib.Nak(c.peerPSN(1), ib.NakSequence, ib.AnyMSN))
		c.expectSilenceIgnoringCNPs()
	}),
}, {
	ID:    "rc/psn/next-gap-naked-again",
	Title: "After a gap has been filled, the next gap is answered by another NAK",
	Cite:  ibta("error class B", "roce/rc/psn/7"), Defects: []string{"NAKOnlyOnce"},
	Sends:   "three times: a SEND after a gap, and the one that was missing",
	Expects: "each time a NAK for a sequence error with the expected PSN, and an ACK",
	Run: onRC(func(c *conn) {
		for i := range 3 {
			c.send(ib.SendOnly(c.peerPSN(i+6), data(8)).AckReq())
			c.expectIgnoringCNPs(ib.Nak(c.peerPSN(i), ib.NakSequence, ib.AnyMSN))
			c.send(ib.SendOnly(c.peerPSN(i), data(8)).AckReq())
			c.expectIgnoringCNPs(ib.Ack(c.peerPSN(i), ib.AnyMSN))
		}
	}),
}, {
	ID:    "rc/psn/packets-behind-a-gap-leave-no-trace",
	Title: "Requests after a gap are neither placed nor delivered",
	Cite:  ibta("error class B", "roce/rc/psn/8"), Defects: []string{"EarlyExecution"},
	Sends:   "a WRITE, a SEND and a WRITE with immediate after a gap, then the SEND that was missing",
	Expects: "a NAK, memory unchanged and no completion; then the first receive for the SEND that was missing",
	Run: onRC(func(c *conn) {
		c.send(
			ib.WriteOnly(c.peerPSN(1), c.reth(0, 64), data(64)).AckReq(),
			ib.SendOnly(c.peerPSN(2), data(32)).AckReq(),
			ib.WriteOnlyImm(c.peerPSN(3), c.reth(64, 64), 7, data(64)).AckReq(),
		)
		c.expectIgnoringCNPs(ib.Nak(c.peerPSN(0), ib.NakSequence, ib.AnyMSN))
		c.expectSilenceIgnoringCNPs()
		c.ExpectNoCompletion()
		c.ExpectUnchanged(c.targetMem, 0, 0)
		c.ExpectUnchanged(c.localMem, 0, 0)
		c.send(ib.SendOnly(c.peerPSN(0), data(8)).AckReq())
		c.expectIgnoringCNPs(ib.Ack(c.peerPSN(0), ib.AnyMSN))
		c.ExpectRecv(1, 8)
	}),
}, {
	ID:    "rc/psn/responder-passes-the-wrap",
	Title: "The expected PSN wraps from 0xFFFFFF to 0, and duplicates and gaps are detected across the wrap",
	Cite:  ibta("", "roce/rc/psn/3"), Defects: []string{"PSNUnsigned"},
	Sends:   "SENDs from PSN 0xFFFFFE to 1, the second of them again, then one after a gap",
	Expects: "an ACK for each and one for the duplicate, which is not delivered again, and a NAK for a sequence error with PSN 2",
	Run: onConn(setup{receives: 6, modify: func(a *verbs.QPAttr) { a.RQPSN = 0xfffffe }}, func(c *conn) {
		for i := range 4 {
			c.send(ib.SendOnly(c.peerPSN(i), data(8)).AckReq())
			c.expectIgnoringCNPs(ib.Ack(c.peerPSN(i), ib.AnyMSN))
			c.ExpectRecv(uint64(i+1), 8)
		}
		c.send(ib.SendOnly(c.peerPSN(1), data(8)).AckReq())
		c.expectIgnoringCNPs(ib.Ack(1, ib.AnyMSN))
		c.send(ib.SendOnly(c.peerPSN(5), data(8)).AckReq())
		c.expectIgnoringCNPs(ib.Nak(2, ib.NakSequence, ib.AnyMSN))
		c.ExpectNoCompletion()
	}),
}, {
	ID:    "rc/psn/half-the-space-back-is-duplicate",
	Title: "A PSN up to 2^23 before the expected one is a duplicate",
	Cite:  ibta("", "roce/rc/psn/4"), Defects: []string{"PSNUnsigned"},
	Sends:   "a SEND, then SENDs 1, 2^22, 2^23 - 1 and 2^23 before the expected PSN",
	Expects: "an ACK for each, and one completion",
	Run: onRC(func(c *conn) {
		c.send(ib.SendOnly(c.peerPSN(0), data(8)).AckReq())
		c.expectIgnoringCNPs(ib.Ack(c.peerPSN(0), ib.AnyMSN))
		for _, back := range []int{1, halfPSNs / 2, halfPSNs - 1, halfPSNs} {
			c.send(ib.SendOnly(c.peerPSN(1-back), data(8)).AckReq())
			c.expectIgnoringCNPs(ib.Ack(ib.AnyPSN, ib.AnyMSN))
		}
		c.ExpectRecv(1, 8)
		c.ExpectNoCompletion()
	}),
}, {
	ID:    "rc/psn/half-the-space-ahead-is-early",
	Title: "A PSN up to 2^23 - 1 after the expected one is after a gap",
	Cite:  ibta("", "roce/rc/psn/4"), Defects: []string{"PSNHalvesUneven"},
	Sends:   "SENDs 1, 2^22 and 2^23 - 1 ahead of the expected PSN, each followed by the one that is expected",
	Expects: "a NAK for a sequence error with the expected PSN, and an ACK, each time",
	Run: onRC(func(c *conn) {
		for i, ahead := range []int{1, halfPSNs / 2, halfPSNs - 1} {
			c.send(ib.SendOnly(c.peerPSN(i+ahead), data(8)).AckReq())
			c.expectIgnoringCNPs(ib.Nak(c.peerPSN(i), ib.NakSequence, ib.AnyMSN))
			c.send(ib.SendOnly(c.peerPSN(i), data(8)).AckReq())
			c.expectIgnoringCNPs(ib.Ack(c.peerPSN(i), ib.AnyMSN))
		}
	}),
}, {
	ID:    "rc/psn/first-expected-is-rq-psn",
	Title: "The first PSN that a queue pair expects is rq_psn",
	Cite:  ibta("11.2.4.2", "roce/rc/psn/16"), Defects: []string{"PSNStartsAtZero"},
	Sends:   "SENDs to queue pairs with several values of rq_psn: one PSN further first, then with that PSN",
	Expects: "a NAK for a sequence error with rq_psn, then an ACK with it",
	Run: onPort(func(p *port) {
		for _, first := range firstPSNs(p) {
			c := p.connect(setup{receives: 2, modify: func(a *verbs.QPAttr) { a.RQPSN = first }})
			c.send(ib.SendOnly(ib.PSN(first).Add(1), data(8)).AckReq())
			c.expectIgnoringCNPs(ib.Nak(ib.PSN(first), ib.NakSequence, ib.AnyMSN))
			c.send(ib.SendOnly(ib.PSN(first), data(8)).AckReq())
			c.expectIgnoringCNPs(ib.Ack(ib.PSN(first), ib.AnyMSN))
		}
	}),
}, {
	ID:    "rc/psn/fatal-nak-points-at-the-refused-packet",
	Title: "A fatal NAK has the PSN of the refused request",
	Cite:  ibta("9.7.5", "roce/rc/psn/11"), Defects: []string{"AckPSNOff"},
	Sends:   "a SEND and a WRITE with an invalid key; on another connection WRITE_FIRST, WRITE_MIDDLE and SEND_ONLY",
	Expects: "a NAK with the PSN of the WRITE, and one with that of the SEND_ONLY",
	Run: onPort(func(p *port) {
		c := p.connect(setup{receives: 2})
		c.send(ib.SendOnly(c.peerPSN(0), data(8)))
		c.ExpectRecv(1, 8)
		c.drain()
		c.send(ib.WriteOnly(c.peerPSN(1), ib.At(c.targetMem.Addr(), ^uint32(c.targetMem.RKey()), 8), data(8)).AckReq())
		c.expect(anyNak(c.peerPSN(1), ib.AnyMSN))

		c = p.connect(setup{receives: 2})
		c.send(
			ib.WriteFirst(c.peerPSN(0), c.reth(0, 2500), data(pathMTU.Bytes())),
			ib.WriteMiddle(c.peerPSN(1), data(pathMTU.Bytes())),
		)
		c.drain()
		c.send(ib.SendOnly(c.peerPSN(2), data(8)).AckReq())
		c.expect(anyNak(c.peerPSN(2), ib.AnyMSN))
	}),
}, {
	ID:    "rc/psn/nak-of-a-read-points-at-the-missing-response",
	Title: "The NAK of a READ has the PSN of the first response that was not sent",
	Cite:  ibta("9.7.5", "roce/rc/psn/11"), Defects: []string{"AckPSNOff"},
	Sends:   "a READ of 3 responses and one with an invalid key; on another connection a READ of which the second half is out of bounds",
	Expects: "a NAK with the PSN after the last response given",
	Run: onPort(func(p *port) {
		c := p.connect(setup{})
		c.send(ib.ReadRequest(c.peerPSN(0), c.reth(0, 2500)).AckReq())
		c.nextPackets(3)
		c.send(ib.ReadRequest(c.peerPSN(3), ib.At(c.targetMem.Addr(), ^uint32(c.targetMem.RKey()), 2500)).AckReq())
		c.expect(anyNak(c.peerPSN(3), ib.AnyMSN))

		// A device that checks the whole range first sends no response; one that
		// checks each packet sends the responses that it can.
		c = p.connect(setup{})
		mtu := pathMTU.Bytes()
		c.send(ib.ReadRequest(c.peerPSN(0), c.reth(memLen-2*mtu, 4*mtu)).AckReq())
		given, refusal := 0, c.expect(ib.Packet{})
		for refusal.Opcode() == ib.OpReadResponseFirst || refusal.Opcode() == ib.OpReadResponseMiddle {
			given, refusal = given+1, c.expect(ib.Packet{})
		}
		c.checkPacket(anyNak(c.peerPSN(given), ib.AnyMSN), refusal)
	}),
}})

// firstPSNs returns initial PSNs: edge cases and a random one.
func firstPSNs(p *port) []uint32 {
	return []uint32{1, 0x7fffff, 0x800000, 0xffffff, p.Rand.Uint32N(1 << 24)}
}

// anyNak matches a NAK with any code.
func anyNak(psn ib.PSN, msn uint32) ib.Packet {
	p := ib.Nak(psn, 0, msn)
	p.AETH.Value = nil
	return p
}

// expectIgnoringCNPs is [conn.expect] that skips CNPs: some devices take a gap for
// congestion, and send a CNP with the NAK.
func (c *conn) expectIgnoringCNPs(want ib.Packet) {
	for {
		got, ok := c.nextPacket(c.ResponseTimeout())
		c.Check(ok, want.String(), "nothing in %v", c.ResponseTimeout())
		if got.Opcode() != ib.OpCNP {
			c.checkPacket(c.fromDevice(want), got)
			return
		}
	}
}

// expectSilenceIgnoringCNPs is [port.expectSilence] that skips CNPs.
func (c *conn) expectSilenceIgnoringCNPs() {
	for {
		p, ok := c.packetAfterSync(silencePeriod)
		switch {
		case !ok:
			return
		case p.Opcode() != ib.OpCNP:
			c.Fail("nothing is sent", "%v", p)
		}
	}
}
