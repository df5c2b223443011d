package roce

import (
	"fmt"
	"time"

	"github.com/fabrictest/fabrictest/conformance"
	"github.com/fabrictest/fabrictest/conformance/packet/ib"
	"github.com/fabrictest/fabrictest/verbs"
)

var orderCases = overRC.Cases([]conformance.Case{{
	ID: "rc/ack/answers-in-the-order-of-requests", Cite: ibta("V1C09-027#05", "rc/ack/17"), Needs: verbs.CapAtomics,
	Title:   "READs, atomics, SENDs and WRITEs are answered in the order of the requests",
	Sends:   "at once: READ and COMPARE_SWAP; FETCH_ADD and READ; COMPARE_SWAP and WRITE; FETCH_ADD and SEND; first at full speed, then slowed down by CNPs; then READ, WRITE and READ; READ, FETCH_ADD and a duplicate WRITE",
	Expects: "all responses of the READs, and the answers to the others, in this order; no ACK of the WRITE after the second READ, nor one of the FETCH_ADD before its answer",
	Defects: []string{"AckOvertakesRead"}, Run: onConn(Setup{Receives: 2, Modify: func(a *verbs.QPAttr) { a.PathMTU, a.MaxDestRdAtomic = verbs.MTU256, 8 }}, func(c *Conn) {
		for k := range 2 {
			c.exchangeMixed(c.PeerPSN(22 * k))
			c.throttle()
		}
		c.exchangeWriteBetweenReads(44)
		c.throttle()
		c.exchangeAtomicAndDuplicate(61)
	}),
}, {
	ID: "rc/ack/read-after-the-answered-one-stays-open", Cite: ibta("V1C09-060#05", "rc/ack/18"),
	Title:   "Of two outstanding READs the answer to the first completes the first only",
	Sends:   "with timeout 0, the three responses to the first of two READs of three packets; a minute later those to the second",
	Expects: "one completion and nothing sent; then the other, each with its own data",
	Defects: []string{"TimeoutZeroFires", "ReadTakesOnePSN"}, Run: onConn(Setup{}, func(c *Conn) {
		second := c.ReadWR(2, 3*MTU)
		second.SGL = c.LocalMem.SGL(SinkOffset+3*MTU, 3*MTU)
		c.request(0, c.ReadWR(1, 3*MTU), second)
		c.answerFirstOnly(
			ib.ReadResponses(c.DevicePSN(0), 1, Data(6 * MTU)[:3*MTU], MTU),
			ib.ReadResponses(c.DevicePSN(3), 2, Data(6 * MTU)[3*MTU:], MTU))
		c.ExpectBytes(c.LocalMem, SinkOffset, Data(6*MTU))
	}),
}, {
	ID: "rc/ack/atomic-after-the-answered-one-stays-open", Cite: ibta("V1C09-060#07", "rc/ack/18"), Needs: verbs.CapAtomics,
	Title:   "Of two outstanding atomics the answer to the first completes the first only",
	Sends:   "with timeout 0, the answer to the first of two FETCH_ADDs, or COMPARE_SWAPs; a minute later that to the second",
	Expects: "one completion and nothing sent; then the other",
	Defects: []string{"TimeoutZeroFires"}, Run: onEachConn(Setup{}, []verbs.WROpcode{verbs.OpAtomicFetchAdd, verbs.OpAtomicCmpAndSwp}, func(c *Conn, op verbs.WROpcode) {
		first, second := c.fetchAddWR(1), c.fetchAddWR(2)
		first.Opcode, second.Opcode = op, op
		c.PostSend(c.QP, first, second)
		c.nextPackets(2)
		c.answerFirstOnly([]ib.Packet{ib.AtomicAck(c.DevicePSN(0), 1, 7)}, []ib.Packet{ib.AtomicAck(c.DevicePSN(1), 2, 8)})
	}),
}, {
	ID: "rc/msn/atomic-counts-once", Cite: ibta("C9-148", "rc/msn/7"), Needs: verbs.CapAtomics,
	Title:   "An atomic acknowledge has the MSN that counts its atomic, and a duplicate is not counted",
	Sends:   "FETCH_ADD, WRITE, COMPARE_SWAP, each atomic twice; then a SEND",
	Expects: "MSNs 1, 1, 2, 3, 3 and 4",
	Defects: []string{"MSNLate", "MSNCountsPackets"}, Run: onRC(func(c *Conn) {
		setWord(c.TargetMem, 2, 5)
		add := ib.FetchAdd(c.PeerPSN(0), wordRETH(c.TargetMem, 2), 1)
		swap := ib.CompareSwap(c.PeerPSN(2), wordRETH(c.TargetMem, 2), 6, 7)
		for range 2 {
			c.exchange(add, ib.AtomicAck(c.PeerPSN(0), 1, 5))
		}
		c.exchange(ib.WriteOnly(c.PeerPSN(1), c.RETH(0, 0), nil).AckReq(), c.deviceAck(1, 2))
		for range 2 {
			c.exchange(swap, ib.AtomicAck(c.PeerPSN(2), 3, 6))
		}
		c.exchange(c.peerSend(3, 16), c.deviceAck(3, 4))
	}),
}, {
	ID: "rc/rnr/longest-code-and-last-retry", Cite: ibta("V1C09-130#01", "rc/rnr/6", "rc/rnr/5"),
	Title:   "With rnr_retry 1 a SEND waits for RNR timer code 31 once, and fails after the second RNR NAK",
	Sends:   "RNR NAKs with timer code 31, 491.52 ms, to a SEND and its retransmission",
	Expects: "one retransmission, not before that time, then RNR_RETRY_EXC_ERR",
	Defects: []string{"RNRNoWait", "RetryOffByOne"}, Run: onConn(Setup{Modify: func(a *verbs.QPAttr) { a.RNRRetry = 1 }}, func(c *Conn) {
		all := c.request(0, c.SendWR(1, 8))
		expectRNRWait(c, all, 31)
		c.Send(ib.RNR(c.DevicePSN(0), 31, 0))
		c.ExpectCompletion(1, verbs.WCRNRRetryExcErr)
	}),
}, {
	ID: "rc/tmo/retry-count-of-a-read-is-exact", Cite: ibta("V1C09-142#01, V1C09-143#01", "rc/tmo/4"),
	Title:   "An unanswered READ or atomic is retransmitted retry_cnt times, and completes once, with RETRY_EXC_ERR",
	Sends:   "nothing to a READ of three packets and, if the device has them, to a FETCH_ADD, with retry_cnt 2",
	Expects: "three requests each, one completion with RETRY_EXC_ERR, and nothing more",
	Defects: []string{"RetryOffByOne"}, Run: OnPort(func(p *Port) {
		requests := []func(*Conn) verbs.SendWR{func(c *Conn) verbs.SendWR { return c.ReadWR(1, 3*MTU) }}
		if p.Caps.Has(verbs.CapAtomics) {
			requests = append(requests, func(c *Conn) verbs.SendWR { return c.fetchAddWR(1) })
		}
		for _, request := range requests {
			c := p.connect(Setup{Modify: withTimeoutAndRetries(timeout4ms, 2)})
			all := c.request(0, request(c))
			c.expectAll(all)
			c.expectAll(all)
			more, sent := c.NextPacket(8 * ib.AckTimeout(c.Attr.Timeout))
			c.Check(!sent, "no more than 2 retransmissions", "another %v", more)
			c.ExpectCompletion(1, verbs.WCRetryExcErr)
			c.expectNoCompletion()
		}
	}),
}, {
	ID: "rc/imm/empty-write-checks-no-key", Cite: ibta("C9-88", "rc/imm/3"),
	Title:   "A WRITE with immediate and no data completes a receive, whatever its R_Key and address are",
	Sends:   "WRITE_ONLY with immediate and length 0: with an unknown key, with key 0 and address 0, and with a deregistered region's key",
	Expects: "an ACK and a completion with the immediate for each, no bytes, and memory unchanged",
	Defects: []string{"ZeroLengthChecksKey"}, Run: onRC(func(c *Conn) {
		for i, at := range []ib.RETH{c.unknownKeyRETH(0), ib.At(0, 0, 0), c.deregisteredRETH().Sized(0)} {
			imm := uint32(0x1000 + i)
			c.exchange(ib.WriteOnlyImm(c.PeerPSN(i), at, imm, nil).AckReq(), c.deviceAck(i, uint32(i+1)))
			wc := c.ExpectRecv(uint64(i+1), 0)
			c.Check(wc.Opcode == verbs.WCOpRecvRDMAWithImm && wc.Flags&verbs.WCWithImm != 0 && wc.Imm == imm,
				fmt.Sprintf("a completion with immediate %#x", imm), "%v with %#x", wc.Opcode, wc.Imm)
		}
		c.ExpectUntouched(c.TargetMem, c.LocalMem)
	}),
}, {
	ID: "rc/atm/atomic-write-request-is-one-packet", Cite: annexA19("oA19-28", "rc/atm/15", "rc/ack/5"), Needs: verbs.CapAtomicWrite,
	Title:   "A requester sends an ATOMIC WRITE as one packet of eight bytes, and a response without payload completes it",
	Sends:   "an ACK of the WRITE before it only, of a SEND after it, or a response to a READ after it; then a READ response without payload; posts ATOMIC WRITEs of four and of sixteen bytes, and one with an unknown L_Key",
	Expects: "a packet with a RETH of length 8 and the eight bytes; no completion before the response; the others fail, and are not sent",
	Defects: []string{"PSNStartsAtZero", "WCOpcodeZero", "AtomicWriteAckedByLaterAck"}, Run: onConn(Setup{}, func(c *Conn) {
		wr := c.WriteWR(2, 8)
		wr.Opcode = verbs.OpAtomicWrite
		c.request(0, c.WriteWR(1, 8))
		c.PostSend(c.QP, wr)
		c.expect(ib.AtomicWrite(c.DevicePSN(1), peerMemoryRETH(8), c.LocalMem.Buf[:8]))
		c.completeWith(c.peerAck(0, 1), 1)
		c.expectNoCompletion()
		c.Send(flushed(c.DevicePSN(1)).WithMSN(2))
		wc := c.ExpectCompletion(2, verbs.WCSuccess)
		c.Check(wc.Opcode == verbs.WCOpAtomicWrite, "a completion of ATOMIC WRITE", "%v", wc.Opcode)
		c.expectOwnAnswerOnly(wr)
		for _, bad := range []verbs.SGE{c.LocalMem.SGE(0, 4), c.LocalMem.SGE(0, 16), c.unknownKeySGE(8)} {
			wr.SGL = []verbs.SGE{bad}
			c.secondConn(Setup{}).expectNeverSent(wr)
		}
	}),
}})

// exchangeMixed sends READs, atomics, a WRITE and a SEND, from this PSN on and with a path MTU of
// 256, and fails the case unless the responses arrive in order. They use 22 PSNs and one receive.
func (c *Conn) exchangeMixed(first ib.PSN) {
	const readLen, responses = 8 * 256, 8
	word := wordRETH(c.TargetMem, 512) // outside the memory that the READs return
	at := func(n int) ib.PSN { return first.Add(n) }
	c.Send(
		ib.ReadRequest(at(0), c.RETH(0, readLen)), ib.CompareSwap(at(8), word, 1, 2),
		ib.FetchAdd(at(9), word, 1), ib.ReadRequest(at(10), c.RETH(0, readLen)),
		ib.CompareSwap(at(18), word, 1, 2), ib.WriteOnly(at(19), c.RETH(0, 0), nil).AckReq())
	data := c.TargetMem.Buf[:readLen]
	atomicAck := func(n int) ib.Packet { return ib.Op(ib.OpAtomicAcknowledge).WithPSN(at(n)) }
	c.expectAll(ib.ReadResponses(at(0), ib.AnyMSN, data, 256))
	c.expectAll([]ib.Packet{atomicAck(responses), atomicAck(9)})
	c.expectAll(ib.ReadResponses(at(10), ib.AnyMSN, data, 256))
	c.expectAll([]ib.Packet{atomicAck(18), ib.Ack(at(19), ib.AnyMSN)})
	// Not sent with the others: the response to the atomic would also acknowledge the WRITE.
	c.Send(ib.FetchAdd(at(20), word, 1), ib.SendOnly(at(21), Data(16)).AckReq())
	c.expectAll([]ib.Packet{atomicAck(20), ib.Ack(at(21), ib.AnyMSN)})
}

// exchangeWriteBetweenReads sends a READ of eight responses, a WRITE and another READ, with a path
// MTU of 256, from the peer's k-th PSN on. It fails the case if an ACK of the WRITE, which need not
// be sent, arrives after the response to the second READ.
func (c *Conn) exchangeWriteBetweenReads(k int) {
	const readLen = 8 * 256
	responses := ib.ReadResponses(c.PeerPSN(k+9), ib.AnyMSN, c.TargetMem.Buf[:readLen], 256)
	c.Send(c.peerRead(k, readLen), c.peerWrite(k+8, 0), c.peerRead(k+9, readLen))
	c.expectAll(ib.ReadResponses(c.PeerPSN(k), ib.AnyMSN, c.TargetMem.Buf[:readLen], 256))
	c.expectAfterAcks(c.PeerPSN(k+8), responses[0])
	c.expectAll(responses[1:])
	c.expectSilence(silencePeriod)
}

// exchangeAtomicAndDuplicate sends a READ of eight responses, a FETCH_ADD and a duplicate WRITE. It
// fails the case if an ACK of the FETCH_ADD, which the duplicate may cause, arrives before its answer.
func (c *Conn) exchangeAtomicAndDuplicate(k int) {
	const readLen = 8 * 256
	write := c.peerWrite(k, 0)
	c.exchange(write, c.deviceAck(k, ib.AnyMSN))
	c.Send(c.peerRead(k+1, readLen), ib.FetchAdd(c.PeerPSN(k+9), wordRETH(c.TargetMem, 512), 1), write)
	for _, want := range ib.ReadResponses(c.PeerPSN(k+1), ib.AnyMSN, c.TargetMem.Buf[:readLen], 256) {
		c.expectAfterAcks(c.PeerPSN(k), want)
	}
	c.expectAfterAcks(c.PeerPSN(k+8), ib.Op(ib.OpAtomicAcknowledge).WithPSN(c.PeerPSN(k+9)))
}

// expectAfterAcks fails the case unless the next packet beside ACKs of PSNs up to last matches want.
func (c *Conn) expectAfterAcks(last ib.PSN, want ib.Packet) {
	skip := func(a *Arrival) bool { return a.IsAck(ib.AckPositive) && !last.Less(a.PSN()) }
	c.checkPacket(c.fromDevice(want), c.expectAfter(skip, want.String()))
}

// answerFirstOnly answers request 1 of two that are outstanding. It fails the case unless request 2
// is neither retransmitted nor completed before it is answered.
func (c *Conn) answerFirstOnly(first, second []ib.Packet) {
	c.Send(first...)
	c.ExpectCompletion(1, verbs.WCSuccess)
	c.expectSilence(time.Minute)
	c.ExpectNoCompletion()
	c.Send(second...)
	c.ExpectCompletion(2, verbs.WCSuccess)
}
