package roce

import (
	"github.com/fabrictest/fabrictest/conformance"
	"github.com/fabrictest/fabrictest/conformance/packet/ib"
	"github.com/fabrictest/fabrictest/verbs"
)

var psnRequesterCases = overRC.Cases([]conformance.Case{{
	ID: "rc/psn/requests-count-by-one", Cite: ibta("9.7.2", "rc/psn/1"), Needs: verbs.CapAtomics,
	Title:   "The PSN increases by one with every packet of SENDs, WRITEs and atomics",
	Sends:   "answers to a SEND of 3 packets, a WRITE of 1, a FETCH_ADD, and a WRITE of 2, which begin at 0xFFFFFD",
	Expects: "PSNs 0xFFFFFD to 3 in order, and completions",
	Defects: []string{"PSNUnsigned"}, Run: onConn(Setup{Modify: func(a *verbs.QPAttr) { a.SQPSN = 0xfffffd }}, func(c *Conn) {
		c.request(0, c.SendWR(1, 2500), c.WriteWR(2, 16), c.fetchAddWR(3), c.WriteWR(4, 1500))
		c.Send(c.peerAck(3, 2), ib.AtomicAck(c.DevicePSN(4), 3, 7), c.peerAck(6, 4))
		c.ExpectCompletions(verbs.WCSuccess, 1, 2, 3, 4)
	}),
}, {
	ID: "rc/psn/read-takes-one-for-each-response", Cite: ibta("9.7.2", "rc/psn/2"),
	Title:   "A READ uses as many PSNs as it has response packets, and at least one",
	Sends:   "nothing: the device sends READs of 2500, 1024, 1025 and 0 bytes, and a SEND",
	Expects: "the requests 3, 1, 2 and 1 PSNs after one another",
	Defects: []string{"ReadTakesOnePSN"}, Run: onConn(Setup{}, func(c *Conn) {
		c.request(0, c.ReadWR(1, 2500), c.ReadWR(2, 1024), c.ReadWR(3, 1025), c.ReadWR(4, 0), c.SendWR(5, 8))
	}),
}, {
	ID: "rc/psn/requester-passes-the-wrap", Cite: ibta("", "rc/psn/3"),
	Title:   "The PSNs of a requester wrap from 0xFFFFFF to 0, and ACKs and NAKs are handled across the wrap",
	Sends:   "to SENDs with PSNs 0xFFFFFE to 1: an ACK for the first, a NAK for a sequence error with 0, an ACK for 1",
	Expects: "one completion; another, and the SENDs with PSNs 0 and 1 are retransmitted; two more completions",
	Defects: []string{"PSNUnsigned"}, Run: onConn(Setup{Modify: func(a *verbs.QPAttr) {
		a.SQPSN, a.Timeout = 0xfffffe, timeout67ms
	}}, func(c *Conn) {
		all := c.request(0, c.SendWR(1, 8), c.SendWR(2, 16), c.SendWR(3, 24), c.SendWR(4, 32))
		c.completeWith(ib.Ack(0xfffffe, 1), 1)
		c.completeWith(ib.Nak(0, ib.NakSequence, 2), 2)
		c.expectRetransmission(all, 2)
		c.completeWith(ib.Ack(1, 4), 3, 4)
	}),
}, {
	ID: "rc/psn/first-sent-is-sq-psn", Cite: ibta("11.2.4.2", "rc/psn/16"),
	Title:   "The first PSN that a queue pair sends is sq_psn",
	Sends:   "nothing: queue pairs with several values of sq_psn send",
	Expects: "that PSN in the first packet",
	Defects: []string{"PSNStartsAtZero"}, Run: OnPort(func(p *Port) {
		for _, first := range firstPSNs(p) {
			c := p.connect(Setup{Modify: func(a *verbs.QPAttr) { a.SQPSN = first }})
			c.PostSend(c.QP, c.SendWR(1, 8))
			c.expect(ib.SendOnly(ib.PSN(first), c.LocalMem.Buf[:8]))
		}
	}),
}, {
	ID: "rc/psn/ack-of-what-was-never-sent-ignored", Cite: ibta("9.7.2", "rc/psn/13"),
	Title:   "An ACK with a PSN that was never sent completes nothing",
	Sends:   "while one SEND is outstanding, ACKs with PSNs 1, 100 and 2^22 after it, then its ACK",
	Expects: "no completion before its ACK",
	Defects: []string{"GhostAckCompletes"}, Run: onConn(Setup{}, func(c *Conn) { expectUnsentPSNsIgnored(c, func(psn ib.PSN) ib.Packet { return ib.Ack(psn, 1) }) }),
}, {
	ID: "rc/psn/fatal-nak-of-what-was-never-sent-ignored", Cite: ibta("9.7.2", "rc/psn/13"),
	Title:   "A NAK with a PSN that was never sent is ignored",
	Sends:   "while one SEND is outstanding, NAKs for an invalid request with PSNs 1, 100 and 2^22 beyond it, then its ACK",
	Expects: "no completion before its ACK, and success then",
	Defects: []string{"GhostAckCompletes"}, Run: onConn(Setup{}, func(c *Conn) {
		expectUnsentPSNsIgnored(c, func(psn ib.PSN) ib.Packet { return ib.Nak(psn, ib.NakInvalidRequest, 0) })
	}),
}, {
	ID: "rc/psn/read-response-before-the-oldest-ignored", Cite: ibta("", "rc/psn/14"),
	Title:   "Responses with a PSN before the oldest outstanding one are ignored",
	Sends:   "while a READ is outstanding, a READ response and an ACK with the PSN before, then the correct response",
	Expects: "no completion and memory unchanged, then the correct data",
	Defects: []string{"OldAnswerCompletes"}, Run: onConn(Setup{}, func(c *Conn) {
		c.request(0, c.SendWR(1, 8), c.ReadWR(2, 8))
		c.completeWith(c.peerAck(0, 1), 1)
		c.Send(ib.ReadResponseOnly(c.DevicePSN(0), 1, make([]byte, 8)), c.peerAck(0, 1))
		c.expectNoCompletion()
		c.ExpectUntouched(c.LocalMem)
		c.completeWith(ib.ReadResponseOnly(c.DevicePSN(1), 2, Data(8)), 2)
		c.ExpectBytes(c.LocalMem, SinkOffset, Data(8))
		c.ExpectState(c.QP, verbs.QPStateRTS)
	}),
}, {
	ID: "rc/psn/fatal-nak-before-the-oldest-ignored", Cite: ibta("", "rc/psn/14"),
	Title:   "A fatal NAK with a PSN before the oldest outstanding one is ignored",
	Sends:   "while the second of two SENDs is outstanding, a NAK for an invalid request with the PSN of the first, then the ACK",
	Expects: "no completion before the ACK, and success then",
	Defects: []string{"OldNAKFatal"}, Run: onConn(Setup{}, func(c *Conn) {
		c.sendTwoAckFirst()
		c.Send(c.peerNak(0, ib.NakInvalidRequest, 1))
		c.expectNoCompletion()
		c.completeWith(c.peerAck(1, 2), 2)
		c.ExpectState(c.QP, verbs.QPStateRTS)
	}),
}, {
	ID: "rc/psn/sequence-nak-before-the-oldest-ignored", Cite: ibta("", "rc/psn/14"),
	Title:   "A sequence NAK with a PSN before the oldest outstanding one causes no retransmission",
	Sends:   "while the second of two SENDs is outstanding, a NAK for a sequence error with the PSN of the first, then the ACK",
	Expects: "nothing, then success",
	Defects: []string{"StaleNAKRepeats"}, Run: onConn(Setup{}, func(c *Conn) {
		c.sendTwoAckFirst()
		c.Send(c.peerNak(0, ib.NakSequence, 1))
		c.expectNothing()
		c.completeWith(c.peerAck(1, 2), 2)
	}),
}, {
	ID: "rc/psn/rnr-nak-before-the-oldest-ignored", Cite: ibta("", "rc/psn/14"),
	Title:   "An RNR NAK with a PSN before the oldest outstanding one causes no wait and no retransmission",
	Sends:   "while the second of two SENDs is outstanding, an RNR NAK of 655.36 ms with the PSN of the first; when a third has arrived, the ACK",
	Expects: "the third SEND long before that time, and nothing else; then success",
	Defects: []string{"StaleRNRWaits"}, Run: onConn(Setup{}, func(c *Conn) {
		c.sendTwoAckFirst()
		c.Send(ib.RNR(c.DevicePSN(0), 0, 1))
		c.Sync()
		posted := c.Now()
		c.request(2, c.SendWR(3, 16))
		c.checkNoRNRWait(posted)
		c.expectSilence(silencePeriod)
		c.completeWith(c.peerAck(2, 3), 2, 3)
	}),
}, {
	ID: "rc/psn/no-more-than-half-the-space-open", Cite: ibta("", "rc/psn/15"),
	Title:   "At most 2^23 PSNs are outstanding",
	Sends:   "nothing: the device is to READ five times 2^29 bytes with a path MTU of 256, 2^21 PSNs each",
	Expects: "at most four of them on the wire",
	Defects: []string{"PSNWindowUnlimited"}, Run: onConn(Setup{
		caps:   verbs.QPCaps{MaxSendWR: 8, MaxRecvWR: 1, MaxSendSGE: 4, MaxRecvSGE: 1},
		Modify: func(a *verbs.QPAttr) { a.PathMTU, a.MaxRdAtomic = verbs.MTU256, 8 },
	}, func(c *Conn) {
		const size = 1 << 29
		// The memory is never touched and therefore not allocated.
		m, err := c.PD.RegMR(verbs.MRInit{Buf: make([]byte, size/4), Access: verbs.AccessLocalWrite})
		c.Must("a large memory region", err)
		part := verbs.SGEOf(m, 0, size/4)
		for id := range uint64(5) {
			wr := c.ReadWR(id+1, 0)
			wr.SGL = []verbs.SGE{part, part, part, part}
			c.PostSend(c.QP, wr)
		}
		sent := c.Drain(sentSoFar)
		c.Check(len(sent) > 0, "a READ that fits", "no packet")
		for i, p := range sent {
			c.checkPacket(ib.Op(ib.OpReadRequest).WithPSN(c.DevicePSN(i<<21)).WithRETH(ib.RETH{Len: new(uint32(size))}), p)
		}
		c.Check(len(sent) <= 4, "at most 2^23 PSNs outstanding", "%d READs of 2^21 PSNs each", len(sent))
	}),
}})

// expectUnsentPSNsIgnored sends what response returns for PSNs that the device has not used, while
// a SEND is outstanding, and fails the case unless only the ACK of the SEND completes it.
func expectUnsentPSNsIgnored(c *Conn, response func(ib.PSN) ib.Packet) {
	c.request(0, c.SendWR(1, 8))
	for _, beyond := range []int{1, 100, halfPSNs / 2} {
		c.Send(response(c.DevicePSN(beyond)))
		c.expectNoCompletion()
	}
	c.completeWith(c.peerAck(0, 1), 1)
	c.ExpectState(c.QP, verbs.QPStateRTS)
}

// sendTwoAckFirst has the device send two SENDs and acknowledges the first. A second
// response to the first is then stale.
func (c *Conn) sendTwoAckFirst() {
	c.request(0, c.SendWR(1, 8), c.SendWR(2, 8))
	c.completeWith(c.peerAck(0, 1), 1)
}
