package roce

import (
	"fmt"
	"time"

	"github.com/fabrictest/fabrictest/conformance"
	"github.com/fabrictest/fabrictest/conformance/packet/ib"
	"github.com/fabrictest/fabrictest/verbs"
)

var rnrWaitCases = overRC.Cases([]conformance.Case{{
	ID: "rc/rnr/requester-waits-as-long-as-told", Cite: ibta("Table 45", "roce/rc/rnr/5"),
	Run: onConn(Setup{}, func(c *Conn) {
		all := c.request(0, c.SendWR(1, 8), c.SendWR(2, 16), c.SendWR(3, 24))
		expectRNRWait(c, all, 20)
		c.completeWith(ib.Ack(c.DevicePSN(2), 3), 1, 2, 3)
	}),
}, {
	ID: "rc/rnr/timer-table-is-exact-for-every-code", Cite: ibta("Table 45", "roce/rc/rnr/5"),
	Run: onConn(Setup{}, func(c *Conn) {
		all := c.request(0, c.SendWR(1, 8))
		for code := range uint8(32) {
			expectRNRWait(c, all, code)
		}
		c.completeWith(ib.Ack(c.DevicePSN(0), 1), 1)
	}),
}, {
	ID: "rc/rnr/code-zero-is-the-longest-wait", Cite: ibta("", "roce/rc/rnr/11"),
	Run: onConn(Setup{}, func(c *Conn) {
		wr := c.WriteWR(1, 8)
		wr.Opcode, wr.Imm = verbs.OpRDMAWriteImm, 7
		c.PostSend(c.QP, wr)
		all := c.expectAll([]ib.Packet{ib.Op(ib.OpWriteOnlyImm).WithPSN(c.DevicePSN(0))})
		expectRNRWait(c, all, 0)
		c.completeWith(ib.Ack(c.DevicePSN(0), 1), 1)
	}),
}, {
	ID: "rc/rnr/gives-up-after-rnr-retry", Cite: ibta("", "roce/rc/rnr/6"),
	Run: OnPort(func(p *Port) {
		for _, n := range []uint8{0, 1, 3, 6} {
			c := p.connect(Setup{Modify: func(a *verbs.QPAttr) { a.RNRRetry = n }})
			exhaustRNRRetries(c)
			c.expectSilence(silencePeriod)
			wc := c.NextCompletion()
			c.Check(wc.Status != verbs.WCSuccess, fmt.Sprintf("an error after %d retransmissions", n), "success")
		}
	}),
}, {
	ID: "rc/rnr/giving-up-has-a-status-of-its-own", Cite: ibta("", "roce/rc/rnr/6"),
	Run: onConn(Setup{Modify: func(a *verbs.QPAttr) { a.RNRRetry = 1 }}, func(c *Conn) {
		exhaustRNRRetries(c)
		c.ExpectCompletion(1, verbs.WCRNRRetryExcErr)
		c.AwaitState(c.QP, verbs.QPStateErr)
	}),
}, {
	ID: "rc/rnr/seven-means-forever", Cite: ibta("11.2.4.2", "roce/rc/rnr/7"),
	Run: onConn(Setup{}, func(c *Conn) {
		all := c.request(0, c.SendWR(1, 8))
		for range 20 {
			expectRetryAfterRNR(c, all, 1)
		}
		c.ExpectState(c.QP, verbs.QPStateRTS)
		c.completeWith(ib.Ack(c.DevicePSN(0), 1), 1)
	}),
}, {
	ID: "rc/rnr/counted-apart-from-losses", Cite: ibta("", "roce/rc/rnr/8"),
	Run: onConn(Setup{Modify: func(a *verbs.QPAttr) { a.Timeout, a.RetryCnt, a.RNRRetry = timeout4ms, 2, 2 }}, func(c *Conn) {
		all := c.request(0, c.SendWR(1, 8))
		for range 2 {
			expectRetryAfterRNR(c, all, 1)
			c.expectRetransmission(all, 0) // by the transport timer
		}
		c.completeWith(ib.Ack(c.DevicePSN(0), 1), 1)
		c.ExpectState(c.QP, verbs.QPStateRTS)
	}),
}, {
	ID: "rc/rnr/progress-reloads-the-count", Cite: ibta("", "roce/rc/rnr/8"),
	Run: onConn(Setup{Modify: func(a *verbs.QPAttr) { a.RNRRetry = 1 }}, func(c *Conn) {
		all := c.sendEach(6)
		for k := range all {
			expectRetryAfterRNR(c, all[k:], 1)
			c.completeWith(ib.Ack(c.DevicePSN(k), uint32(k+1)), uint64(k+1))
		}
	}),
}, {
	ID: "rc/rnr/acknowledges-what-came-before", Cite: ibta("", "roce/rc/rnr/9"),
	Run: onConn(Setup{}, func(c *Conn) {
		all := c.request(0, c.SendWR(1, 8), c.SendWR(2, 16), c.SendWR(3, 24), c.SendWR(4, 32))
		expectRetryAfterRNR(c, all[2:], 12)
		c.ExpectCompletions(verbs.WCSuccess, 1, 2)
		c.ExpectNoCompletion()
		c.completeWith(ib.Ack(c.DevicePSN(3), 4), 3, 4)
	}),
}, {
	ID: "rc/rnr/repetition-begins-inside-the-message", Cite: ibta("", "roce/rc/rnr/9"),
	Run: onConn(Setup{}, func(c *Conn) {
		n := 2*MTU + 16
		write := c.WriteWR(1, n)
		write.Opcode, write.Imm = verbs.OpRDMAWriteImm, 7
		c.PostSend(c.QP, write, c.SendWR(2, 8))
		message := c.wantWrite(0, n)
		message[2] = ib.WriteLastImm(c.DevicePSN(2), 7, message[2].Payload)
		all := c.expectAll(message, c.wantSend(3, 8))
		expectRetryAfterRNR(c, all[2:], 12)
		c.ExpectNoCompletion()
		c.completeWith(ib.Ack(c.DevicePSN(3), 2), 1, 2)
	}),
}, {
	ID: "rc/rnr/transport-timer-rests-meanwhile", Cite: ibta("", "roce/rc/rnr/10"), Level: conformance.Should,
	Run: onConn(Setup{Modify: withTimeout(timeout67ms, 3)}, func(c *Conn) {
		all := c.request(0, c.SendWR(1, 8))
		expectRNRWait(c, all, 0)
		c.completeWith(ib.Ack(c.DevicePSN(0), 1), 1)
	}),
}})

// expectRetryAfterRNR sends an RNR NAK to the first of the packets, and fails the case
// unless all are retransmitted. It returns how long that took; the bench can only add to
// it.
func expectRetryAfterRNR(c *Conn, again []ib.Packet, code uint8) time.Duration {
	begun := c.Now()
	c.exchange(ib.RNR(again[0].PSN(), code, 0), again[0])
	took := c.Now() - begun
	c.expectAll(again[1:])
	return took
}

// expectRNRWait is expectRetryAfterRNR that also fails the case if the device retransmits
// before the RNR timer expires.
func expectRNRWait(c *Conn, again []ib.Packet, code uint8) {
	took, least := expectRetryAfterRNR(c, again, code), ib.RNRTimer(code)
	c.Check(took >= least, fmt.Sprintf("a wait of at least %v for timer code %d", least, code), "%v", took)
}

// exhaustRNRRetries has the device send a SEND, and sends one RNR NAK more than rnr_retry
// allows.
func exhaustRNRRetries(c *Conn) {
	all := c.request(0, c.SendWR(1, 8))
	for range c.Attr.RNRRetry {
		expectRetryAfterRNR(c, all, 1)
	}
	c.Send(ib.RNR(c.DevicePSN(0), 1, 0))
}

var rnrCases = overRC.Cases([]conformance.Case{{
	ID: "rc/rnr/send-without-receive-refused", Cite: ibta("error class B", "roce/rc/rnr/1", "roce/rc/psn/11"),
	Run: rnrNakBody(ib.OpSendOnly, ib.OpSendOnlyImm, ib.OpSendFirst),
}, {
	ID:   "rc/rnr/write-with-immediate-without-receive-refused",
	Cite: ibta("error class B", "roce/rc/rnr/1", "roce/rc/psn/11"),
	Run:  rnrNakBody(ib.OpWriteOnlyImm),
}, {
	ID: "rc/rnr/nak-carries-the-configured-timer", Cite: ibta("error class B", "roce/rc/rnr/1", "roce/rc/rnr/11"),
	Run: OnPort(func(p *Port) {
		for _, code := range []uint8{0, 1, 12, 25, 31} {
			c := p.connect(Setup{Modify: func(a *verbs.QPAttr) { a.MinRNRTimer = code }})
			c.exchange(ib.SendOnly(c.PeerPSN(0), Data(16)).AckReq(), ib.RNR(c.PeerPSN(0), code, ib.AnyMSN))
		}
	}),
}, {
	ID: "rc/rnr/refused-write-leaves-no-trace", Cite: ibta("error class B", "roce/rc/rnr/2"),
	Run: onConn(Setup{}, func(c *Conn) {
		write := ib.WriteOnlyImm(c.PeerPSN(0), c.RETH(0, 64), 7, Data(64)).AckReq()
		c.exchange(write, anyRNRNak(c.PeerPSN(0)).WithMSN(0))
		c.Sync()
		c.ExpectUnchanged(c.TargetMem, 0, 0)
		c.ExpectNoCompletion()
		c.PostRecv(c.QP, 1)
		c.exchange(write, ib.Ack(c.PeerPSN(0), 1))
		c.ExpectRecv(1, 64)
		c.ExpectBytes(c.TargetMem, 0, Data(64))
	}),
}, {
	ID: "rc/rnr/long-write-goes-on-at-the-refused-packet", Cite: ibta("", "roce/rc/rnr/3"),
	Run: onConn(Setup{}, func(c *Conn) {
		parts := ib.Write(c.PeerPSN(0), c.RETH(0, 0), Data(2500), MTU)
		last := ib.WriteLastImm(c.PeerPSN(2), 7, parts[2].Payload).AckReq()
		c.Send(parts[:2]...)
		c.drain()
		c.exchange(last, anyRNRNak(c.PeerPSN(2)))
		c.PostRecv(c.QP, 1)
		c.exchange(last, ib.Ack(c.PeerPSN(2), ib.AnyMSN))
		c.ExpectRecv(1, 2500)
		c.ExpectBytes(c.TargetMem, 0, Data(2500))
	}),
}, {
	ID: "rc/rnr/no-sequence-nak-behind-it", Cite: ibta("", "roce/rc/rnr/4"), Level: conformance.Should,
	Run: onConn(Setup{}, func(c *Conn) {
		for k := range 3 {
			c.Send(ib.SendOnly(c.PeerPSN(k), Data(16)).AckReq())
		}
		c.expect(anyRNRNak(c.PeerPSN(0)))
		c.expectSilence(silencePeriod)
	}),
}})

// anyRNRNak matches an RNR NAK with any timer code.
func anyRNRNak(psn ib.PSN) ib.Packet {
	p := ib.RNR(psn, 0, ib.AnyMSN)
	p.AETH.Value = nil
	return p
}

// rnrNakBody makes the body of a case that sends each opcode after a WRITE to a queue
// pair without receives, and expects an RNR NAK.
func rnrNakBody(ops ...ib.Opcode) func(*conformance.Bench) error {
	return OnPort(func(p *Port) {
		for _, op := range ops {
			c := p.connect(Setup{})
			c.exchange(ib.WriteOnly(c.PeerPSN(0), c.RETH(0, 8), Data(8)).AckReq(), ib.Ack(c.PeerPSN(0), ib.AnyMSN))
			c.exchange(packetOf(c, op, 1), anyRNRNak(c.PeerPSN(1)))
			c.ExpectState(c.QP, verbs.QPStateRTS)
		}
	})
}
