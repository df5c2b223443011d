package roce

import (
	"github.com/fabrictest/fabrictest/conformance"
	"github.com/fabrictest/fabrictest/conformance/packet/ib"
	"github.com/fabrictest/fabrictest/verbs"
)

// halfPSNs is half of all PSNs: so many before the expected one are duplicates, and
// the others are early.
const halfPSNs = 1 << 23

var psnCases = []conformance.Case{
	{
		ID:    "rc/psn/gap-naked-with-the-expected-psn",
		Title: "A request behind a gap is answered by a NAK with the PSN that is missing, and nothing is lost when that comes",
		Cite:  conformance.Cite{Doc: "IBTA", Section: "error class B", Rows: []string{"roce/rc/psn/5", "roce/rc/psn/11"}}, Level: conformance.Must, Needs: verbs.CapRC,
		Labels:  []string{"service:rc"},
		Sends:   "a SEND, then a SEND, a WRITE or a READ two PSNs further, then the one that was left out",
		Expects: "a NAK for a sequence error with the PSN that was left out, then an ACK for that",
		Defects: []string{"AckPSNOff"},
		Run: onPort(func(p *port) {
			for _, early := range []ib.Opcode{ib.OpSendOnly, ib.OpWriteOnly, ib.OpReadRequest} {
				c := p.connect(setup{receives: 4})
				c.send(ib.SendOnly(c.psn(0), data(8)))
				c.ExpectRecv(1, 8)
				c.drained() // an ACK that nobody asked for
				c.send(seqPart(c, early, 3))
				c.expectsBesideCNPs(ib.Nak(c.psn(1), ib.NakSequence, ib.AnyMSN))
				c.send(ib.SendOnly(c.psn(1), data(8)).AckReq())
				c.expectsBesideCNPs(ib.Ack(c.psn(1), ib.AnyMSN))
				c.ExpectRecv(2, 8)
			}
		}),
	},
	{
		ID:    "rc/psn/gap-naked-once",
		Title: "A gap in the PSNs is answered by one NAK, however many packets follow it",
		Cite:  conformance.Cite{Doc: "IBTA", Section: "error class B", Rows: []string{"roce/rc/psn/6"}}, Level: conformance.Must, Needs: verbs.CapRC,
		Labels:  []string{"service:rc"},
		Sends:   "a SEND, then three more behind a gap",
		Expects: "an ACK, then one NAK for a sequence error with the PSN of the gap, and nothing else",
		Defects: []string{"NAKStorm"},
		Run: onRC(func(c *conn) {
			c.send(ib.SendOnly(c.psn(0), data(8)).AckReq())
			c.expectsBesideCNPs(ib.Ack(c.psn(0), ib.AnyMSN))
			for i := 2; i < 5; i++ {
				c.send(ib.SendOnly(c.psn(i), data(8)).AckReq())
			}
			c.expectsBesideCNPs(ib.Nak(c.psn(1), ib.NakSequence, ib.AnyMSN))
			c.silenceBesideCNPs()
		}),
	},
	{
		ID:    "rc/psn/next-gap-naked-again",
		Title: "After a gap has been filled, the next one is answered by a NAK of its own",
		Cite:  conformance.Cite{Doc: "IBTA", Section: "error class B", Rows: []string{"roce/rc/psn/7"}}, Level: conformance.Must, Needs: verbs.CapRC,
		Labels:  []string{"service:rc"},
		Sends:   "three times: a SEND behind a gap, and the one that was missing",
		Expects: "each time a NAK for a sequence error with the expected PSN, and an ACK",
		Defects: []string{"NAKOnlyOnce"},
		Run: onRC(func(c *conn) {
			for i := range 3 {
				c.send(ib.SendOnly(c.psn(i+6), data(8)).AckReq())
				c.expectsBesideCNPs(ib.Nak(c.psn(i), ib.NakSequence, ib.AnyMSN))
				c.send(ib.SendOnly(c.psn(i), data(8)).AckReq())
				c.expectsBesideCNPs(ib.Ack(c.psn(i), ib.AnyMSN))
			}
		}),
	},
	{
		ID:    "rc/psn/packets-behind-a-gap-leave-no-trace",
		Title: "What comes behind a gap is neither placed nor delivered",
		Cite:  conformance.Cite{Doc: "IBTA", Section: "error class B", Rows: []string{"roce/rc/psn/8"}}, Level: conformance.Must, Needs: verbs.CapRC,
		Labels:  []string{"service:rc"},
		Sends:   "a WRITE, a SEND and a WRITE with immediate behind a gap, then the SEND that was missing",
		Expects: "a NAK, memory as it was and no completion; then the first receive for the SEND that was missing",
		Defects: []string{"EarlyExecution"},
		Run: onRC(func(c *conn) {
			c.send(
				ib.WriteOnly(c.psn(1), c.at(0, 64), data(64)).AckReq(),
				ib.SendOnly(c.psn(2), data(32)).AckReq(),
				ib.WriteOnlyImm(c.psn(3), c.at(64, 64), 7, data(64)).AckReq(),
			)
			c.expectsBesideCNPs(ib.Nak(c.psn(0), ib.NakSequence, ib.AnyMSN))
			c.silenceBesideCNPs()
			c.ExpectNoCompletion()
			c.ExpectUnchanged(c.mem, 0, 0)
			c.ExpectUnchanged(c.own, 0, 0)
			c.send(ib.SendOnly(c.psn(0), data(8)).AckReq())
			c.expectsBesideCNPs(ib.Ack(c.psn(0), ib.AnyMSN))
			c.ExpectRecv(1, 8)
		}),
	},
	{
		ID:    "rc/psn/responder-passes-the-wrap",
		Title: "A responder goes from PSN 0xFFFFFF to 0, and knows duplicates and gaps beyond it",
		Cite:  conformance.Cite{Doc: "IBTA", Rows: []string{"roce/rc/psn/3"}}, Level: conformance.Must, Needs: verbs.CapRC,
		Labels:  []string{"service:rc"},
		Sends:   "SENDs from PSN 0xFFFFFE to 1, the second of them again, then one behind a gap",
		Expects: "an ACK for each and one for the duplicate, which is not delivered again, and a NAK for a sequence error with PSN 2",
		Defects: []string{"PSNUnsigned"},
		Run: on(setup{receives: 6, change: func(a *verbs.QPAttr) { a.RQPSN = 0xfffffe }}, func(c *conn) {
			for i := range 4 {
				c.send(ib.SendOnly(c.psn(i), data(8)).AckReq())
				c.expectsBesideCNPs(ib.Ack(c.psn(i), ib.AnyMSN))
				c.ExpectRecv(uint64(i+1), 8)
			}
			c.send(ib.SendOnly(c.psn(1), data(8)).AckReq())
			c.expectsBesideCNPs(ib.Ack(1, ib.AnyMSN))
			c.send(ib.SendOnly(c.psn(5), data(8)).AckReq())
			c.expectsBesideCNPs(ib.Nak(2, ib.NakSequence, ib.AnyMSN))
			c.ExpectNoCompletion()
		}),
	},
	{
		ID:    "rc/psn/half-the-space-back-is-duplicate",
		Title: "A PSN up to 2^23 before the expected one is that of a duplicate",
		Cite:  conformance.Cite{Doc: "IBTA", Rows: []string{"roce/rc/psn/4"}}, Level: conformance.Must, Needs: verbs.CapRC,
		Labels:  []string{"service:rc"},
		Sends:   "a SEND, then SENDs 1, 2^22, 2^23 - 1 and 2^23 before the expected PSN",
		Expects: "an ACK for each, and one completion",
		Defects: []string{"PSNUnsigned"},
		Run: onRC(func(c *conn) {
			c.send(ib.SendOnly(c.psn(0), data(8)).AckReq())
			c.expectsBesideCNPs(ib.Ack(c.psn(0), ib.AnyMSN))
			for _, back := range []int{1, halfPSNs / 2, halfPSNs - 1, halfPSNs} {
				c.send(ib.SendOnly(c.psn(1-back), data(8)).AckReq())
				c.expectsBesideCNPs(ib.Ack(ib.AnyPSN, ib.AnyMSN))
			}
			c.ExpectRecv(1, 8)
			c.ExpectNoCompletion()
		}),
	},
	{
		ID:    "rc/psn/half-the-space-ahead-is-early",
		Title: "A PSN up to 2^23 - 1 behind the expected one is that of a packet behind a gap",
		Cite:  conformance.Cite{Doc: "IBTA", Rows: []string{"roce/rc/psn/4"}}, Level: conformance.Must, Needs: verbs.CapRC,
		Labels:  []string{"service:rc"},
		Sends:   "SENDs 1, 2^22 and 2^23 - 1 ahead of the expected PSN, each followed by the one that is expected",
		Expects: "a NAK for a sequence error with the expected PSN, and an ACK, each time",
		Defects: []string{"PSNHalvesUneven"},
		Run: onRC(func(c *conn) {
			for i, ahead := range []int{1, halfPSNs / 2, halfPSNs - 1} {
				c.send(ib.SendOnly(c.psn(i+ahead), data(8)).AckReq())
				c.expectsBesideCNPs(ib.Nak(c.psn(i), ib.NakSequence, ib.AnyMSN))
				c.send(ib.SendOnly(c.psn(i), data(8)).AckReq())
				c.expectsBesideCNPs(ib.Ack(c.psn(i), ib.AnyMSN))
			}
		}),
	},
	{
		ID:    "rc/psn/first-expected-is-rq-psn",
		Title: "The first PSN that a queue pair expects is the one that it was set up with",
		Cite:  conformance.Cite{Doc: "IBTA", Section: "11.2.4.2", Rows: []string{"roce/rc/psn/16"}}, Level: conformance.Must, Needs: verbs.CapRC,
		Labels:  []string{"service:rc"},
		Sends:   "SENDs to queue pairs with several values of rq_psn: one PSN further first, then with that PSN",
		Expects: "a NAK for a sequence error with rq_psn, then an ACK with it",
		Defects: []string{"PSNStartsAtZero"},
		Run: onPort(func(p *port) {
			for _, first := range psnStarts(p) {
				c := p.connect(setup{receives: 2, change: func(a *verbs.QPAttr) { a.RQPSN = first }})
				c.send(ib.SendOnly(ib.PSN(first).Add(1), data(8)).AckReq())
				c.expectsBesideCNPs(ib.Nak(ib.PSN(first), ib.NakSequence, ib.AnyMSN))
				c.send(ib.SendOnly(ib.PSN(first), data(8)).AckReq())
				c.expectsBesideCNPs(ib.Ack(ib.PSN(first), ib.AnyMSN))
			}
		}),
	},
	{
		ID:    "rc/psn/fatal-nak-points-at-the-refused-packet",
		Title: "The NAK of a request that is refused for good has its PSN",
		Cite:  conformance.Cite{Doc: "IBTA", Section: "9.7.5", Rows: []string{"roce/rc/psn/11"}}, Level: conformance.Must, Needs: verbs.CapRC,
		Labels:  []string{"service:rc"},
		Sends:   "a SEND and a WRITE with a key that opens nothing; on another connection WRITE_FIRST, WRITE_MIDDLE and SEND_ONLY",
		Expects: "a NAK with the PSN of the WRITE, and one with that of the SEND_ONLY",
		Defects: []string{"AckPSNOff"},
		Run: onPort(func(p *port) {
			c := p.connect(setup{receives: 2})
			c.send(ib.SendOnly(c.psn(0), data(8)))
			c.ExpectRecv(1, 8)
			c.drained()
			c.send(ib.WriteOnly(c.psn(1), ib.At(c.mem.Addr(), ^uint32(c.mem.RKey()), 8), data(8)).AckReq())
			c.expects(nakAny(c.psn(1), ib.AnyMSN))

			c = p.connect(setup{receives: 2})
			c.send(
				ib.WriteFirst(c.psn(0), c.at(0, 2500), data(pathMTU.Bytes())),
				ib.WriteMiddle(c.psn(1), data(pathMTU.Bytes())),
			)
			c.drained()
			c.send(ib.SendOnly(c.psn(2), data(8)).AckReq())
			c.expects(nakAny(c.psn(2), ib.AnyMSN))
		}),
	},
	{
		ID:    "rc/psn/nak-of-a-read-points-at-the-missing-response",
		Title: "The NAK of a READ has the PSN of the response that could not be given",
		Cite:  conformance.Cite{Doc: "IBTA", Section: "9.7.5", Rows: []string{"roce/rc/psn/11"}}, Level: conformance.Must, Needs: verbs.CapRC,
		Labels:  []string{"service:rc"},
		Sends:   "a READ of 3 responses and one with a key that opens nothing; on another connection a READ of which the second half is out of bounds",
		Expects: "a NAK with the PSN behind the last response given",
		Defects: []string{"AckPSNOff"},
		Run: onPort(func(p *port) {
			c := p.connect(setup{})
			c.send(ib.ReadRequest(c.psn(0), c.at(0, 2500)).AckReq())
			c.take(3)
			c.send(ib.ReadRequest(c.psn(3), ib.At(c.mem.Addr(), ^uint32(c.mem.RKey()), 2500)).AckReq())
			c.expects(nakAny(c.psn(3), ib.AnyMSN))

			// Whoever checks the whole range first gives no response at all; whoever
			// checks as it goes gives those that it can.
			c = p.connect(setup{})
			mtu := pathMTU.Bytes()
			c.send(ib.ReadRequest(c.psn(0), c.at(memLen-2*mtu, 4*mtu)).AckReq())
			given, refusal := 0, c.expects(ib.Packet{})
			for refusal.Opcode() == ib.OpReadResponseFirst || refusal.Opcode() == ib.OpReadResponseMiddle {
				given, refusal = given+1, c.expects(ib.Packet{})
			}
			c.same(nakAny(c.psn(given), ib.AnyMSN), refusal)
		}),
	},
}

// psnStarts are PSNs to begin with: those at the edges, and one of many.
func psnStarts(p *port) []uint32 {
	return []uint32{1, 0x7fffff, 0x800000, 0xffffff, p.Rand.Uint32N(1 << 24)}
}

// nakAny is a NAK with any code.
func nakAny(psn ib.PSN, msn uint32) ib.Packet {
	p := ib.Nak(psn, 0, msn)
	p.AETH.Value = nil
	return p
}

// expectsBesideCNPs is expects where there is a gap: some devices take it for a sign of
// congestion, and have a CNP go with the NAK.
func (c *conn) expectsBesideCNPs(want ib.Packet) {
	for {
		got, ok := c.next(c.ResponseTimeout())
		c.Check(ok, want.String(), "nothing in %v", c.ResponseTimeout())
		if got.Opcode() != ib.OpCNP {
			c.same(c.ofDevice(want), got)
			return
		}
	}
}

// silenceBesideCNPs is silence in the same place.
func (c *conn) silenceBesideCNPs() {
	for {
		p, ok := c.noise(quiet)
		switch {
		case !ok:
			return
		case p.Opcode() != ib.OpCNP:
			c.Fail("nothing is sent", "%v", p)
		}
	}
}
