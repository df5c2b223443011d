package roce

import (
	"fmt"

	"github.com/fabrictest/fabrictest/conformance"
	"github.com/fabrictest/fabrictest/conformance/packet/ib"
	"github.com/fabrictest/fabrictest/conformance/rig"
	"github.com/fabrictest/fabrictest/verbs"
)

var retryCases = overRC.Cases([]conformance.Case{{
	ID: "rc/tmo/nak-resends-from-inside-the-message", Cite: ibta("", "rc/tmo/7"),
	Title:   "After a NAK inside a message its packets are retransmitted unchanged from there on",
	Sends:   "a NAK for a sequence error to the third packet of a WRITE, or SEND, of five, then an ACK",
	Expects: "MIDDLE, MIDDLE, LAST with the PSNs and data that they had, and success; the retransmission may begin earlier",
	Defects: []string{"RetryRestartsMessage"}, Run: onEachConn(Setup{Modify: withTimeoutAndRetries(timeout67ms, 7)}, []verbs.WROpcode{
		verbs.OpRDMAWrite, verbs.OpSend,
	}, func(c *Conn, op verbs.WROpcode) {
		wr := c.WriteWR(1, 5000)
		wr.Opcode = op
		all := c.request(0, wr)
		c.Send(c.peerNak(2, ib.NakSequence, 0))
		c.expectRetransmission(all, 2)
		c.completeWith(c.peerAck(4, 1), 1)
	}),
}, {
	ID: "rc/tmo/timer-resends-from-the-oldest-unacknowledged", Cite: ibta("", "rc/tmo/7"),
	Title:   "When the timer expires, packets are retransmitted unchanged from the oldest unacknowledged one on",
	Sends:   "an ACK to the second packet of a WRITE of five, with a SEND after it; after a while an ACK to the SEND",
	Expects: "MIDDLE, MIDDLE, LAST and the SEND with the PSNs and data that they had, and success; the retransmission may begin earlier",
	Defects: []string{"RetryRestartsMessage"}, Run: onConn(Setup{Modify: withTimeoutAndRetries(timeout4ms, 7)}, func(c *Conn) {
		all := c.request(0, c.WriteWR(1, 5000), c.SendWR(2, 8))
		c.Send(c.peerAck(1, 0))
		c.expectRetransmission(all, 2)
		c.completeWith(c.peerAck(5, 2), 1, 2)
	}),
}, {
	ID: "rc/tmo/nak-acted-on-at-once", Cite: ibta("9.7.5", "rc/tmo/8"),
	Title:   "A NAK for a sequence error starts the retransmission without waiting for the timer",
	Sends:   "a NAK for a sequence error to the second of three SENDs of a queue pair with a timeout of 1.07 s",
	Expects: "two SENDs are retransmitted within a tenth of the timeout",
	Defects: []string{"NAKWaitsForTimer"}, Run: onConn(Setup{Modify: withTimeoutAndRetries(18, 7)}, func(c *Conn) {
		all := c.request(0, c.SendWR(1, 8), c.SendWR(2, 16), c.SendWR(3, 24))
		begun := c.Now()
		c.Send(c.peerNak(1, ib.NakSequence, 1))
		c.expectRetransmission(all, 1)
		took, most := c.Now()-begun, ib.AckTimeout(c.Attr.Timeout)/10
		c.Check(took <= most, fmt.Sprintf("the retransmission within %v of the NAK", most), "after %v", took)
		c.completeWith(c.peerAck(2, 3), 1, 2, 3)
	}),
}, {
	ID: "rc/tmo/second-nak-of-a-window-acted-on", Cite: ibta("", "rc/tmo/9"), Level: conformance.Should,
	Title:   "A second NAK, for a later retransmitted packet, causes another retransmission",
	Sends:   "to five SENDs of a queue pair without timer: a NAK for the second; when they have been retransmitted, one for the fourth",
	Expects: "retransmissions from the second, then from the fourth",
	Defects: []string{"IgnoreSecondNAK"}, Run: onConn(Setup{}, func(c *Conn) {
		all := c.sendEach(5)
		c.Send(c.peerNak(1, ib.NakSequence, 1))
		c.expectRetransmission(all, 1)
		c.Send(c.peerNak(3, ib.NakSequence, 3))
		c.expectRetransmission(all, 3)
		c.completeWith(c.peerAck(4, 5), 1, 2, 3, 4, 5)
	}),
}, {
	ID: "rc/tmo/nak-acknowledges-what-came-before", Cite: ibta("", "rc/tmo/10"),
	Title:   "A NAK for a sequence error acknowledges earlier requests",
	Sends:   "a NAK for a sequence error to the third of five SENDs",
	Expects: "two completions, and no more",
	Defects: []string{"NAKAcksNothing"}, Run: onConn(Setup{}, func(c *Conn) {
		c.sendEach(5)
		c.completeWith(c.peerNak(2, ib.NakSequence, 2), 1, 2)
		c.expectNoCompletion()
	}),
}, {
	ID: "rc/tmo/copies-of-a-nak-cause-one-resend", Cite: ibta("", "rc/tmo/11"),
	Title:   "Several copies of a NAK cause one retransmission",
	Sends:   "eight copies of a NAK for a sequence error to the second of five SENDs, all at once",
	Expects: "four SENDs are retransmitted once",
	Defects: []string{"DuplicateNAKsResend"}, Run: onConn(Setup{}, func(c *Conn) {
		all := c.sendEach(5)
		for range 8 {
			c.Send(c.peerNak(1, ib.NakSequence, 1))
		}
		c.expectRetransmission(all, 1)
		c.expectSilence(silencePeriod)
	}),
}, {
	ID: "rc/tmo/resent-bytes-are-the-same", Cite: ibta("", "rc/tmo/12"),
	Title:   "A retransmitted packet has the original headers and data",
	Sends:   "NAKs for a sequence error in the middle of a SEND with immediate, a WRITE of two pieces of memory and one with immediate, and nothing; nothing to a SEND whose memory is deregistered then",
	Expects: "every packet byte by byte as it was, from the BTH to the last byte of the padding; AckReq may differ; the last SEND may fail instead",
	Defects: []string{"RetryRestartsMessage", "RetrySendsClosedMemory"}, Run: onConn(Setup{Modify: withTimeoutAndRetries(timeout4ms, 7)}, func(c *Conn) {
		send, write, imm := c.SendWR(1, 2501), c.WriteWR(2, 0), c.WriteWR(3, 2503)
		send.Opcode, send.Imm, send.Flags = verbs.OpSendImm, 0x01020304, verbs.SendSignaled|verbs.SendSolicited
		write.SGL = []verbs.SGE{c.LocalMem.SGE(3000, 1501), c.LocalMem.SGE(100, 1001)}
		imm.Opcode, imm.Imm = verbs.OpRDMAWriteImm, 0x05060708
		c.PostSend(c.QP, send, write, imm)
		var first []ib.Packet
		for _, pkt := range c.nextPackets(9) {
			first = append(first, retransmissionOf(pkt))
		}
		for _, k := range []int{1, 4, 8} {
			c.Send(c.peerNak(k, ib.NakSequence, uint32(k/3)))
			c.expectRetransmission(first, k)
		}
		c.expectRetransmission(first, 8) // by the timer
		c.free()
		c = c.secondConn(Setup{Modify: withTimeoutAndRetries(timeout4ms, 7)})
		m := c.Memory(64, verbs.AccessLocalWrite)
		send.Opcode, send.SGL = verbs.OpSend, m.SGL(0, 64)
		c.PostSend(c.QP, send)
		sent := c.expect(ib.SendOnly(c.DevicePSN(0), m.Buf))
		c.Must("a region that can be deregistered", m.Close())
		if again, ok := c.NextMatching(c.isForPeer, 8*ib.AckTimeout(c.Attr.Timeout)); ok {
			c.checkPacket(retransmissionOf(sent), again)
			return
		}
		c.expectErrorCompletion(1)
	}),
}, {
	ID: "rc/tmo/destroyed-qp-sends-nothing", Cite: ibta("", "rc/tmo/13"),
	Title:   "A queue pair that is destroyed while a timer runs sends nothing",
	Sends:   "nothing, or an RNR NAK, to a SEND, whose queue pair is destroyed then; a late ACK",
	Expects: "nothing on the wire though the time for retransmissions passes, and no completion",
	Defects: []string{"SendAfterDestroy"}, Run: onEachConn(Setup{Modify: withTimeoutAndRetries(timeout4ms, 7)}, []bool{false, true}, func(c *Conn, refused bool) {
		c.request(0, c.SendWR(1, 8))
		if refused {
			const timer5ms = 18 // code of 5.12 ms
			c.Send(ib.RNR(c.DevicePSN(0), timer5ms, 0))
			c.Sync()
		}
		qpn := uint32(c.QP.QPN())
		c.Must("a queue pair that can be destroyed", c.QP.Close())
		c.Drain(sentSoFar) // discards packets of a timer that expired before
		c.Sleep(4 * ib.AckTimeout(c.Attr.Timeout))
		c.SendPacket(c.peerAck(0, 1).To(qpn))
		c.expectNothing()
	}),
}, {
	ID: "rc/tmo/reset-qp-sends-nothing", Cite: ibta("", "rc/tmo/13"),
	Title:   "A queue pair that is reset discards pending requests and responses",
	Sends:   "CNPs, which slow the responses down; a READ of 1024 responses and a WRITE to a queue pair with an unanswered SEND, which is then reset",
	Expects: "nothing more on the wire, though the answer is not at its end and the time for retransmissions passes, and no completion",
	Defects: []string{"AnswerAfterReset"}, Run: onConn(Setup{Modify: withTimeoutAndRetries(timeout4ms, 7)}, func(c *Conn) {
		long := c.Memory(1<<20, allAccess)
		c.throttle()
		c.request(0, c.SendWR(1, 8))
		c.Send(ib.ReadRequest(c.PeerPSN(0), rethFor(long, 0, len(long.Buf))).AckReq(), c.peerWrite(1024, 8))
		isRetransmission := func(a *Arrival) bool { return a.Opcode() == ib.OpSendOnly }
		first := c.expectAfter(isRetransmission, "a response to the READ")
		c.checkPacket(ib.Response(ib.OpReadResponseFirst, c.PeerPSN(0), ib.AnyMSN, nil), first)
		c.ToState(c.QP, verbs.QPStateReset)
		answered := checkSentBeforeReset(c, c.Drain(sentSoFar))
		c.Sleep(4 * ib.AckTimeout(c.Attr.Timeout))
		c.expectNothing()
		if answered {
			rig.BenchCannot("the device had answered everything before the reset")
		}
	}),
}, {
	ID: "rc/tmo/number-of-a-destroyed-qp-rests", Cite: ibta("", "rc/tmo/13"), Level: conformance.Should,
	Title:   "The QPN of a destroyed queue pair is not reused for the next one",
	Sends:   "nothing: queue pairs are made and destroyed",
	Expects: "each has another QPN than the one before, so that late packets are dropped",
	Defects: []string{"QPNReusedAtOnce"}, Run: OnPort(func(p *Port) {
		last := verbs.QPN(0)
		for range 8 {
			qp := p.connect(Setup{}).QP
			p.Check(qp.QPN() != last, "another QPN than that of the last queue pair", "%#x again", last)
			last = qp.QPN()
			p.Must("a queue pair that can be destroyed", qp.Close())
		}
	}),
}})

// sendEach has the device send n SENDs of different lengths, one by one, and returns the packets.
func (c *Conn) sendEach(n int) []ib.Packet {
	all := make([]ib.Packet, 0, n)
	for k := range n {
		c.PostSend(c.QP, c.SendWR(uint64(k+1), 8*(k+1)))
		all = append(all, c.expectAll(c.wantSend(k, 8*(k+1)))...)
	}
	return all
}

// checkSentBeforeReset fails the case if one of the packets, which were received after the reset of
// a queue pair, cannot have been sent before the reset. The queue pair had to answer a long READ
// and retransmit a SEND; the result is true if it has answered the READ completely.
func checkSentBeforeReset(c *Conn, received []Arrival) (answered bool) {
	for _, p := range received {
		if p.Opcode() == ib.OpReadResponseLast {
			return true
		}
		c.Check(p.Opcode() == ib.OpReadResponseMiddle || p.Opcode() == ib.OpSendOnly, "only packets that were sent before the reset", "%v", p)
	}
	return false
}

// retransmissionOf returns the expected retransmission of p. AckReq, FECN and BECN may differ.
func retransmissionOf(p Arrival) ib.Packet {
	want := ib.Packet{BTH: p.BTH, Payload: p.Payload, Pad: p.Pad}
	want.RETH, want.Imm = p.RETH, p.Imm
	want.BTH.AckReq, want.BTH.FECN, want.BTH.BECN = nil, nil, nil
	return want
}
