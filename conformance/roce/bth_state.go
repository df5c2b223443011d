package roce

import (
	"github.com/fabrictest/fabrictest/conformance"
	"github.com/fabrictest/fabrictest/conformance/packet/ib"
	"github.com/fabrictest/fabrictest/verbs"
)

var bthStateCases = mostlyRC.Cases([]conformance.Case{{
	ID: "bth/state/request-before-rtr-dropped", Cite: ibta("", "bth/state/1"),
	Title:   "A request for a queue pair in RESET or INIT is dropped, and not executed later",
	Sends:   "a SEND and a WRITE to a queue pair in RESET, then in INIT with a receive posted; nothing more when it is in RTR",
	Expects: "nothing before, nothing after, and the expected PSN unchanged",
	Defects: []string{"BuffersBeforeRTR"}, Run: onConn(Setup{Receives: 1, state: verbs.QPStateInit}, func(c *Conn) {
		fresh := c.freshQP()
		for _, qpn := range []verbs.QPN{fresh.QPN(), c.QP.QPN()} {
			c.expectDropped(c.peerSend(0, 16).To(uint32(qpn)))
			c.expectDropped(c.peerWrite(1, 16).To(uint32(qpn)))
		}
		c.ToRTR(c.QP, c.Attr)
		c.expectNothing()
		c.expectAccepted(0)
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
	Sends:   "an ACK, a READ response and an atomic acknowledgement to a queue pair in RTR, with the PSNs that it will use; later an ACK that is due",
	Expects: "nothing; then requests that complete with their ACK, and not before",
	Defects: []string{"EarlyAckCounts"}, Run: onConn(Setup{Receives: 1, state: verbs.QPStateRTR}, func(c *Conn) {
		c.expectDropped(c.peerAck(1, 2))
		c.expectDropped(ib.ReadResponseOnly(c.DevicePSN(0), 1, Data(8)))
		c.expectDropped(ib.AtomicAck(c.DevicePSN(0), 1, 5))
		c.ToRTS(c.QP, c.Attr)
		c.request(0, c.SendWR(100, 8))
		c.expectNothing()
		c.completeWith(c.peerAck(0, 1), 100)
	}),
}, {
	ID: "bth/state/failed-qp-is-dead", Cite: ibta("", "bth/state/3"),
	Title:   "A queue pair in the error state neither executes nor answers requests",
	Sends:   "a WRITE that is refused; then a SEND, WRITEs and READs with the expected PSN, an earlier one and later ones. The same after the application has put a queue pair into that state",
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
			}
		}
	}),
}})

// bthResponseCases check the headers of responses that the device sends and receives.
var bthResponseCases = overRC.Cases([]conformance.Case{{
	ID: "bth/tver/answers-of-other-versions-dropped", Cite: ibta("", "bth/tver/1"),
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
	Sends:   "requests that are acknowledged, answered and refused, and responses to requests of the device, some of limited members; the same with a P_Key of a limited member, if the port has one",
	Expects: "in every packet the P_Key that the queue pair was set up with",
	Defects: []string{"AckPKeyLimited"}, Run: OnPort(func(p *Port) {
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

// connectWithPKey makes a connection that uses another entry of the P_Key table.
func (p *Port) connectWithPKey(s Setup, index, pkey uint16) *Conn {
	s.state = verbs.QPStateInit
	c := p.connect(s)
	p.Must("a queue pair with another P_Key", c.QP.Modify(verbs.QPAttr{State: verbs.QPStateInit, PKeyIndex: index}, verbs.QPAttrState|verbs.QPAttrPKeyIndex))
	p.ToRTR(c.QP, c.Attr)
	p.ToRTS(c.QP, c.Attr)
	p.Checker.pkeys[uint32(c.Attr.DestQPN)] = pkey
	return c
}
