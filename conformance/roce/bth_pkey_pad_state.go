package roce

import (
	"bytes"
	"fmt"

	"github.com/fabrictest/fabrictest/conformance"
	"github.com/fabrictest/fabrictest/conformance/packet/ib"
	"github.com/fabrictest/fabrictest/conformance/rig"
	"github.com/fabrictest/fabrictest/verbs"
)

var bthKeyCases = mostlyRC.Cases([]conformance.Case{{
	ID: "bth/pkey/foreign-partition-dropped", Cite: ibta("C9-43", "bth/pkey/1"),
	Title:   "A packet of another partition is dropped",
	Sends:   "SENDs and an ACK whose P_Keys differ from the connection's in other bits than that of membership",
	Expects: "no response, no effect, and the expected PSN unchanged",
	Defects: []string{"KeysIgnored"}, Run: acceptsAfter(func(c *Conn) {
		own := c.pkey(0)
		for _, pkey := range []uint16{own ^ 0x6dcb, own ^ 1, own ^ 0x4000, own & 0x8000, 0} {
			c.expectDropped(c.peerSend(0, 16).WithPKey(pkey))
		}
		c.PostSend(c.QP, c.SendWR(100, 8))
		c.expect(ib.SendOnly(c.DevicePSN(0), nil).WithPKey(own))
		c.expectDropped(c.peerAck(0, 1).WithPKey(own ^ 0x6dcb))
	}),
}, {
	ID: "bth/pkey/foreign-partition-counted", Cite: ibta("C9-43", "bth/pkey/1"),
	Title:   "Packets of another partition are counted",
	Sends:   "three SENDs of another partition, with a valid one in between; a CNP of another partition, if the device manages congestion",
	Expects: "the counter of bad P_Keys increases by one for each packet of another partition",
	Defects: []string{"KeyViolationsUncounted"}, Run: onRC(func(c *Conn) {
		before, want := c.QueryPort().BadPKeys, uint32(3)
		for n := range 3 {
			if n == 2 {
				c.expectAccepted(0)
			}
			c.expectDropped(c.peerSend(0, 16).WithPKey(c.pkey(0) ^ 0x6dcb))
		}
		if c.Caps.Has(verbs.CapCongestion) {
			c.expectDropped(ib.CNP().WithPKey(c.pkey(0) ^ 0x6dcb))
			want++
		}
		got := c.QueryPort().BadPKeys - before
		c.Check(got == want, fmt.Sprintf("%d bad P_Keys counted", want), "%d", got)
	}),
}, {
	ID: "bth/pkey/limited-member-reaches-full-member", Cite: ibta("C9-43", "bth/pkey/2"),
	Title:   "A limited member of the partition reaches a full member",
	Sends:   "SENDs with the P_Key of the connection, and with that of a limited member",
	Expects: "an ACK and a completion for each",
	Defects: []string{"PKeyExact"}, Run: onRC(func(c *Conn) {
		own := c.pkey(0)
		if own&pkeyFullMember == 0 {
			rig.BenchCannot("the first P_Key of the port, %#04x, is of a limited member", own)
		}
		for n, pkey := range []uint16{own, own &^ pkeyFullMember, own} {
			c.expectAccepted(n, func(p ib.Packet) ib.Packet { return p.WithPKey(pkey) })
		}
	}),
}, {
	ID: "bth/pkey/two-limited-members-do-not-talk", Cite: ibta("C9-43", "bth/pkey/2"),
	Title:   "A limited member of the partition drops what another limited member sends",
	Sends:   "a SEND of a limited member to a connection of a limited member, then one of a full member",
	Expects: "an answer to the second only",
	Defects: []string{"KeysIgnored"}, Run: OnPort(func(p *Port) {
		index, pkey := p.limitedPKey()
		c := p.connectWithPKey(Setup{Receives: 2}, index, pkey)
		c.expectDropped(c.peerSend(0, 16).WithPKey(pkey))
		c.expectAccepted(0, func(p ib.Packet) ib.Packet { return p.WithPKey(pkey | pkeyFullMember) })
	}),
}, {
	ID:   "bth/pkey/qp1-takes-every-key-of-the-table",
	Cite: ibta("C9-42, C9-43", "bth/pkey/3", "bth/pkey/1"), Needs: verbs.CapCM, Labels: labelCM,
	Title:   "Queue pair 1 accepts MADs with every P_Key of the port's table, and with no other",
	Sends:   "REQs for a service without a listener, with each P_Key of the table, as full and as limited member, and with one that is not in it",
	Expects: "a REJ for each that matches, nothing for the last, which the port counts as one bad P_Key",
	Defects: []string{"PKeyExact", "KeyViolationsUncounted"}, Run: OnPort(func(p *Port) {
		comm := uint32(0x2000)
		foreign := uint16(0x9234)
		for _, own := range p.pkeyTable() {
			foreign ^= own &^ pkeyFullMember
			for _, pkey := range []uint16{own | pkeyFullMember, own &^ pkeyFullMember} {
				if (own|pkey)&pkeyFullMember == 0 || own&^pkeyFullMember == 0 {
					continue // two limited members, or an empty entry
				}
				comm++
				p.SendPacket(ib.CM(uint64(comm), p.cmRequest(cmClosedPort, comm)).WithPKey(pkey))
				p.cmExpect(ib.REJ{RemoteCommID: &comm})
			}
		}
		p.Check(comm > 0x2000, "a P_Key in the table of the port", "none")
		for _, own := range p.pkeyTable() {
			if own&^pkeyFullMember == foreign&^pkeyFullMember {
				rig.BenchCannot("the P_Key table of the port has %#04x, which the case uses as a foreign P_Key", foreign)
			}
		}
		before := p.QueryPort().BadPKeys
		p.SendPacket(ib.CM(1, p.cmRequest(cmClosedPort, comm+1)).WithPKey(foreign))
		p.expectSilence(silencePeriod)
		got := p.QueryPort().BadPKeys - before
		p.Check(got == 1, "one more bad P_Key", "%d", got)
	}),
}, {
	ID: "bth/pad/count-fills-up-to-four-bytes", Cite: ibta("", "bth/pad/1"),
	Title:   "Payloads are padded to a multiple of four bytes, and PadCnt says by how many",
	Sends:   "READs of 0 to 8 bytes, and ACKs for SENDs and WRITEs of as many; the device also sends over UC and UD",
	Expects: "PadCnt 0, 3, 2, 1, 0 and so on, and packets of whole words",
	Defects: []string{"PadSloppy"}, Run: onRC(func(c *Conn) {
		c.checkPadding(func(pkt Arrival, n int) {
			c.checkPacket(ib.Packet{}.WithPadCnt(uint8(-n&3)), pkt)
			size := len(pkt.Raw())
			c.Check(size%4 == 0, fmt.Sprintf("%v in a multiple of four bytes", pkt), "%d bytes", size)
		})
	}),
}, {
	ID: "bth/pad/bytes-are-zero", Cite: ibta("", "bth/pad/2"), Level: conformance.Should,
	Title:   "Pad bytes are zero, whatever was in memory",
	Sends:   "READs of 0 to 8 bytes out of memory full of ones, and ACKs for SENDs and WRITEs of as many; the device also sends over UC and UD",
	Expects: "pad bytes of 0",
	Defects: []string{"PadSloppy"}, Run: onRC(func(c *Conn) {
		c.checkPadding(func(pkt Arrival, n int) {
			raw := pkt.Raw()
			// Everything between payload and ICRC is padding, whatever PadCnt is.
			end := raw[:len(raw)-4]
			pad := end[len(end)-len(pkt.Pad):]
			c.Check(len(bytes.Trim(pad, "\x00")) == 0, fmt.Sprintf("zeros after the %d bytes of %v", n, pkt), "%x", pad)
		})
	}),
}, {
	ID: "bth/pad/count-beyond-the-payload-dropped", Cite: ibta("", "bth/pad/3"),
	Title:   "A packet whose PadCnt exceeds its payload is dropped without effect",
	Sends:   "SENDs and WRITEs without payload, READ requests, atomics, an ACK, an empty READ response and UC SENDs, with PadCnt 1 to 3",
	Expects: "no response, no effect, and the expected PSN unchanged",
	Defects: []string{"PadUnderflow"}, Run: acceptsAfter(func(c *Conn) {
		c.request(0, c.SendWR(100, 8), c.ReadWR(101, 0))
		packets := []ib.Packet{
			c.peerSend(0, 0), ib.SendOnlyImm(c.PeerPSN(0), 7, nil).AckReq(), c.peerWrite(0, 0), c.peerRead(0, 8),
			c.peerAck(0, 1), ib.ReadResponseOnly(c.DevicePSN(1), 2, nil),
		}
		if c.Caps.Has(verbs.CapAtomics) {
			packets = append(packets, ib.FetchAdd(c.PeerPSN(0), wordRETH(c.TargetMem, 0), 1), ib.CompareSwap(c.PeerPSN(0), wordRETH(c.TargetMem, 0), 0, 1))
		}
		for pad := range uint8(3) {
			for _, pkt := range packets {
				c.expectDropped(pkt.WithPadCnt(pad + 1))
			}
			if c.Caps.Has(verbs.CapUC) {
				uc := c.connect(Setup{qpType: verbs.QPTypeUC, Receives: 1})
				uc.expectDropped(ucSendOnly(uc.PeerPSN(0), 0).WithPadCnt(pad + 1))
				uc.expectUCDelivery(0, 24, 1)
			}
		}
	}),
}, {
	ID: "bth/pad/ragged-payload-not-delivered", Cite: ibta("", "bth/pad/4"), Level: conformance.Should,
	Title:   "A payload that is no multiple of four bytes and has no padding is not delivered",
	Sends:   "SENDs and WRITEs of 5, 6 and 7 bytes with PadCnt 0 and no padding, and of 5 with two pad bytes, each on a separate connection; a datagram and a UC SEND of 5 bytes without padding",
	Expects: "nothing, or a NAK for an invalid request; no message received, and memory unchanged",
	Defects: []string{"RaggedAccepted"}, Run: OnPort(func(p *Port) {
		eachConn(p, Setup{Receives: 1}, []unaligned{{n: 5}, {n: 6}, {n: 7}, {n: 5, pad: 2}, {n: 5, write: true}, {n: 6, write: true}, {n: 7, write: true}, {5, 2, true}}, expectUnalignedRefused)
		if p.Caps.Has(verbs.CapUD) {
			d := p.newUDPort(1, nil)
			d.expectDropped(d.datagram(Data(5)).WithPad([]byte{}))
		}
		if p.Caps.Has(verbs.CapUC) {
			c := p.connect(Setup{qpType: verbs.QPTypeUC, Receives: 1})
			c.expectDropped(ucSendOnly(c.PeerPSN(0), 5).WithPad([]byte{}))
		}
	}),
}, {
	ID: "bth/state/request-before-rtr-dropped", Cite: ibta("", "bth/state/1"),
	Title:   "A request for a queue pair in RESET or INIT is dropped, and not executed later",
	Sends:   "a SEND, a WRITE and a READ to a queue pair in RESET, then in INIT with a receive posted; nothing more when it is in RTR; SENDs and WRITEs to one of UC likewise",
	Expects: "nothing before, nothing after, and the expected PSN unchanged",
	Defects: []string{"BuffersBeforeRTR"}, Run: OnPort(func(p *Port) {
		for _, kind := range []verbs.QPType{verbs.QPTypeRC, verbs.QPTypeUC} {
			if !p.Caps.Has(capOf[kind]) {
				continue
			}
			c := p.connect(Setup{qpType: kind, state: verbs.QPStateInit})
			requests := []ib.Packet{c.peerSend(0, 16), c.peerWrite(1, 16), c.peerRead(0, 16)}
			if kind == verbs.QPTypeUC {
				requests = []ib.Packet{requests[0].On(ib.UC), requests[1].On(ib.UC)}
			}
			c.ToState(c.QP, verbs.QPStateReset)
			for state := verbs.QPStateReset; state <= verbs.QPStateInit; state++ {
				if state == verbs.QPStateInit {
					c.ToInit(c.QP, allAccess&^verbs.AccessLocalWrite, 0)
					c.PostRecv(c.QP, 1, c.LocalMem.SGE(0, 64))
				}
				for _, request := range requests {
					c.expectDropped(request)
				}
			}
			c.ToRTR(c.QP, c.Attr)
			c.expectNothing()
			c.ExpectUntouched(c.TargetMem, c.LocalMem)
			if kind == verbs.QPTypeUC {
				c.expectUCDelivery(0, 24, 1)
			} else {
				c.expectAccepted(0)
			}
		}
	}),
}, {
	ID: "bth/state/datagram-before-rtr-dropped", Cite: ibta("", "bth/state/1"), Needs: verbs.CapUD, Labels: labelUD,
	Title:   "A datagram for a queue pair in INIT is dropped, and not delivered later",
	Sends:   "a datagram to a queue pair in INIT with a receive posted; nothing more when it is in RTR",
	Expects: "no completion before or after, and the receive is used for the next",
	Defects: []string{"BuffersBeforeRTR"}, Run: onUD(0, func(d *udPort) {
		d.ToState(d.QP, verbs.QPStateReset)
		d.ToInit(d.QP, 0, udQKey)
		d.PostRecv(d.QP, 1, d.LocalMem.SGE(0, 128))
		d.expectDropped(d.datagram(Data(32)))
		d.ToRTR(d.QP, verbs.QPAttr{})
		d.expectNoCompletion()
		d.expectAccepted()
	}),
}, {
	ID: "bth/state/answers-before-rts-dropped", Cite: ibta("", "bth/state/2"),
	Title:   "A response that arrives before RTS does not complete later requests",
	Sends:   "an ACK, a READ response and an atomic acknowledgement to a queue pair in INIT and in RTR, with the PSNs that it will use; later those that are due",
	Expects: "nothing; then requests that complete with their response, and not before",
	Defects: []string{"EarlyAckCounts"}, Run: onConn(Setup{Receives: 1, state: verbs.QPStateInit}, func(c *Conn) {
		wrs := []verbs.SendWR{c.SendWR(0, 8), c.ReadWR(1, 8)}
		answers := []ib.Packet{c.peerAck(0, 1), ib.ReadResponseOnly(c.DevicePSN(1), 2, Data(8))}
		if c.Caps.Has(verbs.CapAtomics) {
			wrs, answers = append(wrs, c.fetchAddWR(2)), append(answers, ib.AtomicAck(c.DevicePSN(2), 3, 5))
		}
		early := append([]ib.Packet{c.peerAck(2, 3), ib.ReadResponseOnly(c.DevicePSN(0), 1, Data(8))}, answers...)
		for state := verbs.QPStateInit; state <= verbs.QPStateRTR; state++ {
			if state == verbs.QPStateRTR {
				c.ToRTR(c.QP, c.Attr)
			}
			for _, answer := range early {
				c.expectDropped(answer)
			}
		}
		c.ToRTS(c.QP, c.Attr)
		c.request(0, wrs...)
		c.expectNothing()
		for i, answer := range answers {
			c.completeWith(answer, uint64(i))
		}
	}),
}, {
	ID: "bth/state/failed-qp-is-dead", Cite: ibta("", "bth/state/3"),
	Title:   "A queue pair in the error state neither executes nor answers requests",
	Sends:   "a WRITE that is refused; then a SEND, WRITEs, READs and atomics with the expected PSN, an earlier one and later ones. The same after the application has put a queue pair into that state; WRITEs to one of UC",
	Expects: "nothing after the NAK: no answer, and no byte in memory",
	Defects: []string{"AnswersInError"}, Run: OnPort(func(p *Port) {
		refused := p.connect(Setup{})
		refused.exchange(refused.peerWrite(0, 8), refused.deviceAck(0, 1))
		refused.TargetMem.Snapshot()
		refused.exchange(refused.outOfBoundsWrite(1), anyNak(refused.PeerPSN(1), ib.AnyMSN))
		put := p.connect(Setup{})
		put.ToState(put.QP, verbs.QPStateErr)
		for _, c := range []*Conn{refused, put} {
			c.AwaitState(c.QP, verbs.QPStateErr)
			for _, n := range []int{1, 0, 2, 5} {
				c.expectDropped(c.peerSend(n, 16))
				c.expectDropped(c.peerWrite(n, 16))
				c.expectDropped(c.peerRead(n, 16))
				if c.Caps.Has(verbs.CapAtomics) {
					c.expectDropped(ib.FetchAdd(c.PeerPSN(n), wordRETH(c.TargetMem, 0), 1))
				}
			}
		}
		if p.Caps.Has(verbs.CapUC) {
			c := p.connect(Setup{qpType: verbs.QPTypeUC})
			c.ToState(c.QP, verbs.QPStateErr)
			for n := range 2 {
				c.expectDropped(c.peerWrite(n, 16).On(ib.UC))
			}
		}
	}),
}, {
	ID: "bth/tver/answers-of-other-versions-dropped", Cite: ibta("C17-21, CA17-23, CA17-39", "bth/tver/1"),
	Title:   "A response with another transport version is dropped",
	Sends:   "to a WRITE and a READ ACKs and READ responses with TVer 1 to 15, then with 0",
	Expects: "no completion, and memory unchanged, before the last",
	Defects: []string{"ResponseTVerUnchecked"}, Run: onConn(Setup{}, func(c *Conn) {
		c.request(0, c.WriteWR(1, 8), c.ReadWR(2, 8))
		answers := []ib.Packet{c.peerAck(0, 1), ib.ReadResponseOnly(c.DevicePSN(1), 2, Data(8))}
		for i, answer := range answers {
			for v := range uint8(15) {
				c.expectDropped(answer.WithTVer(v + 1))
			}
			c.completeWith(answer, uint64(i+1))
		}
		c.ExpectBytes(c.LocalMem, SinkOffset, Data(8))
	}),
}, {
	ID: "bth/pad/ragged-response-not-taken", Cite: ibta("", "bth/pad/4"), Level: conformance.Should,
	Title:   "A READ response of a length that is no multiple of four bytes, without padding, does not complete the READ successfully",
	Sends:   "to READs of 5, 6 and 7 bytes, each on a separate connection, a response with PadCnt 0 and no padding; if the READ is retransmitted, a correct one",
	Expects: "an error; or nothing, and success with the correct response",
	Defects: []string{"RaggedAccepted"}, Run: onEachConn(Setup{Modify: withTimeoutAndRetries(timeout67ms, 7)}, []int{5, 6, 7}, func(c *Conn, n int) {
		bytes := Data(n)
		c.Send(c.startRead(bytes)[0].WithPad([]byte{}))
		c.expectErrorOrRetry(bytes)
	}),
}, {
	ID: "bth/pkey/sent-is-that-of-the-queue-pair", Cite: ibta("", "bth/pkey/5"),
	Title:   "Requests and responses carry the P_Key of their queue pair, including the membership bit",
	Sends:   "requests that are acknowledged, answered and refused, and responses to requests of the device, some of limited members; the same with a P_Key of a limited member, if the port has one, and with another that is set in SQD",
	Expects: "in every packet the P_Key that the queue pair was set up with, or got since",
	Defects: []string{"AckPKeyLimited", "NewPKeyIgnored"}, Run: OnPort(func(p *Port) {
		c := p.connect(Setup{Receives: 2})
		if own := p.pkey(0); own&pkeyFullMember != 0 {
			// The device must answer a limited member with its own P_Key.
			c.exchange(c.peerSend(0, 16).WithPKey(own&^pkeyFullMember), c.deviceAck(0, 1).WithPKey(own))
			c.Attr.RQPSN = uint32(c.PeerPSN(1))
		}
		c.expectInAllPackets(ib.Packet{}.WithPKey(p.pkey(0)))
		for i, pkey := range p.pkeyTable() {
			if pkey == 0 || pkey&pkeyFullMember != 0 {
				continue
			}
			c := p.connectWithPKey(Setup{Receives: 1}, uint16(i), pkey)
			c.exchange(c.peerSend(0, 16).WithPKey(pkey|pkeyFullMember), c.deviceAck(0, 1).WithPKey(pkey))
			c.PostSend(c.QP, c.SendWR(1, 8))
			c.expect(ib.SendOnly(c.DevicePSN(0), nil).WithPKey(pkey))
			c = c.secondConn(Setup{Receives: 1})
			c.toSQD(false)
			c.Must("another P_Key in SQD", c.QP.Modify(verbs.QPAttr{State: verbs.QPStateSQD, PKeyIndex: uint16(i)}, verbs.QPAttrState|verbs.QPAttrPKeyIndex))
			c.Checker.PKeys[uint32(c.Attr.DestQPN)] = pkey
			c.exchange(c.peerSend(0, 16).WithPKey(pkey|pkeyFullMember), c.deviceAck(0, 1).WithPKey(pkey))
		}
	}),
}, {
	ID: "bth/se/never-on-answers", Cite: ibta("", "bth/se/1"),
	Title:   "Responses never carry SE",
	Sends:   "a SEND and a WRITE with immediate data with SE; requests that are acknowledged, answered and refused without",
	Expects: "SE 0 in every answer",
	Defects: []string{"AckSolicited"}, Run: onConn(Setup{Receives: 3}, func(c *Conn) {
		c.exchange(c.peerSend(0, 16).SE(), c.deviceAck(0, 1).NoSE())
		c.exchange(ib.WriteOnlyImm(c.PeerPSN(1), c.RETH(0, 16), 7, Data(16)).AckReq().SE(), c.deviceAck(1, 2).NoSE())
		c.Attr.RQPSN = uint32(c.PeerPSN(2))
		c.expectInAllPackets(ib.Packet{}.NoSE())
	}),
}, {
	ID: "ecn/bits/none-where-nothing-was-marked", Cite: ibta("", "ecn/8"),
	Title:   "A queue pair that has seen no congestion sets neither FECN nor BECN",
	Sends:   "requests that are acknowledged, answered and refused, and responses to requests of the device, all without a CE mark",
	Expects: "both bits 0 in every packet",
	Defects: []string{"AckBECN"}, Run: onConn(Setup{Receives: 1}, func(c *Conn) {
		c.expectInAllPackets(ib.Packet{BTH: ib.BTH{FECN: new(false), BECN: new(false)}})
	}),
}, {
	ID: "rc/ack/carries-no-payload", Cite: ibta("", "rc/ack/16"),
	Title:   "Acknowledgements of all kinds have no payload",
	Sends:   "a SEND, one after a gap, one without a receive, a WRITE with an invalid key and, if the device supports them, an atomic",
	Expects: "an ACK, a sequence NAK, an RNR NAK, a NAK for a remote access error and an atomic acknowledge, all without a payload and with PadCnt 0",
	Defects: []string{"AckPayload"}, Run: onConn(Setup{Receives: 1}, func(c *Conn) {
		bare := func(want ib.Packet) { c.expectIgnoringCNPs(want.WithPayload([]byte{}).WithPadCnt(0)) }
		c.Send(c.peerSend(0, 5))
		bare(c.deviceAck(0, 1))
		n := 1
		if c.Caps.Has(verbs.CapAtomics) {
			setWord(c.TargetMem, 0, 0x0102030405060708)
			c.Send(ib.FetchAdd(c.PeerPSN(n), wordRETH(c.TargetMem, 0), 1).AckReq())
			bare(ib.AtomicAck(c.PeerPSN(n), 2, 0x0102030405060708))
			n++
		}
		c.Send(c.peerSend(n+1, 5))
		bare(c.deviceNak(n, ib.NakSequence, uint32(n)))
		c.Send(c.peerSend(n, 5))
		bare(anyRNRNak(c.PeerPSN(n)))
		c.Send(ib.WriteOnly(c.PeerPSN(n), c.unknownKeyRETH(5), Data(5)).AckReq())
		bare(c.deviceNak(n, ib.NakRemoteAccess, uint32(n)))
	}),
}})

// checkPadding has the device send requests and responses with 0 to 8 bytes of payload, on RC, UC
// and UD, and calls check for each packet. All bits of the memory are 1, so that pad bytes from it
// show.
func (c *Conn) checkPadding(check func(pkt Arrival, payloadLen int)) {
	senders := []*Conn{c}
	if c.Caps.Has(verbs.CapUC) {
		senders = append(senders, c.connect(Setup{qpType: verbs.QPTypeUC}))
	}
	copy(c.TargetMem.Buf, bytes.Repeat([]byte{0xff}, memLen))
	for n := range 9 {
		c.Send(c.peerRead(n, n))
		check(c.nextPackets(1)[0], n)
		for _, s := range senders {
			copy(s.LocalMem.Buf, bytes.Repeat([]byte{0xff}, memLen))
			for i, op := range []verbs.WROpcode{verbs.OpSend, verbs.OpRDMAWrite} {
				s.PostSend(s.QP, verbs.SendWR{WRID: 100, Opcode: op, SGL: s.LocalMem.SGL(0, n), Remote: PeerMemory})
				check(c.nextPackets(1)[0], n)
				if s == c { // RC
					c.Send(c.peerAck(2*n+i, uint32(2*n+i+1)))
				}
			}
		}
	}
	if c.Caps.Has(verbs.CapUD) {
		d := c.newUDPort(0, nil)
		copy(d.LocalMem.Buf, bytes.Repeat([]byte{0xff}, memLen))
		for n := range 9 {
			d.post(verbs.OpSend, n)
			check(c.nextPackets(1)[0], n)
		}
	}
}

// unaligned is a SEND or WRITE of n bytes with pad bytes whose sum is not a multiple of four.
type unaligned struct {
	n, pad int
	write  bool
}

// expectUnalignedRefused sends an unaligned request, and fails the case unless the device drops it,
// or refuses it as invalid.
func expectUnalignedRefused(c *Conn, u unaligned) {
	request := c.peerSend(0, u.n)
	if u.write {
		request = c.peerWrite(0, u.n)
	}
	c.Send(request.WithPad(make([]byte, u.pad)))
	if got, answered := c.NextAfterSync(silencePeriod); answered {
		isNak := c.deviceNak(0, ib.NakInvalidRequest, 0).Matches(got.Packet)
		c.Check(isNak, "nothing, or a NAK for an invalid request", "%v", got)
	}
	if wc, completed := c.PollCompletion(0); completed {
		c.Check(wc.Status != verbs.WCSuccess, "no message received", "%s", rig.Describe(&wc))
	}
	c.ExpectUntouched(c.LocalMem, c.TargetMem)
}

// pkeyFullMember is the bit of a P_Key that marks full membership of the partition.
const pkeyFullMember = 0x8000

// pkeyTable returns the P_Key table of the port.
func (p *Port) pkeyTable() (table []uint16) {
	for i := range p.QueryPort().PKeys {
		table = append(table, p.pkey(i))
	}
	return table
}

// pkey returns an entry of the P_Key table of the port.
func (p *Port) pkey(index int) uint16 {
	pkey, err := p.Device.QueryPKey(1, index)
	p.Must("a P_Key table that can be read", err)
	return pkey
}

// limitedPKey returns the first entry of the P_Key table that is of a limited member. If there is
// none, it ends the case as unsupported.
func (p *Port) limitedPKey() (index, pkey uint16) {
	for i, k := range p.pkeyTable() {
		if k != 0 && k&pkeyFullMember == 0 {
			return uint16(i), k
		}
	}
	rig.BenchCannot("the P_Key table of the port has no key of a limited member")
	return 0, 0
}

// connectWithPKey makes a connection with entry index of the P_Key table, which is pkey. The packet
// checker then expects pkey in its packets.
func (p *Port) connectWithPKey(s Setup, index, pkey uint16) *Conn {
	s.state = verbs.QPStateInit
	c := p.connect(s)
	p.Must("a queue pair with another P_Key", c.QP.Modify(verbs.QPAttr{State: verbs.QPStateInit, PKeyIndex: index}, verbs.QPAttrState|verbs.QPAttrPKeyIndex))
	p.ToRTR(c.QP, c.Attr)
	p.ToRTS(c.QP, c.Attr)
	p.Checker.PKeys[uint32(c.Attr.DestQPN)] = pkey
	return c
}
