package roce

import (
	"github.com/fabrictest/fabrictest/conformance"
	"github.com/fabrictest/fabrictest/conformance/packet/ib"
	"github.com/fabrictest/fabrictest/verbs"
)

// bthResponseCases check the headers of responses that the device sends and receives.
var bthResponseCases = overRC.Cases([]conformance.Case{{
	ID:    "bth/tver/answers-of-other-versions-dropped",
	Title: "A response with another transport version is dropped",
	Cite:  ibta("", "roce/bth/tver/1"), Defects: []string{"ResponseTVerUnchecked"},
	Sends:   "to a WRITE and a READ ACKs and READ responses with TVer 1 to 15, then with 0",
	Expects: "no completion, and memory unchanged, before the last",
	Run: onConn(setup{}, func(c *conn) {
		c.PostSend(c.qp, c.writeWR(1, 8), c.readWR(2, 8))
		c.expectAll(c.wantWrite(0, 8), c.wantRead(1, 8))
		answers := []ib.Packet{ib.Ack(c.devicePSN(0), 1), ib.ReadResponseOnly(c.devicePSN(1), 2, data(8))}
		for i, answer := range answers {
			for v := range uint8(15) {
				c.expectDropped(answer.WithTVer(v + 1))
			}
			c.send(answer)
			c.ExpectCompletion(uint64(i+1), verbs.WCSuccess)
		}
		c.ExpectBytes(c.localMem, sinkOffset, data(8))
	}),
}, {
	ID:    "bth/pad/ragged-response-not-taken",
	Title: "A READ response of a length that is no multiple of four bytes, without padding, does not complete the READ successfully",
	Cite:  ibta("", "roce/bth/pad/4"), Level: conformance.Should, Defects: []string{"RaggedAccepted"},
	Sends:   "to READs of 5, 6 and 7 bytes, each on a separate connection, a response with PadCnt 0 and no padding; if the READ is retransmitted, a correct one",
	Expects: "an error; or nothing, and success with the correct response",
	Run: onPort(onEachConn(setup{modify: withTimeout(timeout67ms, 7)}, []int{5, 6, 7}, func(c *conn, n int) {
		bytes := data(n)
		c.send(c.startRead(bytes)[0].WithPad([]byte{}))
		c.expectErrorOrRetry(bytes)
	})),
}, {
	ID:    "bth/pkey/sent-is-that-of-the-queue-pair",
	Title: "Requests and responses carry the P_Key of their queue pair, including the membership bit",
	Cite:  ibta("", "roce/bth/pkey/5"), Defects: []string{"AckPKeyLimited"},
	Sends:   "requests that are acknowledged, answered and refused, and responses to requests of the device, some of limited members; the same with a P_Key of a limited member, if the port has one",
	Expects: "in every packet the P_Key that the queue pair was set up with",
	Run: onPort(func(p *port) {
		c := p.connect(setup{receives: 2})
		if own := p.pkey(0); own&pkeyFullMember != 0 {
			// The device must answer a limited member with its own P_Key.
			c.send(ib.SendOnly(c.peerPSN(0), data(16)).AckReq().WithPKey(own &^ pkeyFullMember))
			c.expect(ib.Ack(c.peerPSN(0), 1).WithPKey(own))
			c.attr.RQPSN = uint32(c.peerPSN(1))
		}
		for _, pkt := range c.variedPackets() {
			c.checkPacket(ib.Packet{}.WithPKey(p.pkey(0)), pkt)
		}
		for i, pkey := range p.pkeyTable() {
			if pkey == 0 || pkey&pkeyFullMember != 0 {
				continue
			}
			c := p.connectWithPKey(setup{receives: 1}, uint16(i), pkey)
			c.send(ib.SendOnly(c.peerPSN(0), data(16)).AckReq().WithPKey(pkey | pkeyFullMember))
			c.expect(ib.Ack(c.peerPSN(0), 1).WithPKey(pkey))
			c.PostSend(c.qp, c.sendWR(1, 8))
			c.expect(ib.SendOnly(c.devicePSN(0), nil).WithPKey(pkey))
		}
	}),
}, {
	ID:    "bth/se/never-on-answers",
	Title: "Responses never carry SE",
	Cite:  ibta("", "roce/bth/se/1"), Defects: []string{"AckSolicited"},
	Sends:   "a SEND and a WRITE with immediate data with SE; requests that are acknowledged, answered and refused without",
	Expects: "SE 0 in every answer",
	Run: onConn(setup{receives: 3}, func(c *conn) {
		c.send(ib.SendOnly(c.peerPSN(0), data(16)).AckReq().SE())
		c.expect(ib.Ack(c.peerPSN(0), 1).NoSE())
		c.send(ib.WriteOnlyImm(c.peerPSN(1), c.reth(0, 16), 7, data(16)).AckReq().SE())
		c.expect(ib.Ack(c.peerPSN(1), 2).NoSE())
		c.attr.RQPSN = uint32(c.peerPSN(2))
		for _, pkt := range c.variedPackets() {
			c.checkPacket(ib.Packet{}.NoSE(), pkt)
		}
	}),
}, {
	ID:    "ecn/bits/none-where-nothing-was-marked",
	Title: "A queue pair that has seen no congestion sets neither FECN nor BECN",
	Cite:  ibta("", "roce/ecn/8"), Defects: []string{"AckBECN"},
	Sends:   "requests that are acknowledged, answered and refused, and responses to requests of the device, all without a CE mark",
	Expects: "both bits 0 in every packet",
	Run: onConn(setup{receives: 1}, func(c *conn) {
		for _, pkt := range c.variedPackets() {
			c.checkPacket(ib.Packet{BTH: ib.BTH{FECN: new(false), BECN: new(false)}}, pkt)
		}
	}),
}, {
	ID:    "rc/ack/carries-no-payload",
	Title: "Acknowledgements of all kinds have no payload",
	Cite:  ibta("", "roce/rc/ack/16"), Defects: []string{"AckPayload"},
	Sends:   "a SEND, one after a gap, one without a receive, a WRITE with an invalid key and, if the device supports them, an atomic",
	Expects: "an ACK, a sequence NAK, an RNR NAK, a NAK for a remote access error and an atomic acknowledge, all without a payload and with PadCnt 0",
	Run: onConn(setup{receives: 1}, func(c *conn) {
		bare := func(want ib.Packet) { c.expectIgnoringCNPs(want.WithPayload([]byte{}).WithPadCnt(0)) }
		c.send(ib.SendOnly(c.peerPSN(0), data(5)).AckReq())
		bare(ib.Ack(c.peerPSN(0), 1))
		n := 1
		if c.Caps.Has(verbs.CapAtomics) {
			setWord(c.targetMem, 0, 0x0102030405060708)
			c.send(ib.FetchAdd(c.peerPSN(n), wordRETH(c.targetMem, 0), 1).AckReq())
			bare(ib.AtomicAck(c.peerPSN(n), 2, 0x0102030405060708))
			n++
		}
		c.send(ib.SendOnly(c.peerPSN(n+1), data(5)).AckReq())
		bare(ib.Nak(c.peerPSN(n), ib.NakSequence, uint32(n)))
		c.send(ib.SendOnly(c.peerPSN(n), data(5)).AckReq())
		bare(anyRNRNak(c.peerPSN(n)))
		c.send(ib.WriteOnly(c.peerPSN(n), ib.At(c.targetMem.Addr(), unknownKey(c.targetMem.RKey()), 5), data(5)).AckReq())
		bare(ib.Nak(c.peerPSN(n), ib.NakRemoteAccess, uint32(n)))
	}),
}})

// connectWithPKey makes a connection that uses another entry of the P_Key table.
func (p *port) connectWithPKey(s setup, index, pkey uint16) *conn {
	s.state = verbs.QPStateInit
	c := p.connect(s)
	p.Must("a queue pair with another P_Key", c.qp.Modify(verbs.QPAttr{State: verbs.QPStateInit, PKeyIndex: index}, verbs.QPAttrState|verbs.QPAttrPKeyIndex))
	p.toRTR(c.qp, c.attr)
	p.toRTS(c.qp, c.attr)
	p.Checker.ExpectPKey(uint32(c.attr.DestQPN), pkey)
	return c
}
