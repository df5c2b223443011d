package roce

import (
	"fmt"
	"slices"
	"time"

	"github.com/fabrictest/fabrictest/conformance"
	"github.com/fabrictest/fabrictest/conformance/packet/ib"
	"github.com/fabrictest/fabrictest/verbs"
)

var rnrCases = overRC.Cases([]conformance.Case{{
	ID: "rc/rnr/send-without-receive-refused", Cite: ibta("error class B", "rc/rnr/1", "rc/psn/11"),
	Title:   "A SEND without a posted receive is answered by an RNR NAK with its PSN",
	Sends:   "a WRITE and SEND_ONLY, with immediate or without, or SEND_FIRST",
	Expects: "an RNR NAK with the PSN of the SEND",
	Defects: []string{"RNRSilent"}, Run: rnrNakBody(ib.OpSendOnly, ib.OpSendOnlyImm, ib.OpSendFirst),
}, {
	ID: "rc/rnr/write-with-immediate-without-receive-refused", Cite: ibta("error class B", "rc/rnr/1", "rc/psn/11"),
	Title:   "A WRITE with immediate data without a posted receive is answered by an RNR NAK with its PSN",
	Sends:   "a WRITE and WRITE_ONLY with immediate",
	Expects: "an RNR NAK with the PSN of the second",
	Defects: []string{"RNRSilent"}, Run: rnrNakBody(ib.OpWriteOnlyImm),
}, {
	ID: "rc/rnr/nak-carries-the-configured-timer", Cite: ibta("error class B", "rc/rnr/1", "rc/rnr/11"),
	Title:   "An RNR NAK carries min_rnr_timer of the queue pair",
	Sends:   "a SEND without a receive, to queue pairs with timer codes 0, 1, 12, 25 and 31",
	Expects: "that code in the RNR NAK",
	Defects: []string{"RNRTimerIgnored"}, Run: OnPort(func(p *Port) {
		for _, code := range []uint8{0, 1, 12, 25, 31} {
			c := p.connect(Setup{Modify: func(a *verbs.QPAttr) { a.MinRNRTimer = code }})
			c.exchange(c.peerSend(0, 16), ib.RNR(c.PeerPSN(0), code, ib.AnyMSN))
		}
	}),
}, {
	ID: "rc/rnr/refused-write-leaves-no-trace", Cite: ibta("error class B", "rc/rnr/2"),
	Title:   "A request refused by an RNR NAK has no effect, and is accepted when a receive is posted",
	Sends:   "a WRITE with immediate data without a posted receive, and the same again when there is one",
	Expects: "an RNR NAK with memory unchanged, then an ACK with MSN 1, the data and one completion",
	Defects: []string{"RNRLeavesTraces"}, Run: onConn(Setup{}, func(c *Conn) {
		write := ib.WriteOnlyImm(c.PeerPSN(0), c.RETH(0, 64), 7, Data(64)).AckReq()
		c.exchange(write, anyRNRNak(c.PeerPSN(0)).WithMSN(0))
		c.Sync()
		c.ExpectUntouched(c.TargetMem)
		c.ExpectNoCompletion()
		c.PostRecv(c.QP, 1)
		c.exchange(write, c.deviceAck(0, 1))
		c.ExpectRecv(1, 64)
		c.ExpectBytes(c.TargetMem, 0, Data(64))
	}),
}, {
	ID: "rc/rnr/long-write-goes-on-at-the-refused-packet", Cite: ibta("", "rc/rnr/3"),
	Title:   "A WRITE of several packets whose last packet gets an RNR NAK continues with that packet",
	Sends:   "WRITE_FIRST, WRITE_MIDDLE and WRITE_LAST with immediate, the last again when there is a receive",
	Expects: "an RNR NAK with the PSN of the last, then an ACK, all the data and one completion",
	Defects: []string{"RNRRestartsMessage"}, Run: onConn(Setup{}, func(c *Conn) {
		parts := ib.Write(c.PeerPSN(0), c.RETH(0, 0), Data(2500), MTU)
		last := ib.New(ib.OpWriteLastImm, c.PeerPSN(2), parts[2].Payload).WithImm(7).AckReq()
		c.Send(parts[:2]...)
		c.Drain(sentSoFar)
		c.exchange(last, anyRNRNak(c.PeerPSN(2)))
		c.PostRecv(c.QP, 1)
		c.exchange(last, c.deviceAck(2, ib.AnyMSN))
		c.ExpectRecv(1, 2500)
		c.ExpectBytes(c.TargetMem, 0, Data(2500))
	}),
}, {
	ID: "rc/rnr/no-sequence-nak-behind-it", Cite: ibta("", "rc/rnr/4"), Level: conformance.Should,
	Title:   "Packets after one that got an RNR NAK are dropped without a NAK",
	Sends:   "a WRITE, and three SENDs without a posted receive, twice; the WRITE again, and the last SENDs",
	Expects: "an RNR NAK with the PSN of the first SEND each time, and nothing else but ACKs of the WRITE",
	Defects: []string{"SeqNAKAfterRNR"}, Run: onConn(Setup{}, func(c *Conn) {
		c.exchange(c.peerWrite(0, 8), c.deviceAck(0, 1))
		behind := []ib.Packet{c.peerSend(2, 16), c.peerSend(3, 16)}
		for range 2 {
			c.Send(append([]ib.Packet{c.peerSend(1, 16)}, behind...)...)
			c.expect(anyRNRNak(c.PeerPSN(1)))
			c.expectSilence(shortWait)
		}
		c.exchange(c.peerWrite(0, 8), c.deviceAck(0, 1))
		c.Send(behind...)
		c.expectSilence(silencePeriod)
	}),
}, {
	ID: "rc/rnr/requester-waits-as-long-as-told", Cite: ibta("Table 45", "rc/rnr/5"),
	Title:   "After an RNR NAK nothing is sent before its timer has expired",
	Sends:   "an RNR NAK of 10.24 ms to the first of three SENDs, later ACKs",
	Expects: "all three are retransmitted, and not before that time",
	Defects: []string{"RNRNoWait"}, Run: onConn(Setup{}, func(c *Conn) {
		all := c.request(0, c.SendWR(1, 8), c.SendWR(2, 16), c.SendWR(3, 24))
		expectRNRWait(c, all, 20)
		c.completeWith(c.peerAck(2, 3), 1, 2, 3)
	}),
}, {
	ID: "rc/rnr/timer-table-is-exact-for-every-code", Cite: ibta("Table 45", "rc/rnr/5"),
	Title:   "The requester waits for the time of the RNR timer code, for each of the 32 codes",
	Sends:   "to one SEND an RNR NAK with each timer code, then an ACK",
	Expects: "the SEND is retransmitted after each, and not before the time of the code, to the microsecond",
	Defects: []string{"RNRTimerTypo"}, Run: onConn(Setup{}, func(c *Conn) {
		all := c.request(0, c.SendWR(1, 8))
		for code := range uint8(32) {
			expectRNRWait(c, all, code)
		}
		c.completeWith(c.peerAck(0, 1), 1)
	}),
}, {
	ID: "rc/rnr/code-zero-is-the-longest-wait", Cite: ibta("", "rc/rnr/11"),
	Title:   "RNR timer code 0 means 655.36 ms",
	Sends:   "an RNR NAK with timer code 0 to a WRITE with immediate",
	Expects: "the WRITE is retransmitted, not before 655.36 ms",
	Defects: []string{"RNRNoWait"}, Run: onConn(Setup{}, func(c *Conn) {
		wr := c.WriteWR(1, 8)
		wr.Opcode, wr.Imm = verbs.OpRDMAWriteImm, 7
		c.PostSend(c.QP, wr)
		all := c.expectAll([]ib.Packet{ib.Op(ib.OpWriteOnlyImm).WithPSN(c.DevicePSN(0))})
		expectRNRWait(c, all, 0)
		c.completeWith(c.peerAck(0, 1), 1)
	}),
}, {
	ID: "rc/rnr/gives-up-after-rnr-retry", Cite: ibta("V1C09-130#01", "rc/rnr/6"),
	Title:   "A request is retried rnr_retry times after RNR NAKs, and no more",
	Sends:   "an RNR NAK to each transmission of a SEND, with rnr_retry 0, 1, 3 and 6, set when the queue pair goes to RTS, and in SQD",
	Expects: "the SEND is retransmitted as many times, then fails, and nothing more is sent",
	Defects: []string{"RetryOffByOne", "NewRetriesLate"}, Run: OnPort(func(p *Port) {
		for i, n := range []uint8{0, 1, 3, 6, 0, 1, 3, 6} {
			inSQD := i >= 4
			c := p.connect(Setup{Modify: func(a *verbs.QPAttr) {
				if !inSQD {
					a.RNRRetry = n
				}
			}})
			if inSQD {
				c.setRetriesInSQD(7, n)
			}
			exhaustRNRRetries(c)
			c.expectSilence(silencePeriod)
			c.expectErrorCompletion(1)
		}
	}),
}, {
	ID: "rc/rnr/giving-up-has-a-status-of-its-own", Cite: ibta("V1C09-130#01", "rc/rnr/6"),
	Title:   "A request that exhausts its RNR retries completes with RNR_RETRY_EXC_ERR, and the queue pair goes to ERR",
	Sends:   "two RNR NAKs to a SEND with rnr_retry 1",
	Expects: "RNR_RETRY_EXC_ERR, and the queue pair in ERR",
	Defects: []string{"RNRExcIsRetryExc"}, Run: onConn(Setup{Modify: func(a *verbs.QPAttr) { a.RNRRetry = 1 }}, func(c *Conn) {
		exhaustRNRRetries(c)
		c.ExpectCompletion(1, verbs.WCRNRRetryExcErr)
		c.AwaitState(c.QP, verbs.QPStateErr)
	}),
}, {
	ID: "rc/rnr/seven-means-forever", Cite: ibta("11.2.4.2", "rc/rnr/7"),
	Title:   "With rnr_retry 7 the number of RNR retries is unlimited",
	Sends:   "20 RNR NAKs to a SEND, then an ACK",
	Expects: "the SEND is retransmitted after each, and succeeds",
	Defects: []string{"RNRRetry7IsSeven"}, Run: onConn(Setup{}, func(c *Conn) {
		all := c.request(0, c.SendWR(1, 8))
		for range 20 {
			expectRetryAfterRNR(c, all, 1)
		}
		c.ExpectState(c.QP, verbs.QPStateRTS)
		c.completeWith(c.peerAck(0, 1), 1)
	}),
}, {
	ID: "rc/rnr/counted-apart-from-losses", Cite: ibta("", "rc/rnr/8"),
	Title:   "RNR retries and transport retries are counted separately",
	Sends:   "with retry_cnt 2 and rnr_retry 2, to one SEND: an RNR NAK and nothing, by turns, twice each; then an ACK, nothing, or an RNR NAK",
	Expects: "the SEND is retransmitted each time; then it succeeds, or fails with RETRY_EXC_ERR or RNR_RETRY_EXC_ERR",
	Defects: []string{"RetryCountShared", "RNRRestoresRetries"}, Run: onEachConn(Setup{
		Modify: func(a *verbs.QPAttr) { a.Timeout, a.RetryCnt, a.RNRRetry = timeout4ms, 2, 2 },
	}, []verbs.WCStatus{verbs.WCSuccess, verbs.WCRetryExcErr, verbs.WCRNRRetryExcErr}, func(c *Conn, end verbs.WCStatus) {
		all := c.request(0, c.SendWR(1, 8))
		for range 2 {
			expectRetryAfterRNR(c, all, 1)
			c.expectRetransmission(all, 0) // by the transport timer
		}
		switch end {
		case verbs.WCSuccess:
			c.Send(c.peerAck(0, 1))
		case verbs.WCRNRRetryExcErr:
			c.Send(ib.RNR(c.DevicePSN(0), 1, 0))
		}
		more, sent := c.NextPacket(8 * ib.AckTimeout(c.Attr.Timeout))
		c.Check(!sent, "no more retransmissions", "%v", more)
		c.ExpectCompletion(1, end)
	}),
}, {
	ID: "rc/rnr/progress-reloads-the-count", Cite: ibta("", "rc/rnr/8"),
	Title:   "Progress resets the RNR retry counter",
	Sends:   "with rnr_retry 1, to each of six SENDs first an RNR NAK and then an ACK",
	Expects: "success for each",
	Defects: []string{"RetryCountShared"}, Run: onConn(Setup{Modify: func(a *verbs.QPAttr) { a.RNRRetry = 1 }}, func(c *Conn) {
		all := c.sendEach(6)
		for k := range all {
			expectRetryAfterRNR(c, all[k:], 1)
			c.completeWith(c.peerAck(k, uint32(k+1)), uint64(k+1))
		}
	}),
}, {
	ID: "rc/rnr/acknowledges-what-came-before", Cite: ibta("", "rc/rnr/9"),
	Title:   "An RNR NAK acknowledges earlier requests, and the retransmission starts at its PSN",
	Sends:   "an RNR NAK to the third of four SENDs, then an ACK for the last",
	Expects: "two completions, then the third and fourth SEND are retransmitted, and two more completions",
	Defects: []string{"NAKAcksNothing"}, Run: onConn(Setup{}, func(c *Conn) {
		all := c.request(0, c.SendWR(1, 8), c.SendWR(2, 16), c.SendWR(3, 24), c.SendWR(4, 32))
		expectRetryAfterRNR(c, all[2:], 12)
		c.ExpectCompletions(verbs.WCSuccess, 1, 2)
		c.ExpectNoCompletion()
		c.completeWith(c.peerAck(3, 4), 3, 4)
	}),
}, {
	ID: "rc/rnr/repetition-begins-inside-the-message", Cite: ibta("", "rc/rnr/9"),
	Title:   "After an RNR NAK inside a message the retransmission starts with the refused packet",
	Sends:   "an RNR NAK to the last packet of a WRITE with immediate data of three, with a SEND after it; then an ACK for both",
	Expects: "only that packet and the SEND are retransmitted; then success",
	Defects: []string{"RNRInsideRestarts"}, Run: onConn(Setup{}, func(c *Conn) {
		n := 2*MTU + 16
		write := c.WriteWR(1, n)
		write.Opcode, write.Imm = verbs.OpRDMAWriteImm, 7
		c.PostSend(c.QP, write, c.SendWR(2, 8))
		message := c.wantWrite(0, n)
		message[2] = ib.New(ib.OpWriteLastImm, c.DevicePSN(2), message[2].Payload).WithImm(7)
		all := c.expectAll(append(message, c.wantSend(3, 8)...))
		expectRetryAfterRNR(c, all[2:], 12)
		c.ExpectNoCompletion()
		c.completeWith(c.peerAck(3, 2), 1, 2)
	}),
}, {
	ID: "rc/rnr/transport-timer-rests-meanwhile", Cite: ibta("", "rc/rnr/10"), Level: conformance.Should,
	Title:   "While a requester waits for an RNR timer, its transport timer causes no retransmission",
	Sends:   "an RNR NAK of 655.36 ms to a SEND of a queue pair with a timeout of 67 ms and retry_cnt 3, then an ACK",
	Expects: "the SEND is retransmitted, not before 655.36 ms, and succeeds",
	Defects: []string{"TimerRunsInRNR"}, Run: onConn(Setup{Modify: withTimeoutAndRetries(timeout67ms, 3)}, func(c *Conn) {
		all := c.request(0, c.SendWR(1, 8))
		expectRNRWait(c, all, 0)
		c.completeWith(c.peerAck(0, 1), 1)
	}),
}, {
	ID: "rc/rnr/responder-answers-meanwhile", Cite: ibta("9.7.5", "rc/ack/1", "rc/ack/4"),
	Title:   "While its requester waits for an RNR timer, a queue pair answers the requests of its peer, and takes an ACK",
	Sends:   "an RNR NAK of 655.36 ms to a SEND; a SEND, a WRITE and a READ; then an ACK; the same NAK to a SEND before one of three packets, and before that time an ACK of the SEND and a packet; the same NAK to the next SEND, and an ACK after another was posted",
	Expects: "an answer to each, long before that time; the SEND is retransmitted, and succeeds; the ACKs complete the other SENDs, if packets are retransmitted they are the same, and the SEND that was posted is sent",
	Defects: []string{"RNRWaitMutesResponder"}, Run: onConn(Setup{Receives: 1}, func(c *Conn) {
		all := c.request(0, c.SendWR(9, 8))
		begun := c.Now()
		c.Send(ib.RNR(c.DevicePSN(0), 0, 0))
		c.expectServed(0)
		c.checkNoRNRWait(begun)
		c.expectAll(all)
		c.completeWith(c.peerAck(0, 1), 9)
		c.expectAckInRNRWait(1)
	}),
}})

// expectAckInRNRWait posts SENDs from the device's k-th PSN on, sends an RNR NAK of 655.36 ms, and
// an ACK before that time: inside of a message, and when another SEND was posted. It fails the case
// unless the ACKs complete requests, and all packets that follow are right.
func (c *Conn) expectAckInRNRWait(k int) {
	const longest = 0 // timer code
	all := c.request(k, c.SendWR(10, 8), c.SendWR(11, 2500))
	c.Send(ib.RNR(c.DevicePSN(k), longest, uint32(k)))
	c.Sync()
	c.completeWith(c.peerAck(k+1, uint32(k+1)), 10)
	for _, got := range c.Drain(time.Second) {
		i := slices.IndexFunc(all, func(p ib.Packet) bool { return p.PSN() == got.PSN() })
		c.Check(i >= 0, "packets that were sent before, or nothing", "%v", got)
		c.checkPacket(all[i], got)
	}
	c.completeWith(c.peerAck(k+3, uint32(k+2)), 11)
	c.request(k+4, c.SendWR(12, 8))
	c.Send(ib.RNR(c.DevicePSN(k+4), longest, uint32(k+2)))
	c.Sync()
	c.PostSend(c.QP, c.SendWR(13, 2500))
	c.completeWith(c.peerAck(k+4, uint32(k+3)), 12)
	posted := c.wantSend(k+5, 2500)
	isResent := func(a *Arrival) bool { return a.PSN() == c.DevicePSN(k+4) } // the bench may be slow
	c.checkPacket(posted[0], c.expectAfter(isResent, posted[0].String()))
	c.expectAll(posted[1:])
	c.completeWith(c.peerAck(k+7, uint32(k+4)), 13)
}

// expectRetryAfterRNR answers the first of the packets by an RNR NAK with this timer code, and
// fails the case unless all are retransmitted. It returns the time to the first retransmission,
// which delays of this host can only lengthen.
func expectRetryAfterRNR(c *Conn, pkts []ib.Packet, code uint8) time.Duration {
	begun := c.Now()
	c.exchange(ib.RNR(pkts[0].PSN(), code, 0), pkts[0])
	took := c.Now() - begun
	c.expectAll(pkts[1:])
	return took
}

// expectRNRWait answers the first packet with an RNR NAK with this timer code, and fails the case
// unless all are retransmitted, and not before the RNR timer expires.
func expectRNRWait(c *Conn, pkts []ib.Packet, code uint8) {
	took, least := expectRetryAfterRNR(c, pkts, code), ib.RNRTimer(code)
	c.Check(took >= least, fmt.Sprintf("a wait of at least %v for timer code %d", least, code), "%v", took)
}

// exhaustRNRRetries has the device send a SEND, and sends one RNR NAK more than rnr_retry allows.
func exhaustRNRRetries(c *Conn) {
	const timer10us = 1 // the code of the shortest RNR timer
	all := c.request(0, c.SendWR(1, 8))
	for range c.Attr.RNRRetry {
		expectRetryAfterRNR(c, all, timer10us)
	}
	c.Send(ib.RNR(c.DevicePSN(0), timer10us, 0))
}

// anyRNRNak matches an RNR NAK with any timer code.
func anyRNRNak(psn ib.PSN) ib.Packet {
	p := ib.RNR(psn, 0, ib.AnyMSN)
	p.AETH.Value = nil
	return p
}

// rnrNakBody makes the body of a case that sends, for each opcode, a WRITE and a packet with the
// opcode to a new queue pair without receives, and expects an RNR NAK for the packet.
func rnrNakBody(ops ...ib.Opcode) func(*conformance.Bench) error {
	return onEachConn(Setup{}, ops, func(c *Conn, op ib.Opcode) {
		c.exchange(c.peerWrite(0, 8), c.deviceAck(0, ib.AnyMSN))
		c.exchange(packetOf(c, op, 1), anyRNRNak(c.PeerPSN(1)))
		c.ExpectState(c.QP, verbs.QPStateRTS)
	})
}
