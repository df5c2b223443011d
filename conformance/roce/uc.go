package roce

import (
	"fmt"
	"slices"

	"github.com/fabrictest/fabrictest/conformance"
	"github.com/fabrictest/fabrictest/conformance/packet/ib"
	"github.com/fabrictest/fabrictest/conformance/rig"
	"github.com/fabrictest/fabrictest/verbs"
)

var ucCases = overUC.Cases([]conformance.Case{{
	ID: "uc/answer/nothing-is-answered", Cite: ibta("", "uc/1"), Needs: verbs.CapRC,
	Title:   "A UC queue pair never sends responses",
	Sends:   "SENDs and WRITEs with AckReq, a duplicate, a PSN gap, an opcode out of order, a WRITE with a bad key and a message without a posted receive",
	Expects: "no packet at all, and the completions of the valid messages",
	Defects: []string{"UCLikeRC"}, Run: onUC(3, func(c *Conn) {
		good := ucSendOnly(c.PeerPSN(0), 16).AckReq()
		c.Send(good)
		c.ExpectRecv(1, 16)
		c.expectSilence(silencePeriod)
		c.Send(
			ib.WriteOnly(c.PeerPSN(1), c.RETH(0, 16), Data(16)).On(ib.UC).AckReq(),
			ib.WriteOnlyImm(c.PeerPSN(2), c.RETH(0, 16), 0x1234, Data(16)).On(ib.UC).AckReq(),
		)
		c.ExpectRecv(2, 16)
		c.Send(
			ib.New(ib.OpSendMiddle, c.PeerPSN(3), Data(ucMTU)).On(ib.UC).AckReq(),
			ib.WriteOnly(c.PeerPSN(4), c.deregisteredRETH(), Data(16)).On(ib.UC).AckReq(),
			good,
			ucSendOnly(c.PeerPSN(20), 16).AckReq(),
			ucSendOnly(c.PeerPSN(21), 16).AckReq(),
			ucSendOnly(c.PeerPSN(22), 16).AckReq(),
		)
		c.expectSilence(silencePeriod)
	}),
}, {
	ID: "uc/send/completes-when-it-has-left", Cite: ibta("", "uc/7"),
	Title:   "A UC request completes with success when its last packet has been sent",
	Sends:   "nothing",
	Expects: "the packets of a SEND, of a WRITE and of a SEND of three packets, and a completion with success for each",
	Defects: []string{"UCLikeRC"}, Run: onUC(0, func(c *Conn) {
		n := 2*ucMTU + 100
		c.PostSend(c.QP, c.SendWR(1, 32), c.WriteWR(2, 32), c.SendWR(3, n))
		for _, want := range slices.Concat(c.wantSend(0, 32), c.wantWrite(1, 32), c.wantSend(2, n)) {
			c.expect(want.On(ib.UC))
		}
		c.ExpectCompletions(verbs.WCSuccess, 1, 2, 3)
	}),
}, {
	ID: "uc/send/no-ackreq-on-any-packet", Cite: ibta("", "uc/8"),
	Title:   "AckReq is 0 in UC packets",
	Sends:   "nothing",
	Expects: "AckReq 0 in every packet of SENDs and WRITEs, with and without immediate data, of one packet and of three",
	Defects: []string{"UnreliableAckReq"}, Run: onUC(0, func(c *Conn) {
		psn := 0
		for _, op := range []verbs.WROpcode{verbs.OpSend, verbs.OpSendImm, verbs.OpRDMAWrite, verbs.OpRDMAWriteImm} {
			for _, n := range []int{0, 40, 2*ucMTU + 8} {
				wr := c.WriteWR(1, n)
				wr.Opcode = op
				c.PostSend(c.QP, wr)
				for _, pkt := range c.nextPackets(ib.Packets(n, ucMTU)) {
					c.checkPacket(ib.Packet{}.WithPSN(c.DevicePSN(psn)).NoAckReq(), pkt)
					c.Check(pkt.Opcode().Transport() == ib.UC, "a UC packet", "%v", pkt)
					psn++
				}
				c.ExpectCompletion(1, verbs.WCSuccess)
			}
		}
	}),
}, {
	ID: "uc/send/reads-and-atomics-never-sent", Cite: ibta("", "uc/8"), Needs: verbs.CapRC,
	Title:   "A READ, atomic, ATOMIC WRITE or FLUSH posted to a UC queue pair fails, and is not sent",
	Sends:   "nothing",
	Expects: "that the post is refused, or that the request completes with an error; and no packet",
	Defects: []string{"UCReadsSent"}, Run: onEachConn(ucSetup(0), []verbs.WROpcode{
		verbs.OpRDMARead, verbs.OpAtomicCmpAndSwp, verbs.OpAtomicFetchAdd, verbs.OpAtomicWrite, verbs.OpFlush,
	}, func(c *Conn, op verbs.WROpcode) {
		wr := c.ReadWR(1, 8)
		wr.Opcode = op
		if op == verbs.OpFlush {
			wr = flushWR(1, verbs.FlushRange, 8)
		}
		c.expectNeverSent(wr)
	}),
}, {
	ID: "uc/error/local-error-stops-the-send-queue-only", Cite: ibta("", "uc/9"), Needs: verbs.CapRC,
	Title:   "A request with bad local memory moves a UC queue pair to SQE, where it still receives; it can return to RTS",
	Sends:   "a SEND of which the first packet arrives before a request of the device fails, and the last one after it, then a WRITE with immediate data, and a SEND when the queue pair is in RTS again; then a request whose second packet has bad memory fails",
	Expects: "LOC_PROT_ERR for the bad requests, WR_FLUSH_ERR for the next one, state SQE, both messages received; whole requests are sent again in RTS",
	Defects: []string{"UCErrorIsFatal", "SQEKeepsPosition", "SQEDropsBegunMessage"}, Run: onEachConn(ucSetup(3), []badBuffer{
		{"the key of a deregistered region", func(c *Conn) verbs.SGE { return c.badSendWR(100).SGL[0] }},
		{"memory of another PD", func(c *Conn) verbs.SGE { return c.otherPDSGE(8) }},
		{"the end of a region", func(c *Conn) verbs.SGE { return c.LocalMem.SGE(memLen-7, 8) }},
	}, func(c *Conn, bad badBuffer) {
		message := ucSend(c.PeerPSN(0), ucMTU+24)
		c.Send(message[0])
		c.Sync()
		wr := c.WriteWR(100, 0)
		wr.SGL = []verbs.SGE{bad.buffer(c)}
		c.PostSend(c.QP, wr, c.SendWR(101, 8))
		c.ExpectCompletion(100, verbs.WCLocProtErr)
		c.ExpectCompletion(101, verbs.WCWRFlushErr)
		c.AwaitState(c.QP, verbs.QPStateSQE)
		c.Send(message[1])
		c.ExpectRecv(1, ucMTU+24)
		c.Send(ib.WriteOnlyImm(c.PeerPSN(2), c.RETH(0, 16), 0x1234, Data(16)).On(ib.UC))
		c.ExpectRecv(2, 16)
		c.ExpectBytes(c.TargetMem, 0, Data(16))
		c.resumeUC(102)
		c.expectUCDelivery(3, 32, 3)
		wr = c.WriteWR(103, 0)
		wr.SGL = []verbs.SGE{c.LocalMem.SGE(0, MTU), bad.buffer(c)}
		c.PostSend(c.QP, wr)
		c.ExpectCompletion(103, verbs.WCLocProtErr)
		c.AwaitState(c.QP, verbs.QPStateSQE)
		c.Drain(sentSoFar) // the first packet may have been sent
		c.resumeUC(104)
	}),
}, {
	ID: "uc/drop/write-with-a-bad-key-vanishes", Cite: ibta("", "uc/5"), Needs: verbs.CapRC,
	Title:   "A UC WRITE with an access error is dropped silently, and the queue pair stays in RTS",
	Sends:   "WRITEs with the key of a deregistered region, to memory that may not be written, and beyond a region; one of three packets and one with immediate data; WRITEs on a queue pair without the right; each followed by a SEND",
	Expects: "no answer, no byte in memory, the state RTS, and a completion for each SEND",
	Defects: []string{"UCDropsFatal"}, Run: onUC(5, func(c *Conn) {
		guarded := c.Memory(64, verbs.AccessLocalWrite|verbs.AccessRemoteRead)
		for i, to := range []ib.RETH{c.deregisteredRETH(), rethFor(guarded, 0, 16), c.RETH(memLen-8, 16)} {
			c.expectUCDropped(2*i, uint64(i+1), ib.WriteOnly(c.PeerPSN(2*i), to, Data(16)))
		}
		c.expectUCDropped(6, 4, ib.WriteOnlyImm(c.PeerPSN(6), rethFor(guarded, 0, 16), 7, Data(16)))
		c.expectUCDropped(8, 5, ib.Write(c.PeerPSN(8), rethFor(guarded, 0, 3*ucMTU), Data(3*ucMTU), ucMTU)...)
		c.ExpectUntouched(c.TargetMem, guarded)
		s := ucSetup(2)
		s.access = noRemoteWrite
		other := c.connect(s)
		m := c.Memory(64, allAccess)
		other.expectUCDropped(0, 1, ib.WriteOnly(other.PeerPSN(0), rethFor(m, 0, 16), Data(16)))
		other.expectUCDropped(2, 2, ib.WriteOnlyImm(other.PeerPSN(2), rethFor(m, 0, 16), 7, Data(16)))
		other.ExpectUntouched(m)
	}),
}, {
	ID: "uc/drop/message-without-receive-vanishes", Cite: ibta("", "uc/6"), Needs: verbs.CapRC,
	Title:   "A UC message without a posted receive is dropped silently, and the next one is delivered",
	Sends:   "a SEND of one packet, one of three and a WRITE of two with immediate data to a queue pair without receives; when one is posted, the last packet again with the next PSN, and another SEND",
	Expects: "nothing for the first, a completion with the bytes of the SEND after it",
	Defects: []string{"UCLikeRC"}, Run: onUC(0, func(c *Conn) {
		psn := 0
		for i, n := range []int{16, 2*ucMTU + 100, 0} {
			message := ucSend(c.PeerPSN(psn), n)
			if n == 0 {
				message = ib.Write(c.PeerPSN(psn), c.RETH(0, 0), Data(ucMTU+8), ucMTU)
				message[0] = message[0].NoAckReq().On(ib.UC)
				message[1] = ib.New(ib.OpWriteLastImm, c.PeerPSN(psn+1), message[1].Payload).WithImm(7).On(ib.UC)
			}
			psn += len(message)
			c.Send(message...)
			c.expectSilence(silencePeriod)
			c.PostRecv(c.QP, uint64(i+1), c.LocalMem.SGE(64*i, 64))
			if len(message) > 1 {
				c.Send(message[len(message)-1].WithPSN(c.PeerPSN(psn)))
				psn++
			}
			c.expectNoCompletion()
			c.expectUCDelivery(psn, 24, uint64(i+1))
			c.ExpectBytes(c.LocalMem, 64*i, Data(24))
			psn++
		}
	}),
}, {
	ID: "uc/loss/incomplete-message-uses-no-receive", Cite: ibta("error class D1", "uc/2"), Needs: verbs.CapRC,
	Title:   "A UC message with a lost packet completes no receive, and its receive is used for a later one",
	Sends:   "messages of three packets, of which the first, the one in the middle or the last is missing; then whole ones, a WRITE with immediate data, or nothing until the queue pair is in ERR",
	Expects: "no completion for an incomplete message; the first receive completes with a complete one, or flushed",
	Defects: []string{"UCPartialDelivered", "UCAbandonedNotReady", "UCAbandonedNotFlushed"}, Run: OnPort(func(p *Port) {
		for lost := range 3 {
			c := p.connect(ucSetup(3))
			c.Send(ucSendWithout(c.PeerPSN(0), lost)...)
			c.expectNoCompletion()
			// Another case checks that the next message is delivered. Here one of two
			// must be, in the first receive.
			c.Send(ucSendOnly(c.PeerPSN(3), 48), ucSendOnly(c.PeerPSN(4), 48))
			c.ExpectRecv(1, 48)
			c.ExpectBytes(c.LocalMem, 0, Data(48))
			c.Sync()
			c.Completions() // discards that of the other
			c.Must("a queue pair that can be destroyed", c.QP.Close())
		}
		c := p.connect(ucSetup(1))
		c.Send(ucSendWithout(c.PeerPSN(0), 1)...)
		for k := 3; k < 5; k++ { // one of two is delivered, as above
			c.Send(ib.WriteOnlyImm(c.PeerPSN(k), c.RETH(0, 40), 7, Data(40)).On(ib.UC))
		}
		wc := c.NextCompletion()
		c.Check(wc.WRID == 1 && wc.Status == verbs.WCSuccess && wc.Opcode == verbs.WCOpRecvRDMAWithImm, "the WRITE with immediate data in the only receive", "%s", rig.Describe(&wc))
		c = p.connect(ucSetup(1))
		c.Send(ucSendWithout(c.PeerPSN(0), 1)...)
		c.Sync()
		c.ToState(c.QP, verbs.QPStateErr)
		c.ExpectCompletion(1, verbs.WCWRFlushErr)
	}),
}, {
	ID: "uc/loss/next-message-delivered", Cite: ibta("9.9.3.1.5, error class D1", "uc/3"),
	Title:   "The first UC message after one with a lost packet is delivered",
	Sends:   "FIRST, LAST without the MIDDLE, then ONLY; the same with a message of two packets after; FIRST, LAST without payload, then ONLY; messages whose MIDDLE is too short, or of a WRITE, each before ONLY; a message of which only the last packet but one is too long for its receive",
	Expects: "a completion for the message after each damaged one, and no success of the last",
	Defects: []string{"UCLosesNext", "UCEmptyLast"}, Run: onUC(5, func(c *Conn) {
		c.Send(ucSendWithout(c.PeerPSN(0), 1)...)
		c.expectUCDelivery(3, 48, 1)
		c.ExpectBytes(c.LocalMem, 0, Data(48))
		c.Send(ucSendWithout(c.PeerPSN(4), 1)...)
		n := ucMTU + 20
		c.Send(ucSend(c.PeerPSN(7), n)...)
		c.ExpectRecv(2, n)
		c.ExpectBytes(c.LocalMem, ucRecvLen, Data(n))
		c.Send(ib.SendFirst(c.PeerPSN(9), Data(ucMTU)).On(ib.UC), ib.New(ib.OpSendLast, c.PeerPSN(10), nil).On(ib.UC))
		c.expectUCDelivery(11, 49, 3)
		for i, middle := range []ib.Packet{ib.New(ib.OpSendMiddle, 0, Data(ucMTU-4)), ib.New(ib.OpWriteMiddle, 0, Data(ucMTU))} {
			damaged := ucSend(c.PeerPSN(12+4*i), 2*ucMTU+100)
			damaged[1] = middle.WithPSN(damaged[1].PSN()).On(ib.UC)
			c.Send(damaged...)
			c.expectUCDelivery(15+4*i, 50+i, uint64(4+i))
		}
		s := ucSetup(1)
		s.recvLen += 100
		c = c.secondConn(s)
		c.Send(ucSend(c.PeerPSN(0), 4*ucMTU+50)...) // the LAST packet would fit, but not the one before it
		c.Sync()
		wc, ok := c.PollCompletion(0)
		c.Check(!ok || wc.Status != verbs.WCSuccess, "no success of a message that is too long", "%s", rig.Describe(&wc))
	}),
}, {
	ID: "uc/loss/queue-goes-on-after-a-lost-packet", Cite: ibta("9.9.3.1.5, error class D1", "uc/3"),
	Title:   "A UC queue pair continues to receive after any number of lost packets",
	Sends:   "damaged messages, SENDs and WRITEs, each followed by whole ones; single packets of which every second is lost",
	Expects: "messages that are completed, to the last one",
	Defects: []string{"UCLossLocksUp"}, Run: onUC(20, func(c *Conn) {
		psn := 0
		for range 3 {
			c.Send(ucSendWithout(c.PeerPSN(psn), 1)...)
			write := ib.Write(c.PeerPSN(psn+3), c.RETH(0, 0), Data(3*ucMTU), ucMTU)
			c.Send(write[0].On(ib.UC), write[2].On(ib.UC))
			psn += 6
			for i := range 3 {
				c.Send(ucSendOnly(c.PeerPSN(psn+2*i), 8+i))
			}
			psn += 7
		}
		// Another case checks that no message is lost unnecessarily. Here the last one must arrive.
		c.Send(ucSendOnly(c.PeerPSN(psn), 60))
		for wc := c.NextCompletion(); wc.ByteLen != 60; wc = c.NextCompletion() {
			c.Check(wc.Status == verbs.WCSuccess, "receives that complete with success", "%s", rig.Describe(&wc))
		}
	}),
}, {
	ID: "uc/psn/message-may-begin-at-any-psn", Cite: ibta("", "uc/4"),
	Title:   "A UC message may begin at any later PSN, which becomes the expected one",
	Sends:   "SENDs and WRITEs of one and of three packets that begin 4, 1000 and 2^22 PSNs ahead, or fewer; one of three packets crosses the end of the PSNs; each is followed by a SEND at the next PSN",
	Expects: "all of them delivered, in order",
	Defects: []string{"UCStrictPSN", "UCExpectedPSNNotWrapped"}, Run: OnPort(func(p *Port) {
		s := ucSetup(8)
		s.Modify = func(a *verbs.QPAttr) { a.PathMTU, a.RQPSN = verbs.MTU256, 0xfffffa }
		c := p.connect(s)
		id, psn := uint64(0), 4
		for i, n := range []int{2*ucMTU + 7, 30, 31} {
			msg := ucSend(c.PeerPSN(psn), n)
			c.Send(msg...)
			id++
			c.ExpectRecv(id, n)
			psn += len(msg)
			c.Send(ucSendOnly(c.PeerPSN(psn), 5+i))
			id++
			c.ExpectRecv(id, 5+i)
			psn += []int{1000, 1 << 22, 5}[i]
		}
		c.Send(ib.WriteOnly(c.PeerPSN(psn), c.RETH(0, 16), Data(16)).On(ib.UC), ucSendOnly(c.PeerPSN(psn+1), 9))
		c.ExpectRecv(id+1, 9)
		c.ExpectBytes(c.TargetMem, 0, Data(16))
		for _, pkt := range ib.Write(c.PeerPSN(psn+100), c.RETH(64, 2*ucMTU+7), Data(2*ucMTU+7), ucMTU) {
			c.Send(pkt.NoAckReq().On(ib.UC))
		}
		c.Send(ucSendOnly(c.PeerPSN(psn+103), 10))
		c.ExpectRecv(id+2, 10)
		c.ExpectBytes(c.TargetMem, 64, Data(2*ucMTU+7))
	}),
}, {
	ID: "uc/psn/copied-message-does-no-harm", Cite: ibta("", "uc/10"), Level: conformance.May, Needs: verbs.CapRC,
	Title:   "A duplicate UC message or packet has no effect, but that the message may be delivered twice",
	Sends:   "a SEND of one packet, one of two, and a WRITE with immediate data, each twice; a SEND at the next PSN; SENDs of three packets, of which one is sent twice",
	Expects: "each whole message once or twice, with all its bytes, then the next; those with a duplicate packet with all their bytes, or not at all; the state RTS",
	Defects: []string{"UCDropsFatal", "UCDuplicateAppended"}, Run: onUC(7, func(c *Conn) {
		two := ucMTU + 8
		for _, m := range []struct {
			packets []ib.Packet
			n       int
			write   bool
		}{
			{ucSend(c.PeerPSN(0), 32), 32, false},
			{ucSend(c.PeerPSN(1), two), two, false},
			{[]ib.Packet{ib.WriteOnlyImm(c.PeerPSN(3), c.RETH(0, 40), 7, Data(40)).On(ib.UC)}, 40, true},
		} {
			for _, copied := range []bool{false, true} {
				c.Send(m.packets...)
				c.Sync()
				wc, ok := c.PollCompletion(0)
				if !ok && copied {
					continue
				}
				c.Check(ok && wc.Status == verbs.WCSuccess && int(wc.ByteLen) == m.n, fmt.Sprintf("a message of %d bytes", m.n), "%s", rig.Describe(&wc))
				placed, at := c.LocalMem, int(wc.WRID-1)*ucRecvLen
				if m.write {
					placed, at = c.TargetMem, 0
				}
				c.ExpectBytes(placed, at, Data(m.n))
			}
		}
		c.ExpectState(c.QP, verbs.QPStateRTS)
		c.Send(ucSendOnly(c.PeerPSN(4), 33))
		wc := c.NextCompletion()
		c.Check(wc.Status == verbs.WCSuccess && wc.ByteLen == 33, "the next message is delivered", "%s", rig.Describe(&wc))
		const three, room = 2*ucMTU + 9, 4 * ucMTU
		s := ucSetup(3)
		s.recvLen = room
		c = c.secondConn(s)
		for copied := range 3 {
			packets := ucSend(c.PeerPSN(3*copied), three)
			c.Send(slices.Insert(packets, copied, packets[copied])...)
			c.Sync()
			if wc, ok := c.PollCompletion(0); ok {
				c.Check(wc.Status == verbs.WCSuccess && wc.ByteLen == three, fmt.Sprintf("a message of %d bytes, or none", three), "%s", rig.Describe(&wc))
				c.ExpectBytes(c.LocalMem, int(wc.WRID-1)*room, Data(three))
			}
		}
		c.ExpectState(c.QP, verbs.QPStateRTS)
	}),
}})

// The path MTU of UC connections is small: LocalMem has room for many receives of three packets.
const (
	ucMTU     = 256 // verbs.MTU256
	ucRecvLen = 3 * ucMTU
)

// onUC makes the body of a case that uses a UC connection with this many posted receives.
func onUC(receives int, body func(*Conn)) func(*conformance.Bench) error {
	return onConn(ucSetup(receives), body)
}

// ucSetup returns the setup of a UC connection with path MTU ucMTU and this many posted receives.
func ucSetup(receives int) Setup {
	return Setup{
		qpType: verbs.QPTypeUC, Receives: receives, recvLen: ucRecvLen,
		Modify: func(a *verbs.QPAttr) { a.PathMTU = verbs.MTU256 },
	}
}

// ucSendOnly returns a UC SEND of one packet with n bytes.
func ucSendOnly(psn ib.PSN, n int) ib.Packet { return ib.SendOnly(psn, Data(n)).On(ib.UC) }

// resumeUC moves the queue pair from SQE to RTS, where a SEND with this ID must be sent.
func (c *Conn) resumeUC(id uint64) {
	c.ToState(c.QP, verbs.QPStateRTS)
	c.PostSend(c.QP, c.SendWR(id, 8))
	c.expect(ib.SendOnly(ib.AnyPSN, c.LocalMem.Buf[:8]).On(ib.UC))
	c.ExpectCompletion(id, verbs.WCSuccess)
}

// expectUCDelivery sends a UC SEND of n bytes with the peer's k-th PSN, which must complete receive
// id.
func (c *Conn) expectUCDelivery(k, n int, id uint64) {
	c.Send(ucSendOnly(c.PeerPSN(k), n))
	c.ExpectRecv(id, n)
}

// expectUCDropped sends a message as UC packets, which the device must drop without a response, and
// a SEND after it, which must complete receive id. The first packet has the peer's k-th PSN.
func (c *Conn) expectUCDropped(k int, id uint64, message ...ib.Packet) {
	for _, pkt := range message {
		c.Send(pkt.NoAckReq().On(ib.UC))
	}
	c.expectSilence(silencePeriod)
	c.ExpectState(c.QP, verbs.QPStateRTS)
	c.expectUCDelivery(k+len(message), 20, id)
}

// ucSend returns the packets of a UC SEND of n bytes.
func ucSend(psn ib.PSN, n int) []ib.Packet {
	all := ib.Send(psn, Data(n), ucMTU)
	for i := range all {
		all[i] = all[i].NoAckReq().On(ib.UC)
	}
	return all
}

// ucSendWithout returns a UC SEND of three packets, without the one with index lost.
func ucSendWithout(psn ib.PSN, lost int) []ib.Packet {
	return slices.Delete(ucSend(psn, 2*ucMTU+100), lost, lost+1)
}
