package roce

import (
	"github.com/fabrictest/fabrictest/conformance"
	"github.com/fabrictest/fabrictest/conformance/packet/ib"
	"github.com/fabrictest/fabrictest/conformance/rig"
	"github.com/fabrictest/fabrictest/verbs"
)

var ackCases = overRC.Cases([]conformance.Case{{
	ID: "rc/ack/asked-for-is-sent", Cite: ibta("9.7.5", "rc/ack/1"),
	Title:   "A SEND or WRITE with AckReq gets an ACK",
	Sends:   "packets of every kind of SEND and WRITE, one at a time and all with AckReq, among them messages of no bytes; WRITEs, each with an ACK, while the device sends a long WRITE",
	Expects: "an ACK with the PSN of each",
	Defects: []string{"NoAcks"}, Run: onConn(Setup{Receives: 7, recvLen: 2048}, func(c *Conn) {
		ops := []ib.Opcode{
			ib.OpSendOnly, ib.OpSendOnlyImm, ib.OpSendFirst, ib.OpSendLast, ib.OpSendFirst, ib.OpSendLastImm,
			ib.OpWriteOnly, ib.OpWriteOnlyImm, ib.OpWriteFirst, ib.OpWriteLast, ib.OpWriteFirst, ib.OpWriteLastImm,
		}
		for k, op := range ops {
			c.exchange(packetOf(c, op, k), c.deviceAck(k, ib.AnyMSN))
		}
		k := len(ops)
		c.exchange(c.peerSend(k, 0), c.deviceAck(k, ib.AnyMSN))
		c.exchange(c.peerWrite(k+1, 0), c.deviceAck(k+1, ib.AnyMSN))
		c.secondConn(Setup{Receives: 4, Modify: func(a *verbs.QPAttr) { a.PathMTU = verbs.MTU256 }}).expectAcksWhileSending()
	}),
}, {
	ID: "rc/ack/not-asked-for-may-be-left-out", Cite: ibta("9.7.5", "rc/ack/2"), Level: conformance.May,
	Title:   "Requests without AckReq get a correct ACK, or are acknowledged by the next one",
	Sends:   "a SEND and a WRITE without AckReq, and a SEND with it",
	Expects: "nothing, or correct ACKs, for the first two; an ACK for the last, which counts all",
	Defects: []string{"AckPSNOff"}, Run: onRC(func(c *Conn) {
		c.Send(ib.SendOnly(c.PeerPSN(0), Data(16)))
		c.expectOptionalAcks(0, 1)
		c.Send(ib.WriteOnly(c.PeerPSN(1), c.RETH(0, 16), Data(16)))
		c.expectOptionalAcks(1, 2)
		c.exchange(c.peerSend(2, 16), c.deviceAck(2, 3))
		c.ExpectRecv(1, 16)
		c.ExpectRecv(2, 16)
		c.ExpectBytes(c.TargetMem, 0, Data(16))
	}),
}, {
	ID: "rc/ack/read-answered-unasked", Cite: ibta("9.7.5", "rc/ack/3"),
	Title:   "A READ is answered with and without AckReq",
	Sends:   "a READ without AckReq and one with it",
	Expects: "the same kind of answer to both, and no ACK besides",
	Defects: []string{"ReadNeedsAckReq"}, Run: onRC(func(c *Conn) {
		c.exchange(c.peerRead(0, 2500).NoAckReq(), ib.ReadResponses(c.PeerPSN(0), ib.AnyMSN, c.TargetMem.Buf[:2500], MTU)...)
		c.exchange(c.peerRead(3, 64).AckReq(), ib.ReadResponseOnly(c.PeerPSN(3), ib.AnyMSN, c.TargetMem.Buf[:64]))
		c.expectSilence(silencePeriod)
	}),
}, {
	ID: "rc/ack/atomic-answered-unasked", Cite: ibta("9.7.5", "rc/ack/3"), Needs: verbs.CapAtomics,
	Title:   "An atomic is answered with and without AckReq",
	Sends:   "a FETCH_ADD and a COMPARE_SWAP without AckReq, and a FETCH_ADD with it",
	Expects: "an atomic ACK for each, and no other",
	Defects: []string{"ReadNeedsAckReq"}, Run: onRC(func(c *Conn) {
		c.exchange(ib.FetchAdd(c.PeerPSN(0), c.RETH(0, 8), 1).NoAckReq(), ib.Op(ib.OpAtomicAcknowledge).WithPSN(c.PeerPSN(0)))
		c.exchange(ib.CompareSwap(c.PeerPSN(1), c.RETH(0, 8), 1, 2).NoAckReq(), ib.Op(ib.OpAtomicAcknowledge).WithPSN(c.PeerPSN(1)))
		c.exchange(ib.FetchAdd(c.PeerPSN(2), c.RETH(0, 8), 1).AckReq(), ib.Op(ib.OpAtomicAcknowledge).WithPSN(c.PeerPSN(2)))
		c.expectSilence(silencePeriod)
	}),
}, {
	ID: "rc/ack/ack-waits-for-earlier-read-responses", Cite: ibta("V1C09-027#02, V1C09-027#05", "rc/ack/11"),
	Title:   "The ACK of a WRITE is sent after all responses of an earlier READ",
	Sends:   "a READ of 64 responses with a WRITE right after it, first at full speed, then slowed down by CNPs",
	Expects: "64 responses in order, then the ACK",
	Defects: []string{"AckOvertakesRead"}, Run: onConn(Setup{Modify: func(a *verbs.QPAttr) { a.PathMTU = verbs.MTU256 }}, func(c *Conn) {
		for i := range 2 {
			first := c.PeerPSN(65 * i)
			c.Send(c.peerRead(65*i, memLen).AckReq(), c.peerWrite(65*i+64, 0))
			c.expectAll(ib.ReadResponses(first, ib.AnyMSN, c.TargetMem.Buf, 256))
			c.expect(ib.Ack(first.Add(64), ib.AnyMSN))
			c.throttle()
		}
	}),
}, {
	ID: "rc/ack/requester-asks-at-the-end-of-a-message", Cite: ibta("", "rc/ack/8"),
	Title:   "The last packet of a SEND or WRITE has AckReq",
	Sends:   "an ACK to each message of the device: SENDs and WRITEs of one packet and of three, with and without immediate",
	Expects: "AckReq in LAST and ONLY; it may be set in others too",
	Defects: []string{"AckReqNever"}, Run: onConn(Setup{}, func(c *Conn) {
		k := 0
		for i, n := range []int{16, 2500, 0} {
			for j, op := range []verbs.WROpcode{verbs.OpSend, verbs.OpRDMAWrite, verbs.OpSendImm, verbs.OpRDMAWriteImm} {
				// Post one message at a time: the last of several may request the ACK for all.
				wr := c.WriteWR(1, n)
				wr.Opcode = op
				c.PostSend(c.QP, wr)
				k += ib.Packets(n, MTU)
				all := c.nextPackets(ib.Packets(n, MTU))
				last := all[len(all)-1]
				c.Check(last.HasAckReq(), "AckReq in the last packet of the message", "%v", last)
				c.completeWith(c.peerAck(k-1, uint32(4*i+j+1)), 1)
			}
		}
	}),
}, {
	ID: "rc/ack/one-ack-covers-all-before-it", Cite: ibta("9.7.5.1.2", "rc/ack/4"),
	Title:   "An ACK completes all SENDs and WRITEs up to its PSN, in order",
	Sends:   "one ACK, with the PSN of the last of two SENDs and two WRITEs, one of them of three packets",
	Expects: "four completions in order",
	Defects: []string{"AckCoversOne"}, Run: onConn(Setup{}, func(c *Conn) {
		c.request(0, c.SendWR(1, 8), c.WriteWR(2, 2500), c.SendWR(3, 0), c.WriteWR(4, 8))
		c.completeWith(c.peerAck(5, 4), 1, 2, 3, 4)
	}),
}, {
	ID: "rc/ack/ack-inside-a-message-completes-nothing", Cite: ibta("V1C09-060#05", "rc/ack/7"),
	Title:   "An ACK with a PSN inside a message completes earlier messages, and not this one",
	Sends:   "ACKs with the PSN of each packet of a WRITE of five that follows a SEND",
	Expects: "the SEND completes at the first, the WRITE at the last",
	Defects: []string{"AckInsideCompletes"}, Run: onConn(Setup{}, func(c *Conn) {
		c.request(0, c.SendWR(1, 8), c.WriteWR(2, 5000))
		c.completeWith(c.peerAck(1, 1), 1)
		for k := 2; k <= 4; k++ {
			c.Send(c.peerAck(k, 1))
			c.expectNoCompletion()
		}
		c.completeWith(c.peerAck(5, 2), 2)
	}),
}, {
	ID: "rc/ack/ack-past-a-read-repeats-the-read", Cite: ibta("", "rc/ack/5"),
	Title:   "An ACK after an unanswered READ implies that the response was lost: the READ is retransmitted",
	Sends:   "an ACK, a sequence NAK, an RNR NAK or a fatal NAK with the PSN of the last of WRITE, READ, WRITE, SEND; but for the last, then correct responses from the READ on; on another queue pair the response to a READ after it, then correct responses",
	Expects: "only the first WRITE completes; all requests from the READ on are retransmitted, and complete with the READ's data",
	Defects: []string{"AckSkipsRead", "RNRNAKSkipsRead", "FatalNAKSkipsRead"}, Run: onConn(Setup{Modify: withTimeoutAndRetries(timeout67ms, 7)}, func(c *Conn) {
		ackPastUnanswered(c, c.ReadWR(2, 8), ib.ReadResponseOnly(c.DevicePSN(1), 2, Data(8)))
		answerPastUnanswered(c.secondConn(Setup{Modify: withTimeoutAndRetries(timeout67ms, 7)}), c.ReadWR(2, 8), ib.ReadResponseOnly(firstDevicePSN, 1, Data(8)))
	}),
}, {
	ID: "rc/ack/ack-past-an-atomic-repeats-the-atomic", Cite: ibta("", "rc/ack/5"), Needs: verbs.CapAtomics,
	Title:   "An ACK after an unanswered atomic implies that the response was lost: the atomic is retransmitted",
	Sends:   "an ACK, a sequence NAK, an RNR NAK or a fatal NAK with the PSN of the last of WRITE, FETCH_ADD, WRITE, SEND; but for the last, then correct responses from the atomic on; on another queue pair the response to a READ after it, then correct responses",
	Expects: "only the first WRITE completes; all requests from the atomic on are retransmitted, and complete",
	Defects: []string{"AckSkipsRead"}, Run: onConn(Setup{Modify: withTimeoutAndRetries(timeout67ms, 7)}, func(c *Conn) {
		ackPastUnanswered(c, c.fetchAddWR(2), ib.AtomicAck(c.DevicePSN(1), 2, 7))
		answerPastUnanswered(c.secondConn(Setup{Modify: withTimeoutAndRetries(timeout67ms, 7)}), c.fetchAddWR(2), ib.AtomicAck(firstDevicePSN, 1, 7))
	}),
}, {
	ID: "rc/ack/read-response-acknowledges-earlier-writes", Cite: ibta("", "rc/ack/6"),
	Title:   "The answer to a READ acknowledges the SENDs and WRITEs before it",
	Sends:   "READ responses, and no ACK, to a WRITE, a SEND and a READ of three responses",
	Expects: "three completions in order",
	Defects: []string{"ReadAckIgnored"}, Run: onConn(Setup{}, func(c *Conn) {
		c.request(0, c.WriteWR(1, 8), c.SendWR(2, 2500), c.ReadWR(3, 2500))
		c.Send(ib.ReadResponses(c.DevicePSN(4), 3, Data(2500), MTU)...)
		c.ExpectCompletions(verbs.WCSuccess, 1, 2, 3)
		c.ExpectBytes(c.LocalMem, SinkOffset, Data(2500))
	}),
}, {
	ID: "rc/ack/atomic-answer-acknowledges-earlier-sends", Cite: ibta("", "rc/ack/6"), Needs: verbs.CapAtomics,
	Title:   "The answer to an atomic acknowledges the SENDs and WRITEs before it",
	Sends:   "an atomic ACK, and no other, to a SEND, a WRITE and a FETCH_ADD",
	Expects: "three completions in order",
	Defects: []string{"ReadAckIgnored"}, Run: onConn(Setup{}, func(c *Conn) {
		c.request(0, c.SendWR(1, 8), c.WriteWR(2, 8), c.fetchAddWR(3))
		c.completeWith(ib.AtomicAck(c.DevicePSN(2), 3, 7), 1, 2, 3)
	}),
}, {
	ID: "rc/ack/plain-ack-completes-no-read", Cite: ibta("V1C09-060#07", "rc/ack/9"),
	Title:   "A plain ACK with the PSN of a READ does not complete it",
	Sends:   "an ACK with the PSN of a READ; if the READ is retransmitted, the correct response",
	Expects: "the READ is retransmitted and completes with its data, or fails",
	Defects: []string{"AckCompletesRead"}, Run: plainAckToRead,
}, {
	ID: "rc/ack/plain-ack-completes-no-atomic", Cite: ibta("V1C09-060#07", "rc/ack/9"), Needs: verbs.CapAtomics,
	Title:   "A plain ACK with the PSN of an atomic does not complete it",
	Sends:   "an ACK with the PSN of a FETCH_ADD; if that is retransmitted, the correct response",
	Expects: "the FETCH_ADD is retransmitted and completes with its response, or fails",
	Defects: []string{"AckCompletesRead"}, Run: onConn(Setup{Modify: withTimeoutAndRetries(timeout67ms, 7)}, func(c *Conn) {
		answerWithPlainAck(c, c.fetchAddWR(1), ib.AtomicAck(c.DevicePSN(0), 1, 7))
	}),
}, {
	ID: "rc/ack/old-ack-among-read-responses-ignored", Cite: ibta("", "rc/ack/10"),
	Title:   "A duplicate ACK between the responses of a READ has no effect",
	Sends:   "to a WRITE and a READ of three responses: the ACK of the WRITE, and again after the first and the second response",
	Expects: "the READ completes with all its data",
	Defects: []string{"StaleAckBreaksRead"}, Run: onConn(Setup{}, func(c *Conn) {
		c.request(0, c.WriteWR(1, 4), c.ReadWR(2, 2500))
		ack := c.peerAck(0, 1)
		r := ib.ReadResponses(c.DevicePSN(1), 2, Data(2500), MTU)
		c.Send(ack, r[0], ack, r[1], ack, r[2])
		c.ExpectCompletions(verbs.WCSuccess, 1, 2)
		c.ExpectBytes(c.LocalMem, SinkOffset, Data(2500))
		c.ExpectUnchangedOutside(c.LocalMem, SinkOffset, 2500)
		c.ExpectState(c.QP, verbs.QPStateRTS)
	}),
}, {
	ID: "rc/ack/resent-responses-with-loss-leave-no-hole", Cite: ibta("", "rc/ack/10", "cq/10"),
	Title:   "Late and duplicate READ responses with a missing packet leave no gap in the data",
	Sends:   "after a WRITE and a READ of three responses have been repeated: the answers without the second response, then all of them",
	Expects: "the READ completes with all its data",
	Defects: []string{"StaleAckBreaksRead"}, Run: onConn(Setup{Modify: withTimeoutAndRetries(timeout67ms, 7)}, func(c *Conn) {
		all := c.request(0, c.WriteWR(1, 4), c.ReadWR(2, 2500))
		c.expectRetransmission(all, 0) // the responses are late
		ack := c.peerAck(0, 1)
		r := ib.ReadResponses(c.DevicePSN(1), 2, Data(2500), MTU)
		c.Send(ack, r[0], r[2])
		c.Send(ack, r[0], r[1], r[2])
		c.ExpectCompletion(1, verbs.WCSuccess)
		answerReadUntilDone(c, Data(2500))
		c.ExpectUnchangedOutside(c.LocalMem, SinkOffset, 2500)
		c.ExpectState(c.QP, verbs.QPStateRTS)
	}),
}})

// expectOptionalAcks fails the case if the device has sent anything on the connection but ACKs of
// the peer's k-th packet, which had no AckReq, with this MSN.
func (c *Conn) expectOptionalAcks(k int, msn uint32) {
	for _, p := range c.Drain(sentSoFar) {
		if p.DestQP() == peerQPN {
			c.checkPacket(c.deviceAck(k, msn), p)
		}
	}
}

// ackPastUnanswered posts a WRITE, wr, a WRITE and a SEND, and sends an ACK, a sequence NAK or an
// RNR NAK for the SEND without the response to wr, which has ID 2. The case fails unless the device
// retransmits from wr on, and all complete after answer, the response to wr. A fatal NAK for the
// SEND must not complete wr with success either.
func ackPastUnanswered(c *Conn, wr verbs.SendWR, answer ib.Packet) {
	post := func() []ib.Packet { return c.request(0, c.WriteWR(1, 8), wr, c.WriteWR(3, 16), c.SendWR(4, 24)) }
	for _, past := range []ib.Packet{c.peerAck(3, 4), c.peerNak(3, ib.NakSequence, 3), ib.RNR(c.DevicePSN(3), 1, 3)} {
		all := post()
		c.completeWith(past.WithPSN(c.DevicePSN(3)), 1)
		c.expectNoCompletion()
		c.expectAll(all[1:])
		c.Send(answer.WithPSN(c.DevicePSN(1)), c.peerAck(3, 4))
		c.ExpectCompletions(verbs.WCSuccess, 2, 3, 4)
		if len(answer.Payload) > 0 {
			c.ExpectBytes(c.LocalMem, SinkOffset, answer.Payload)
		}
		c.Attr.SQPSN = uint32(c.DevicePSN(4))
	}
	post()
	c.completeWith(c.peerNak(3, ib.NakRemoteAccess, 3), 1)
	c.Sync()
	c.ExpectNoSuccess()
	c.Must("a queue pair that is destroyed", c.QP.Close())
	c.Drain(sentSoFar)
	c.Completions()
}

// answerPastUnanswered posts wr, which has ID 2, and a READ, and answers the READ only. The case
// fails if wr completes before answer, the response to it, or not after it.
func answerPastUnanswered(c *Conn, wr verbs.SendWR, answer ib.Packet) {
	c.request(0, wr, c.ReadWR(3, 8))
	read := ib.ReadResponseOnly(c.DevicePSN(1), 2, Data(8))
	c.Send(read)
	c.expectNoCompletion()
	c.Drain(sentSoFar) // retransmissions
	c.Send(answer, read)
	c.ExpectCompletions(verbs.WCSuccess, 2, 3)
}

// answerWithPlainAck answers a READ or atomic of the device by an ACK. The device must retransmit
// the request, and answer, the right response, completes it; or it must complete it with an error.
// The result says whether the request succeeded.
func answerWithPlainAck(c *Conn, wr verbs.SendWR, answer ib.Packet) (succeeded bool) {
	request := c.request(0, wr)
	c.Send(c.peerAck(0, 1))
	again, ok := c.NextPacket(c.ResponseTimeout())
	if !ok {
		c.expectErrorCompletion(wr.WRID)
		return false
	}
	c.checkPacket(request[0], again)
	c.ExpectNoCompletion()
	c.completeWith(answer, wr.WRID)
	return true
}

// answerReadUntilDone answers the outstanding READ, which has ID 2 and the device's second PSN,
// each time the device retransmits it. The case fails unless the READ completes with these bytes.
func answerReadUntilDone(c *Conn, all []byte) {
	for tries := 0; ; tries++ {
		if wc, ok := c.PollCompletion(shortWait); ok {
			c.Check(wc.WRID == 2 && wc.Status == verbs.WCSuccess, "the READ to complete", "request %d: %v", wc.WRID, wc.Status)
			c.ExpectBytes(c.LocalMem, SinkOffset, all)
			return
		}
		p := c.expect(ib.Op(ib.OpReadRequest))
		c.Check(tries < 8, "a READ that completes when it is answered", "%v retransmitted repeatedly", p)
		skip := p.PSN().Sub(c.DevicePSN(1)) * MTU
		c.Send(ib.ReadResponses(p.PSN(), 2, all[skip:], MTU)...)
	}
}

// plainAckToRead is the body of two cases about an ACK with the PSN of a READ.
var plainAckToRead = onConn(Setup{Modify: withTimeoutAndRetries(timeout67ms, 7)}, func(c *Conn) {
	if answerWithPlainAck(c, c.ReadWR(1, 8), ib.ReadResponseOnly(c.DevicePSN(0), 1, Data(8))) {
		c.ExpectBytes(c.LocalMem, SinkOffset, Data(8))
	}
})

var badAnswerCases = overRC.Cases([]conformance.Case{{
	ID: "rc/ack/reserved-syndrome-is-no-success", Cite: ibta("", "rc/ack/12"),
	Title:   "An acknowledgement with a reserved syndrome completes no request successfully",
	Sends:   "to a WRITE of the device: an ACK with type bits 10, or with bit 7 set",
	Expects: "the answer is ignored, or the WRITE completes with BAD_RESP_ERR",
	Defects: []string{"BadRespSucceeds"}, Run: onEachConn(Setup{}, []uint8{0x40, 0x5f, 0x80, 0x9f}, func(c *Conn, syndrome uint8) {
		c.expectNotSuccess(syndrome, func(s verbs.WCStatus) bool { return s == verbs.WCBadRespErr })
	}),
}, {
	ID: "rc/ack/reserved-nak-code-is-no-success", Cite: ibta("", "rc/ack/14"), Level: conformance.Should,
	Title:   "A NAK with a reserved code is not treated as an ACK",
	Sends:   "to a WRITE of the device: a NAK with code 5, 16 or 31",
	Expects: "the NAK is ignored, or the WRITE completes with an error",
	Defects: []string{"ReservedNAKIsAck"}, Run: onEachConn(Setup{}, []uint8{0x65, 0x70, 0x7f}, func(c *Conn, syndrome uint8) {
		c.expectNotSuccess(syndrome, func(s verbs.WCStatus) bool { return s != verbs.WCSuccess })
	}),
}, {
	ID: "rc/ack/atomic-answer-to-a-read-is-a-bad-response", Cite: ibta("", "rc/ack/13"),
	Title:   "An atomic acknowledge for a READ completes it with BAD_RESP_ERR and fails the QP",
	Sends:   "to a READ of 8 bytes: an ATOMIC_ACKNOWLEDGE with its PSN",
	Expects: "BAD_RESP_ERR, the QP in ERR, no byte of the buffer changed",
	Defects: []string{"BadRespSucceeds"}, Run: onConn(Setup{}, func(c *Conn) {
		c.request(0, c.ReadWR(1, 8))
		c.Send(ib.AtomicAck(c.DevicePSN(0), 1, 0x1122334455667788))
		c.ExpectCompletion(1, verbs.WCBadRespErr)
		c.AwaitState(c.QP, verbs.QPStateErr)
		c.ExpectUntouched(c.LocalMem)
	}),
}, {
	ID: "rc/ack/middle-response-first-is-a-bad-response", Cite: ibta("", "rc/ack/13"),
	Title:   "READ responses that begin with a MIDDLE complete the READ with BAD_RESP_ERR and fail the QP",
	Sends:   "to a READ that was not repeated: a READ_RESPONSE_MIDDLE with its PSN",
	Expects: "BAD_RESP_ERR, the QP in ERR",
	Defects: []string{"BadRespSucceeds"}, Run: onConn(Setup{}, func(c *Conn) {
		c.request(0, c.ReadWR(1, 2500))
		c.Send(ib.New(ib.OpReadResponseMiddle, c.DevicePSN(0), Data(MTU)))
		c.ExpectCompletion(1, verbs.WCBadRespErr)
		c.AwaitState(c.QP, verbs.QPStateErr)
	}),
}, {
	ID: "rc/ack/response-opcode-has-its-place", Cite: ibta("", "rc/ack/13"),
	Title:   "A READ response whose opcode does not fit its place completes the READ with BAD_RESP_ERR",
	Sends:   "to READs of one, two and three full packets: at each place, after correct responses, a response of every other kind",
	Expects: "BAD_RESP_ERR and the QP in ERR; for a LAST or ONLY that comes too early, another error or a retry is right as well",
	Defects: []string{"ReadMiddleEndsRead", "BadRespSucceeds"}, Run: onEachConn(Setup{Modify: withTimeoutAndRetries(timeout67ms, 7)}, misplacedResponses(), func(c *Conn, m misplacedResponse) {
		bytes := Data(m.packets * MTU)
		responses := c.startRead(bytes)
		valid := responses[m.at]
		wrong := ib.Response(m.op, valid.PSN(), 1, valid.Payload)
		switch m.op {
		case ib.OpReadResponseMiddle:
			wrong = ib.New(m.op, valid.PSN(), valid.Payload)
		case ib.OpAtomicAcknowledge:
			wrong = ib.AtomicAck(valid.PSN(), 1, 7)
		}
		c.Send(append(responses[:m.at:m.at], wrong)...)
		if m.at < m.packets-1 && (m.op == ib.OpReadResponseLast || m.op == ib.OpReadResponseOnly) {
			c.expectErrorOrRetry(bytes)
			return
		}
		c.ExpectCompletion(1, verbs.WCBadRespErr)
		c.AwaitState(c.QP, verbs.QPStateErr)
	}),
}, {
	ID: "rc/ack/fatal-nak-codes-have-statuses-of-their-own", Cite: ibta("Table 63", "rc/ack/15"),
	Title:   "NAK codes 1, 2 and 3 complete the refused request with REM_INV_REQ_ERR, REM_ACCESS_ERR and REM_OP_ERR",
	Sends:   "to a WRITE of the device: a NAK with each code",
	Expects: "the status of the code",
	Defects: []string{"NAKFlushesAll"}, Run: onEachConn(Setup{}, fatalNAKs, func(c *Conn, n nakStatus) {
		c.request(0, c.WriteWR(1, 16))
		c.Send(c.peerNak(0, n.code, 0))
		c.ExpectCompletion(1, n.status)
	}),
}, {
	ID: "rc/ack/fatal-nak-spares-what-came-before", Cite: ibta("Table 63", "rc/ack/15"),
	Title:   "A fatal NAK completes requests before the refused one successfully and flushes those after it",
	Sends:   "to the second of three WRITEs: a NAK for a remote access error",
	Expects: "SUCCESS, REM_ACCESS_ERR, WR_FLUSH_ERR in this order",
	Defects: []string{"NAKFlushesAll"}, Run: onConn(Setup{}, func(c *Conn) {
		c.request(0, c.WriteWR(1, 16), c.WriteWR(2, 16), c.WriteWR(3, 16))
		c.completeWith(c.peerNak(1, ib.NakRemoteAccess, 1), 1)
		c.ExpectCompletion(2, verbs.WCRemAccessErr)
		c.ExpectCompletion(3, verbs.WCWRFlushErr)
	}),
}})

// nakStatus is a NAK code and the completion status that it causes.
type nakStatus struct {
	code   ib.NakCode
	status verbs.WCStatus
}

var fatalNAKs = []nakStatus{
	{ib.NakInvalidRequest, verbs.WCRemInvReqErr},
	{ib.NakRemoteAccess, verbs.WCRemAccessErr},
	{ib.NakRemoteOp, verbs.WCRemOpErr},
}

// expectNotSuccess answers a WRITE of the device by an ACK with this syndrome. The device may
// complete the WRITE with a status for which allowed is true, or ignore the ACK; then a valid ACK
// must complete the WRITE.
func (c *Conn) expectNotSuccess(syndrome uint8, allowed func(verbs.WCStatus) bool) {
	c.request(0, c.WriteWR(1, 16))
	c.Send(c.peerAck(0, 1).WithSyndrome(syndrome))
	c.Sync() // the device has then processed it
	if wc, ok := c.PollCompletion(0); ok {
		c.Check(allowed(wc.Status), "a response that is ignored, or an error", "%s", rig.Describe(&wc))
		return
	}
	c.completeWith(c.peerAck(0, 1), 1)
}

// misplacedResponse is a wrong opcode of a response to a READ.
type misplacedResponse struct {
	packets int // number of responses to the READ
	at      int // index of the response with the wrong opcode
	op      ib.Opcode
}

// misplacedResponses returns every wrong opcode at every place of one, two and three responses.
func misplacedResponses() (all []misplacedResponse) {
	ops := []ib.Opcode{ib.OpReadResponseFirst, ib.OpReadResponseMiddle, ib.OpReadResponseLast, ib.OpReadResponseOnly, ib.OpAtomicAcknowledge}
	for packets := 1; packets <= 3; packets++ {
		for at, valid := range ib.ReadResponses(0, 0, Data(packets*MTU), MTU) {
			for _, op := range ops {
				if op != valid.Opcode() {
					all = append(all, misplacedResponse{packets, at, op})
				}
			}
		}
	}
	return all
}

// expectAcksWhileSending has the device send a long WRITE on c, whose path MTU is 256. The peer
// acknowledges the packets that have arrived, each time together with a WRITE, and the case fails
// unless the device acknowledges that WRITE. A device may send its requests first, and delay the
// ACK.
func (c *Conn) expectAcksWhileSending() {
	const rounds, perRound = 40, 256 // a device may send that many packets without an ACK
	m := c.Memory(rounds*perRound*256, verbs.AccessLocalWrite)
	wr := c.WriteWR(1, 0)
	wr.SGL = m.SGL(0, len(m.Buf))
	c.PostSend(c.QP, wr)
	n := 0 // packets of the device
	count := func(a *Arrival) {
		if a.PSN() == c.DevicePSN(n) {
			n++
		}
	}
	for k := range rounds {
		for a, ok := c.NextPacket(shortWait); ok; a, ok = c.NextPacket(shortWait) {
			count(&a)
		}
		c.Send(c.peerAck(n-1, 0), c.peerWrite(k, 0))
		want := c.deviceAck(k, uint32(k+1))
		c.checkPacket(want, c.expectAfter(func(a *Arrival) bool { count(a); return !a.IsAck(ib.AckPositive) }, want.String()))
	}
}
