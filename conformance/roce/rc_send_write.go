package roce

import (
	"time"

	"github.com/fabrictest/fabrictest/conformance"
	"github.com/fabrictest/fabrictest/conformance/packet/ib"
	"github.com/fabrictest/fabrictest/verbs"
)

var writeCases = overRC.Cases([]conformance.Case{{
	ID: "rc/wr/one-reth-with-the-length-of-the-message", Cite: ibta("9.4.3", "rc/wr/1"),
	Title:   "A WRITE has one RETH, in its first packet, with the length of the whole message",
	Sends:   "posts WRITEs of 2500 and of 100 bytes",
	Expects: "FIRST with a RETH for 2500 bytes, MIDDLE and LAST with nothing but data; ONLY with a RETH for 100",
	Defects: []string{"RETHPerPacket"}, Run: onConn(Setup{}, func(c *Conn) {
		c.request(0, c.WriteWR(1, 2500), c.WriteWR(2, 100))
	}),
}, {
	ID: "rc/wr/of-nothing-looks-at-no-key", Cite: ibta("C9-88", "rc/wr/2"),
	Title:   "A WRITE of no bytes is acknowledged without checking its key and address",
	Sends:   "a WRITE of no bytes with a key that does not exist, and an invalid address",
	Expects: "an ACK",
	Defects: []string{"ZeroLengthChecksKey"}, Run: onConn(Setup{}, func(c *Conn) {
		c.expectAcked(ib.WriteOnly(c.PeerPSN(0), ib.At(3, unknownKey(c.TargetMem.RKey()), 0), nil).AckReq())
	}),
}, {
	ID: "rc/wr/plain-write-uses-no-receive", Cite: ibta("C10-87", "rc/wr/3"),
	Title:   "A WRITE without immediate data uses no receive",
	Sends:   "to a QP with one receive: WRITEs of one and of three packets, then a SEND",
	Expects: "no completion for the WRITEs; the SEND finds the receive",
	Defects: []string{"WriteConsumes"}, Run: onConn(Setup{Receives: 1}, func(c *Conn) {
		c.Send(ib.WriteOnly(c.PeerPSN(0), c.RETH(0, 16), Data(16)))
		c.Send(ib.Write(c.PeerPSN(1), c.RETH(0, 0), Data(2500), MTU)...)
		c.expectAck(c.PeerPSN(3))
		c.ExpectNoCompletion()
		c.expectAcked(c.peerSend(4, 8))
		c.ExpectRecv(1, 8)
	}),
}, {
	ID: "rc/wr/refused-write-with-immediate-uses-no-receive", Cite: ibta("C10-87", "rc/wr/4"),
	Title:   "A refused WRITE with immediate data uses no receive: receives are flushed",
	Sends:   "to a QP with two receives: a WRITE with immediate data and a key that does not exist",
	Expects: "a NAK for a remote access error; both receives complete with WR_FLUSH_ERR",
	Defects: []string{"FailedImmConsumes"}, Run: onConn(Setup{Receives: 2}, func(c *Conn) {
		c.Send(ib.WriteOnlyImm(c.PeerPSN(0), c.unknownKeyRETH(8), 7, Data(8)).AckReq())
		c.expectNak(c.PeerPSN(0), ib.NakRemoteAccess)
		c.ExpectCompletions(verbs.WCWRFlushErr, 1, 2)
	}),
}, {
	ID: "rc/wr/completion-of-immediate-has-the-bytes-written", Cite: ibta("", "rc/wr/5", "cq/9"),
	Title:   "A WRITE with immediate data completes a receive as RECV_RDMA_WITH_IMM, with the number of bytes written",
	Sends:   "WRITEs with immediate data of 1028 bytes in two packets, and of 12 bytes",
	Expects: "RECV_RDMA_WITH_IMM with 1028 and 12 bytes; the bytes in the region, and none in the receive's buffer",
	Defects: []string{"SparseCompletions"}, Run: onConn(Setup{Receives: 2}, func(c *Conn) {
		bytes := Data(1028)
		c.Send(ib.WriteFirst(c.PeerPSN(0), c.RETH(0, 1028), bytes[:MTU]), ib.New(ib.OpWriteLastImm, c.PeerPSN(1), bytes[MTU:]).WithImm(7),
			ib.WriteOnlyImm(c.PeerPSN(2), c.RETH(2048, 12), 8, bytes[:12]))
		for i, n := range []int{1028, 12} {
			wc := c.ExpectRecv(uint64(i+1), n)
			c.Check(wc.Opcode == verbs.WCOpRecvRDMAWithImm, "the opcode of a WRITE with immediate data", "%v", wc.Opcode)
			c.ExpectBytes(c.TargetMem, 2048*i, bytes[:n])
		}
		c.ExpectUntouched(c.LocalMem)
	}),
}, {
	ID: "rc/wr/data-visible-before-a-later-send-completes", Cite: ibta("", "rc/wr/6", "cq/10"),
	Title:   "When a SEND completes, its data and those of all earlier WRITEs are in memory",
	Sends:   "eight times a WRITE of three packets and a SEND, the completion of which is looked for all the time",
	Expects: "at the completion: the bytes of the WRITE and those of the SEND",
	Defects: []string{"LatePlacement"}, Run: onConn(Setup{Receives: 8}, func(c *Conn) {
		for i := range 8 {
			bytes := Data(2500 + i)[i:] // different bytes each time
			c.Send(ib.Write(c.PeerPSN(4*i), c.RETH(0, 0), bytes, MTU)...)
			c.Send(ib.SendOnly(c.PeerPSN(4*i+3), bytes[:60]))
			c.pollRecv(uint64(i+1), 60)
			c.ExpectBytes(c.TargetMem, 0, bytes)
			c.ExpectBytes(c.LocalMem, 64*i, bytes[:60])
		}
	}),
}, {
	ID: "rc/wr/more-than-two-gib-refused-when-posted", Cite: ibta("9.4.3", "rc/wr/7"),
	Title:   "A message of more than 2^31 bytes is refused and not sent",
	Sends:   "posts a WRITE, a SEND and a READ of 2^31+1 bytes, in many pieces of one region",
	Expects: "an error at the post or a completion with an error; nothing on the wire",
	Defects: []string{"LongMessagesTaken"}, Run: OnPort(func(p *Port) {
		sgl := p.longSGL()
		caps := verbs.QPCaps{MaxSendWR: 4, MaxRecvWR: 1, MaxSendSGE: len(sgl), MaxRecvSGE: 1}
		eachConn(p, Setup{caps: caps}, []verbs.WROpcode{verbs.OpRDMAWrite, verbs.OpSend, verbs.OpRDMARead}, func(c *Conn, op verbs.WROpcode) {
			c.expectNeverSent(verbs.SendWR{WRID: 1, Opcode: op, Flags: verbs.SendSignaled, SGL: sgl, Remote: PeerMemory})
		})
	}),
}, {
	ID: "rc/imm/send-carries-it-as-posted", Cite: ibta("", "rc/imm/1"),
	Title:   "The immediate data of a SEND follow the BTH of its last packet, in the byte order posted",
	Sends:   "posts SENDs of 16 and of 2500 bytes with immediate data 0x0a0b0c0d",
	Expects: "0a 0b 0c 0d after the BTH in SEND_ONLY_IMM and SEND_LAST_IMM, then the payload",
	Defects: []string{"ByteOrderWrong"}, Run: onConn(Setup{}, func(c *Conn) {
		c.postImm(verbs.OpSendImm, 16)
		c.expect(ib.SendOnlyImm(c.DevicePSN(0), rdmaImm, c.LocalMem.Buf[:16]))
		c.Send(c.peerAck(0, 1)) // the next SEND may need the credit
		c.postImm(verbs.OpSendImm, 2500)
		c.expect(ib.SendFirst(c.DevicePSN(1), c.LocalMem.Buf[:MTU]))
		c.expect(ib.New(ib.OpSendMiddle, c.DevicePSN(2), c.LocalMem.Buf[MTU:2*MTU]))
		c.expect(ib.New(ib.OpSendLastImm, c.DevicePSN(3), c.LocalMem.Buf[2*MTU:2500]).WithImm(rdmaImm))
	}),
}, {
	ID: "rc/imm/write-carries-it-behind-the-reth", Cite: ibta("", "rc/imm/1"),
	Title:   "The immediate data of a WRITE are in its last packet, after the RETH if there is one, in the byte order posted",
	Sends:   "posts WRITEs of 16 and of 1500 bytes with immediate data 0x0a0b0c0d",
	Expects: "RETH and 0a 0b 0c 0d in WRITE_ONLY_IMM; 0a 0b 0c 0d after the BTH in WRITE_LAST_IMM",
	Defects: []string{"ByteOrderWrong"}, Run: onConn(Setup{}, func(c *Conn) {
		c.postImm(verbs.OpRDMAWriteImm, 16)
		c.expect(ib.WriteOnlyImm(c.DevicePSN(0), peerMemoryRETH(16), rdmaImm, c.LocalMem.Buf[:16]))
		c.Send(c.peerAck(0, 1))
		c.postImm(verbs.OpRDMAWriteImm, 1500)
		c.expect(ib.WriteFirst(c.DevicePSN(1), peerMemoryRETH(1500), c.LocalMem.Buf[:MTU]))
		c.expect(ib.New(ib.OpWriteLastImm, c.DevicePSN(2), c.LocalMem.Buf[MTU:1500]).WithImm(rdmaImm))
	}),
}, {
	ID: "rc/imm/receiver-gets-it-as-sent", Cite: ibta("", "rc/imm/1", "rc/wr/5"),
	Title:   "The completion of a receive has the immediate data in the byte order sent",
	Sends:   "a SEND and a WRITE with immediate data 0x0a0b0c0d",
	Expects: "completions with the flag for immediate data, and 0x0a0b0c0d",
	Defects: []string{"ByteOrderWrong"}, Run: onConn(Setup{Receives: 2}, func(c *Conn) {
		c.Send(ib.SendOnlyImm(c.PeerPSN(0), rdmaImm, Data(16)), ib.WriteOnlyImm(c.PeerPSN(1), c.RETH(0, 16), rdmaImm, Data(16)))
		c.expectRecvImm(1, 16)
		c.expectRecvImm(2, 16)
	}),
}, {
	ID: "rc/imm/empty-message-completes-a-receive", Cite: ibta("C9-88", "rc/imm/2"),
	Title:   "A SEND or WRITE with immediate data and no payload completes a receive",
	Sends:   "a SEND and a WRITE with immediate data and no payload",
	Expects: "two completions of no bytes, with the immediate data",
	Defects: []string{"EmptyMessagesIgnored"}, Run: onConn(Setup{Receives: 2}, func(c *Conn) {
		c.Send(ib.SendOnlyImm(c.PeerPSN(0), rdmaImm, nil), ib.WriteOnlyImm(c.PeerPSN(1), ib.At(0, 0, 0), rdmaImm, nil).AckReq())
		c.expectAck(c.PeerPSN(1))
		c.expectRecvImm(1, 0)
		c.expectRecvImm(2, 0)
	}),
}})

// pollRecv fails the case unless receive id completes with n bytes. It polls every 100 ns at first,
// to return as soon as possible after the completion.
func (c *Conn) pollRecv(id uint64, n int) {
	const pollInterval, polls = 100 * time.Nanosecond, 1000
	var wcs [1]verbs.WC
	for range polls {
		k, err := c.CQ.Poll(wcs[:])
		c.Must("a completion queue that can be polled", err)
		if k > 0 {
			c.Check(wcs[0].WRID == id && wcs[0].Status == verbs.WCSuccess && int(wcs[0].ByteLen) == n, "the receive of the SEND", "%+v", wcs[0])
			return
		}
		c.Sleep(pollInterval)
	}
	c.ExpectRecv(id, n) // wait longer for slow devices
}

// longSGL returns a gather list of 2^31+1 bytes. It has up to 65 entries, if the device supports
// them, all for the same region, so that less memory is registered.
func (p *Port) longSGL() (sgl []verbs.SGE) {
	attr := p.QueryDevice()
	pieces := 1
	for pieces < 64 && 2*pieces < attr.MaxSGE && 2*pieces < attr.MaxSGERead { // one entry is left for the last byte
		pieces *= 2
	}
	// The memory is never touched and therefore not allocated.
	mr, err := p.PD.RegMR(verbs.MRInit{Buf: make([]byte, 1<<31/pieces), Access: verbs.AccessLocalWrite})
	p.Must("a large region", err)
	for range pieces {
		sgl = append(sgl, verbs.SGEOf(mr, 0, mr.Len()))
	}
	return append(sgl, verbs.SGEOf(mr, 0, 1))
}

var sendCases = overRC.Cases([]conformance.Case{{
	ID: "rc/send/too-long-for-the-receive-refused", Cite: ibta("C10-87", "rc/send/1"),
	Title:   "A SEND longer than its receive is refused as an invalid request, and the receive completes with LOC_LEN_ERR",
	Sends:   "8 bytes into a receive of 4; 2048 bytes in two packets into one of 1500",
	Expects: "a NAK for an invalid request with the PSN that did not fit; LOC_LEN_ERR; nothing after the buffer changed",
	Defects: []string{"LongSendIsOpError"}, Run: OnPort(func(p *Port) {
		for _, t := range []struct{ room, length int }{{4, 8}, {1500, 2 * MTU}} {
			c := p.connect(Setup{Receives: 1, recvLen: t.room})
			packets := ib.Send(c.PeerPSN(0), Data(t.length), MTU)
			c.Send(packets...)
			c.expectNak(c.PeerPSN(len(packets)-1), ib.NakInvalidRequest)
			c.ExpectCompletion(1, verbs.WCLocLenErr)
			c.ExpectUnchangedOutside(c.LocalMem, 0, t.room)
		}
	}),
}, {
	ID: "rc/send/bad-key-of-a-receive-is-an-operational-error", Cite: ibta("error class A", "rc/send/2"),
	Title:   "A SEND into a receive with a bad key is refused with a NAK for a remote operational error",
	Sends:   "SENDs into receives with a key that does not exist, and with memory of another protection domain",
	Expects: "a NAK for a remote operational error",
	Defects: []string{"BadRecvKeyIsAccess"}, Run: onEachConn(Setup{}, badReceives, func(c *Conn, r badBuffer) {
		c.PostRecv(c.QP, 1, r.buffer(c))
		c.expectRefused(c.peerSend(0, 16), ib.NakRemoteOp)
	}),
}, {
	ID: "rc/send/bad-key-of-a-receive-is-a-protection-error-here", Cite: ibta("error class A", "rc/send/2"),
	Title:   "A receive with a bad key completes with LOC_PROT_ERR, and nothing is written",
	Sends:   "SENDs into receives with a key that does not exist, and with memory of another protection domain",
	Expects: "the receive completes with LOC_PROT_ERR",
	Defects: []string{"RecvErrorIsQPOp"}, Run: onEachConn(Setup{}, badReceives, func(c *Conn, r badBuffer) {
		c.PostRecv(c.QP, 1, r.buffer(c))
		c.Send(c.peerSend(0, 16))
		c.ExpectCompletion(1, verbs.WCLocProtErr)
		c.ExpectUntouched(c.LocalMem)
	}),
}, {
	ID: "rc/send/srq-receive-of-another-domain-refused", Cite: ibta("error class A", "rc/send/2"), Needs: verbs.CapSRQ,
	Title:   "A SEND into a receive of an SRQ whose memory is of another protection domain is refused",
	Sends:   "a SEND to a QP with an SRQ of the same PD, whose receive has memory of another PD",
	Expects: "a NAK for a remote operational error, LOC_PROT_ERR, memory unchanged",
	Defects: []string{"SRQReceiveAnyPD"}, Run: OnPort(func(p *Port) {
		srq := p.newSRQ(p.PD)
		c := p.connect(Setup{srq: srq})
		foreign := c.otherPDMemory(verbs.AccessLocalWrite)
		c.PostRecv(srq, 1, foreign.SGE(0, 64))
		c.expectRefused(c.peerSend(0, 16), ib.NakRemoteOp)
		c.ExpectCompletion(1, verbs.WCLocProtErr)
		c.ExpectUntouched(foreign)
	}),
}, {
	ID: "rc/send/shorter-message-leaves-the-rest-alone", Cite: ibta("", "rc/send/3"),
	Title:   "A SEND shorter than its receive completes it with the length sent and leaves the rest of the buffer alone",
	Sends:   "SENDs of 1, 2, 3, 4 and 1029 bytes, those of odd lengths with pad bytes, into larger receives",
	Expects: "these lengths, the bytes sent, and the rest of the buffers unchanged",
	Defects: []string{"PadDelivered"}, Run: onConn(Setup{Receives: 5, recvLen: 1500}, func(c *Conn) {
		next := 0
		for i, n := range []int{1, 2, 3, 4, MTU + 5} {
			packets := ib.Send(c.PeerPSN(next), Data(n), MTU)
			next += len(packets)
			c.Send(packets...)
			c.ExpectRecv(uint64(i+1), n)
			c.ExpectBytes(c.LocalMem, 1500*i, Data(n))
			c.ExpectUnchangedOutside(c.LocalMem, 1500*i, n)
			c.LocalMem.Snapshot()
		}
	}),
}, {
	ID: "rc/send/empty-message-completes-a-receive", Cite: ibta("", "rc/send/4"),
	Title:   "A SEND of no bytes completes a receive with length 0",
	Sends:   "a SEND of no bytes to a QP with one receive, and again with a receive that has no memory",
	Expects: "ACKs, completions with length 0, the buffer unchanged",
	Defects: []string{"EmptyMessagesIgnored"}, Run: onConn(Setup{Receives: 1}, func(c *Conn) {
		c.PostRecv(c.QP, 2)
		for i := range 2 {
			c.expectAcked(c.peerSend(i, 0))
			c.ExpectRecv(uint64(i+1), 0)
		}
		c.ExpectUntouched(c.LocalMem)
	}),
}})

// badReceives are receive buffers that the device must not write to.
var badReceives = []badBuffer{
	{"a key that does not exist", func(c *Conn) verbs.SGE { return c.unknownKeySGE(64) }},
	{"memory of another PD", func(c *Conn) verbs.SGE { return c.otherPDSGE(64) }},
}

// rdmaImm is immediate data whose four bytes differ, so that a wrong byte order shows.
const rdmaImm = 0x0a0b0c0d

// postImm makes the device send or write n bytes with immediate data.
func (c *Conn) postImm(op verbs.WROpcode, n int) {
	c.PostSend(c.QP, verbs.SendWR{WRID: 1, Opcode: op, SGL: c.LocalMem.SGL(0, n), Imm: rdmaImm, Remote: PeerMemory})
}

// expectRecvImm fails the case unless receive id completes with n bytes and immediate data rdmaImm.
func (c *Conn) expectRecvImm(id uint64, n int) {
	wc := c.ExpectRecv(id, n)
	c.Check(wc.Flags&verbs.WCWithImm != 0 && wc.Imm == rdmaImm, "immediate data 0x0a0b0c0d", "flags %#x, %#08x", wc.Flags, wc.Imm)
}

var invalidateCases = conformance.Group{Needs: verbs.CapRC | verbs.CapSendInv, Labels: labelRC}.Cases([]conformance.Case{{
	ID: "rc/inv/key-dead-before-the-receive-completes", Cite: ibta("", "rc/inv/1"), Needs: verbs.CapMWType2,
	Title:   "The key that a SEND invalidates is invalid when the receive completes",
	Sends:   "a READ through a window, a SEND that invalidates it, and after that has been received the READ again",
	Expects: "the bytes, an ACK and a completion, then a NAK for a remote access error",
	Defects: []string{"InvalidateLate"}, Run: onConn(Setup{Receives: 1}, func(c *Conn) {
		win := c.bindWindow(verbs.MWType2, 0, 64, verbs.AccessRemoteRead)
		c.expectRead(0, win.reth(0, 8), win.m.Buf[:8])
		c.expectAcked(ib.SendOnlyInv(c.PeerPSN(1), win.key, Data(8)).AckReq())
		c.ExpectRecv(1, 8)
		c.expectReadRefused(2, win.reth(0, 8))
	}),
}, {
	ID: "rc/inv/completion-names-the-key", Cite: ibta("", "rc/inv/2"), Needs: verbs.CapMWType2,
	Title:   "The completion of a receive whose message invalidated a key has the flag and the key",
	Sends:   "SENDs that invalidate a window, of one packet and of two, then one that does not",
	Expects: "completions with the flag and the key, then one without the flag",
	Defects: []string{"SparseCompletions"}, Run: onConn(Setup{Receives: 3, recvLen: 2048}, func(c *Conn) {
		info := bindRange(c.bindableMemory(), 0, 64, verbs.AccessRemoteRead)
		one, two := c.bind(c.newWindow(verbs.MWType2), info).key, c.bind(c.newWindow(verbs.MWType2), info).key
		c.Send(ib.SendOnlyInv(c.PeerPSN(0), one, Data(8)),
			ib.SendFirst(c.PeerPSN(1), Data(MTU)), ib.New(ib.OpSendLastInv, c.PeerPSN(2), Data(8)).WithIETH(uint32(two)),
			ib.SendOnly(c.PeerPSN(3), Data(8)))
		for i, key := range []verbs.RKey{one, two} {
			wc := c.ExpectRecv(uint64(i+1), 8+i*MTU)
			c.Check(wc.Flags&verbs.WCWithInv != 0 && wc.InvalidatedRKey == key, "the key that was invalidated", "flags %#x, %#x", wc.Flags, wc.InvalidatedRKey)
		}
		wc := c.ExpectRecv(3, 8)
		c.Check(wc.Flags&verbs.WCWithInv == 0, "no key that was invalidated", "flags %#x", wc.Flags)
	}),
}, {
	ID: "rc/inv/unknown-key-fails-without-an-answer", Cite: ibta("9.9.6.3, error class J", "rc/inv/3"),
	Title:   "A SEND whose key cannot be invalidated fails the receive and the QP, and gets neither ACK nor NAK",
	Sends:   "a SEND that invalidates a key that does not exist, in one packet or in two",
	Expects: "no answer to it, a receive that completes with an error, the QP in ERR",
	Defects: []string{"InvalidateAcked", "InvalidateNAKed"}, Run: onEachConn(Setup{Receives: 1, recvLen: 2048}, []int{8, MTU + 8}, func(c *Conn, n int) {
		packets := ib.Send(c.PeerPSN(0), Data(n), MTU)
		last := &packets[len(packets)-1]
		*last = ib.SendOnlyInv(last.PSN(), unknownKey(c.TargetMem.RKey()), last.Payload).AckReq()
		if len(packets) > 1 {
			*last = last.WithOpcode(ib.OpSendLastInv)
		}
		c.Send(packets...)
		c.expectSilentFailure(last.PSN())
	}),
}, {
	ID: "rc/inv/key-of-a-region-fails", Cite: ibta("o10-37.2.26", "rc/inv/4"),
	Title:   "The key of an ordinary region cannot be invalidated by a peer, and stays valid",
	Sends:   "a SEND that invalidates the key of a region, then a READ of the region on another QP",
	Expects: "no answer to the SEND, a receive that completes with an error, the QP in ERR; the bytes for the READ",
	Defects: []string{"InvalidateAnything"}, Run: onConn(Setup{Receives: 1}, func(c *Conn) {
		c.expectInvalidateFails(c.TargetMem.RKey())
		c.secondConn(Setup{}).expectRead(0, c.RETH(0, 8), c.TargetMem.Buf[:8])
	}),
}, {
	ID: "rc/inv/key-of-a-type-1-window-fails", Cite: ibta("o10-37.2.26", "rc/inv/4"), Needs: verbs.CapMWType1,
	Title:   "The key of a type 1 window cannot be invalidated by a peer, and stays valid",
	Sends:   "a SEND that invalidates the key of a bound type 1 window, then a READ through it on another QP",
	Expects: "no answer to the SEND, a receive that completes with an error, the QP in ERR; the bytes for the READ",
	Defects: []string{"InvalidateAnything"}, Run: onConn(Setup{Receives: 1}, func(c *Conn) {
		win := c.bindWindow(verbs.MWType1, 0, 64, verbs.AccessRemoteRead)
		c.expectInvalidateFails(win.key)
		c.secondConn(Setup{}).expectRead(0, win.reth(0, 8), win.m.Buf[:8])
	}),
}, {
	ID: "rc/inv/window-of-another-qp-fails", Cite: ibta("", "rc/inv/5"), Needs: verbs.CapMWType2,
	Title:   "A type 2 window can be invalidated only on the QP that it is bound to",
	Sends:   "a SEND that invalidates a window on another QP, then a READ through the window on its QP",
	Expects: "no answer to the SEND, a receive that completes with an error, that QP in ERR; the bytes for the READ",
	Defects: []string{"ForeignInvalidate"}, Run: onConn(Setup{}, func(c *Conn) {
		win := c.bindWindow(verbs.MWType2, 0, 64, verbs.AccessRemoteRead)
		c.secondConn(Setup{Receives: 1}).expectInvalidateFails(win.key)
		c.expectRead(0, win.reth(0, 8), win.m.Buf[:8])
	}),
}, {
	ID:   "rc/inv/free-window-fails",
	Cite: ibta("", "rc/inv/6"), Needs: verbs.CapMWType2, Labels: []string{conformance.Dangerous},
	Title:   "A type 2 window that is not bound cannot be invalidated",
	Sends:   "a SEND that invalidates a window which was never bound; on another QP, one that was invalidated by a local invalidate, if the device can",
	Expects: "no answer, a receive that completes with an error, the QP in ERR",
	Defects: []string{"UnboundInvalidate", "InvalidatedTwice"}, Run: onConn(Setup{Receives: 1}, func(c *Conn) {
		c.expectInvalidateFails(c.newWindow(verbs.MWType2).RKey())
		if c.Caps.Has(verbs.CapLocalInv) {
			other := c.secondConn(Setup{Receives: 1})
			win := other.bindWindow(verbs.MWType2, 0, 64, verbs.AccessRemoteRead)
			other.invalidate(win)
			other.expectInvalidateFails(win.key)
		}
	}),
}, {
	ID:   "rc/inv/free-window-leaves-the-device-alive",
	Cite: ibta("", "rc/inv/6"), Needs: verbs.CapMWType2, Labels: []string{conformance.Dangerous},
	Title:   "A SEND that invalidates an unbound type 2 window does not affect other QPs",
	Sends:   "a SEND that invalidates a window which was never bound, then a WRITE and a READ on another QP, and a bind there",
	Expects: "the WRITE and the READ are executed, the window can be bound and grants access to its range",
	Defects: []string{"InvalidatePanics"}, Run: onConn(Setup{Receives: 1}, func(c *Conn) {
		mw := c.newWindow(verbs.MWType2)
		c.Send(ib.SendOnlyInv(c.PeerPSN(0), mw.RKey(), Data(8)).AckReq())
		other := c.secondConn(Setup{})
		c.NextAfterSync(shortWait) // another case checks the response to the SEND
		c.skipped = nil
		c.NextCompletion()
		other.expectOpExecuted(0, writeOp, other.RETH(0, 8))
		other.expectOpExecuted(1, readOp, other.RETH(0, 8))
		m := other.bindableMemory()
		win := other.bind(mw, bindRange(m, 0, 64, verbs.AccessRemoteRead))
		other.expectRead(2, win.reth(0, 8), m.Buf[:8])
	}),
}})

// expectInvalidateFails sends a SEND with the first PSN that invalidates key, which must fail
// without a response.
func (c *Conn) expectInvalidateFails(key verbs.RKey) {
	c.Send(ib.SendOnlyInv(c.PeerPSN(0), key, Data(8)).AckReq())
	c.expectSilentFailure(c.PeerPSN(0))
}

// expectSilentFailure fails the case unless receive 1 completes with an error, the queue pair gets
// to ERR, and the device sends no response but ACKs of packets before this PSN.
func (c *Conn) expectSilentFailure(psn ib.PSN) {
	c.expectErrorCompletion(1)
	c.AwaitState(c.QP, verbs.QPStateErr)
	for _, pkt := range c.Drain(silencePeriod) {
		c.Check(pkt.IsAck(ib.AckPositive) && pkt.PSN().Less(psn), "no response to a SEND with a key that cannot be invalidated", "%v", pkt)
	}
}
