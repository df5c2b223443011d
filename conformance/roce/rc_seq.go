package roce

import (
	"github.com/fabrictest/fabrictest/conformance"
	"github.com/fabrictest/fabrictest/conformance/packet/ib"
	"github.com/fabrictest/fabrictest/verbs"
)

// Sequences of opcodes after which no message is in progress, a SEND is, a WRITE is, or one of
// both.
var (
	seqNone   = [][]ib.Opcode{nil}
	seqSends  = [][]ib.Opcode{{ib.OpSendFirst}, {ib.OpSendFirst, ib.OpSendMiddle}}
	seqWrites = [][]ib.Opcode{{ib.OpWriteFirst}, {ib.OpWriteFirst, ib.OpWriteMiddle}}
	seqOpen   = append(append([][]ib.Opcode{}, seqSends...), seqWrites...)
)

var sequenceCases = overRC.Cases([]conformance.Case{{
	ID: "rc/seq/middle-or-last-without-first-refused", Cite: ibta("Table 63", "rc/seq/1"),
	Title:   "A MIDDLE or LAST packet without a FIRST is refused",
	Sends:   "MIDDLE, LAST and LAST with immediate of SEND and WRITE, each as the first packet of a connection",
	Expects: "a NAK for an invalid request with its PSN; the queue pair fails",
	Defects: []string{"OpcodeOrderIgnored"}, Run: orderRefusedBody(seqNone,
		ib.OpSendMiddle, ib.OpSendLast, ib.OpSendLastImm, ib.OpWriteMiddle, ib.OpWriteLast, ib.OpWriteLastImm),
}, {
	ID: "rc/seq/new-message-inside-an-open-one-refused", Cite: ibta("", "rc/seq/2"),
	Title:   "A FIRST or ONLY packet inside a message is refused",
	Sends:   "FIRST, or FIRST and MIDDLE, of SEND or WRITE, then FIRST or ONLY of either",
	Expects: "a NAK for an invalid request with the PSN of the intruder, which is not executed; the queue pair fails",
	Defects: []string{"OpcodeOrderIgnored"}, Run: orderRefusedBody(seqOpen,
		ib.OpSendFirst, ib.OpSendOnly, ib.OpSendOnlyImm, ib.OpWriteFirst, ib.OpWriteOnly, ib.OpWriteOnlyImm),
}, {
	ID: "rc/seq/send-and-write-do-not-mix", Cite: ibta("", "rc/seq/3"),
	Title:   "A SEND is not continued by a packet of a WRITE, nor a WRITE by one of a SEND",
	Sends:   "the start of a WRITE, then MIDDLE or LAST of a SEND, and the reverse",
	Expects: "a NAK for an invalid request with the PSN of the packet of the other kind; the queue pair fails",
	Defects: []string{"OpcodeOrderIgnored"}, Run: func(b *conformance.Bench) error {
		if err := orderRefusedBody(seqWrites, ib.OpSendMiddle, ib.OpSendLast, ib.OpSendLastImm)(b); err != nil {
			return err
		}
		return orderRefusedBody(seqSends, ib.OpWriteMiddle, ib.OpWriteLast, ib.OpWriteLastImm)(b)
	},
}, {
	ID: "rc/seq/read-inside-an-open-message-refused", Cite: ibta("", "rc/seq/4"),
	Title:   "A READ between the packets of a message is refused, and not answered",
	Sends:   "FIRST, or FIRST and MIDDLE, of SEND or WRITE, then a READ",
	Expects: "a NAK for an invalid request with the PSN of the READ, and no response; the queue pair fails",
	Defects: []string{"OpcodeOrderIgnored"}, Run: orderRefusedBody(seqOpen, ib.OpReadRequest),
}, {
	ID: "rc/seq/atomic-inside-an-open-message-refused", Cite: ibta("", "rc/seq/4"), Needs: verbs.CapAtomics,
	Title:   "An atomic between the packets of a message is refused, and not executed",
	Sends:   "FIRST, or FIRST and MIDDLE, of SEND or WRITE, then COMPARE_SWAP or FETCH_ADD",
	Expects: "a NAK for an invalid request with the PSN of the atomic, memory unchanged; the queue pair fails",
	Defects: []string{"OpcodeOrderIgnored"}, Run: orderRefusedBody(seqOpen, ib.OpCompareSwap, ib.OpFetchAdd),
}, {
	ID: "rc/seq/requester-keeps-messages-apart", Cite: ibta("9.4.1/9.4.3", "rc/seq/5"),
	Title:   "The packets of different messages are not interleaved, neither at first nor in retransmissions",
	Sends:   "a NAK during a SEND of 3 packets, a WRITE of 1, one of 3 and a SEND of 1 of the device",
	Expects: "no packet of another message between FIRST and LAST of one, neither before the NAK nor after it",
	Defects: []string{"Interleaves"}, Run: onConn(Setup{Modify: withTimeoutAndRetries(timeout67ms, 7)}, func(c *Conn) {
		c.PostSend(c.QP, c.SendWR(1, 2500), c.WriteWR(2, 16), c.WriteWR(3, 2500), c.SendWR(4, 16))
		checkNotInterleaved(c, c.nextPackets(8))
		c.Send(c.peerNak(1, ib.NakSequence, 0))
		var again []Arrival
		for len(again) == 0 || again[len(again)-1].PSN() != c.DevicePSN(7) {
			again = append(again, c.nextPackets(1)...)
		}
		checkNotInterleaved(c, again)
		c.completeWith(c.peerAck(7, 4), 1, 2, 3, 4)
	}),
}, {
	ID: "rc/seq/duplicate-read-leaves-the-open-message-alone", Cite: ibta("", "rc/seq/6"),
	Title:   "A duplicate READ between the packets of a message is answered, and the message continues",
	Sends:   "a READ of 3 responses and WRITE_FIRST, both of them again, and the rest of the WRITE",
	Expects: "responses for both READs, an ACK for every packet of the WRITE, and its data in memory",
	Defects: []string{"DupReadResetsMessage"}, Run: onRC(func(c *Conn) {
		read := c.peerRead(0, 2500).AckReq()
		write := ib.Write(c.PeerPSN(3), c.RETH(8<<10, 0), Data(2500), MTU)
		answers := ib.ReadResponses(c.PeerPSN(0), ib.AnyMSN, c.TargetMem.Buf[:2500], MTU)
		for range 2 {
			c.exchange(read, answers...)
			c.exchange(write[0].AckReq(), c.deviceAck(3, ib.AnyMSN))
		}
		c.exchange(read, answers...)
		for _, part := range write[1:] {
			c.exchange(part.AckReq(), ib.Ack(part.PSN(), ib.AnyMSN))
		}
		c.ExpectBytes(c.TargetMem, 8<<10, Data(2500))
	}),
}, {
	ID: "rc/seq/order-is-judged-at-the-expected-psn-only", Cite: ibta("", "rc/seq/7"),
	Title:   "A packet with an early PSN gets a sequence NAK, even if its opcode is out of order",
	Sends:   "MIDDLE or LAST five PSNs ahead outside a message, FIRST or ONLY five ahead inside one; then the expected packet",
	Expects: "a NAK for a sequence error with the expected PSN, then an ACK of the expected packet",
	Defects: []string{"OrderBeforePSN"}, Run: OnPort(func(p *Port) {
		for _, early := range []ib.Opcode{ib.OpSendMiddle, ib.OpSendLast, ib.OpWriteMiddle, ib.OpWriteLast} {
			expectEarlyIsGap(p, nil, early, ib.OpSendOnly)
		}
		for _, early := range []ib.Opcode{ib.OpSendFirst, ib.OpSendOnly, ib.OpWriteOnly, ib.OpReadRequest} {
			expectEarlyIsGap(p, []ib.Opcode{ib.OpWriteFirst}, early, ib.OpWriteLast)
		}
	}),
}, {
	ID: "rc/seq/last-with-immediate-completes-once", Cite: ibta("", "rc/seq/8"),
	Title:   "A SEND of several packets with immediate data completes one receive",
	Sends:   "SEND_FIRST, SEND_LAST with immediate data, then a SEND of one packet",
	Expects: "one completion with the immediate data, and the next receive for the next message",
	Defects: []string{"LastCompletesTwice"}, Run: onConn(Setup{Receives: 3, recvLen: 2048}, func(c *Conn) {
		wc := sendTwoPacketSend(c, ib.New(ib.OpSendLastImm, c.PeerPSN(1), Data(16)).WithImm(0x01020304))
		c.Check(wc.Flags&verbs.WCWithImm != 0 && wc.Imm == 0x01020304, "the immediate data 0x1020304", "flags %#x, %#x", wc.Flags, wc.Imm)
	}),
}, {
	ID:   "rc/seq/last-with-invalidate-completes-once",
	Cite: ibta("", "rc/seq/8"), Needs: verbs.CapMWType2 | verbs.CapSendInv,
	Title:   "A SEND of several packets that invalidates a key completes one receive",
	Sends:   "SEND_FIRST, SEND_LAST with the key of a window, then a SEND of one packet",
	Expects: "one completion with the key, and the next receive for the next message",
	Defects: []string{"LastCompletesTwice"}, Run: onConn(Setup{Receives: 3, recvLen: 2048}, func(c *Conn) {
		key := c.bindWindow(verbs.MWType2, 0, 64, verbs.AccessRemoteRead).key
		wc := sendTwoPacketSend(c, ib.New(ib.OpSendLastInv, c.PeerPSN(1), Data(16)).WithIETH(uint32(key)))
		c.Check(wc.Flags&verbs.WCWithInv != 0 && wc.InvalidatedRKey == key, "the key that was invalidated", "flags %#x, %#x", wc.Flags, wc.InvalidatedRKey)
	}),
}, {
	ID: "rc/seq/refusal-completes-the-open-receive-first", Cite: ibta("", "rc/seq/9"),
	Title:   "When a packet is refused, the current receive completes with the cause, and the others are flushed in order",
	Sends:   "SEND_FIRST, then SEND_ONLY, with four receives posted",
	Expects: "the first receive completes with an error that names the cause, then the others with WR_FLUSH_ERR in the order of posting",
	Defects: []string{"FlushReversed"}, Run: onConn(Setup{Receives: 4, recvLen: 2048}, func(c *Conn) {
		c.exchange(ib.SendFirst(c.PeerPSN(0), Data(MTU)).AckReq(), c.deviceAck(0, ib.AnyMSN))
		c.Send(c.peerSend(1, 16))
		// The status is not specified. Most devices report the one that the requester would see.
		wc := c.NextCompletion()
		c.Check(wc.WRID == 1 && wc.Status != verbs.WCSuccess && wc.Status != verbs.WCWRFlushErr,
			"receive 1, with an error that tells the cause", "receive %d: %v", wc.WRID, wc.Status)
		c.ExpectCompletions(verbs.WCWRFlushErr, 2, 3, 4)
	}),
}})

// packetOf returns the peer's k-th packet with this opcode. READs, WRITEs and atomics
// access the second half of TargetMem.
func packetOf(c *Conn, op ib.Opcode, k int) ib.Packet {
	info, _ := op.Info()
	p := ib.Op(op).WithPSN(c.PeerPSN(k)).AckReq()
	switch info.Payload {
	case ib.PayloadFull:
		p = p.WithPayload(Data(MTU))
	case ib.PayloadSome, ib.PayloadAny:
		p = p.WithPayload(Data(16))
	}
	switch {
	case info.Kind == ib.KindAtomic:
		at := c.RETH(8<<10, 8)
		p.AtomicETH = &ib.AtomicETH{VA: at.VA, RKey: at.RKey, SwapAdd: new(uint64(1)), Compare: new(uint64(0))}
	case info.Has(ib.HdrRETH) && info.Position == ib.First:
		p = p.WithRETH(c.RETH(8<<10, MTU+16))
	case info.Has(ib.HdrRETH):
		p = p.WithRETH(c.RETH(8<<10, 16))
	}
	return p
}

// sendEachAcked sends a packet of each opcode and waits for its ACK.
func sendEachAcked(c *Conn, ops []ib.Opcode) {
	for k, op := range ops {
		p := packetOf(c, op, k)
		if op == ib.OpWriteFirst && len(ops) > 1 {
			p = p.WithRETH(c.RETH(8<<10, len(ops)*MTU+16)) // ops, and a LAST of 16 octets
		}
		c.exchange(p, c.deviceAck(k, ib.AnyMSN))
	}
}

// orderRefusedBody makes the body of a case that sends each of the refused opcodes after each of
// the sequences, on a new connection, and expects a NAK for an invalid request.
func orderRefusedBody(sequences [][]ib.Opcode, refused ...ib.Opcode) func(*conformance.Bench) error {
	return OnPort(func(p *Port) {
		for _, before := range sequences {
			p.Note("after %v", before)
			eachConn(p, Setup{Receives: 2, recvLen: 4096}, refused, func(c *Conn, op ib.Opcode) {
				sendEachAcked(c, before)
				c.expectNoEffect(c.TargetMem, packetOf(c, op, len(before)), ib.NakInvalidRequest)
				c.AwaitState(c.QP, verbs.QPStateErr)
				c.expectSilence(shortWait)
			})
		}
	})
}

// expectEarlyIsGap sends the opcodes in before, and then early, which must not follow them, with a
// PSN after a gap. It fails the case unless the device sends a sequence NAK, and then accepts due,
// which may follow them, with the expected PSN.
func expectEarlyIsGap(p *Port, before []ib.Opcode, early, due ib.Opcode) {
	p.Note("%v early after %v", early, before)
	c := p.connect(Setup{Receives: 2, recvLen: 2048})
	sendEachAcked(c, before)
	c.exchangeIgnoringCNPs(packetOf(c, early, len(before)+5), c.deviceNak(len(before), ib.NakSequence, ib.AnyMSN))
	c.exchangeIgnoringCNPs(packetOf(c, due, len(before)), c.deviceAck(len(before), ib.AnyMSN))
	c.ExpectState(c.QP, verbs.QPStateRTS)
}

// sendTwoPacketSend sends a SEND of two packets, of which last is the second, and a SEND of one
// packet. Each must complete one receive. It returns the completion of the first SEND.
func sendTwoPacketSend(c *Conn, last ib.Packet) verbs.WC {
	c.Send(ib.SendFirst(c.PeerPSN(0), Data(MTU)), last.AckReq())
	wc := c.ExpectRecv(1, MTU+16)
	c.expectNoCompletion()
	c.Send(c.peerSend(2, 8))
	c.ExpectRecv(2, 8)
	c.expectNoCompletion()
	return wc
}

// checkNotInterleaved fails the case if a packet is between those of another message, or the PSNs
// are not consecutive. The first packet may continue a message.
func checkNotInterleaved(c *Conn, all []Arrival) {
	open, kind := false, ib.KindSend
	for i, p := range all {
		info, _ := p.Info()
		begins := info.Position == ib.First || info.Position == ib.Only
		switch {
		case i == 0:
		case p.PSN() != all[i-1].PSN().Add(1):
			c.Fail("packets in the order of their PSNs", "%v after %v", p, all[i-1])
		case begins && open, !begins && !open, !begins && info.Kind != kind:
			c.Fail("the packets of a message without others between them", "%v after %v", p, all[i-1])
		}
		open, kind = info.Position == ib.First || info.Position == ib.Middle, info.Kind
	}
}
