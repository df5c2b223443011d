package roce

import (
	"fmt"

	"github.com/fabrictest/fabrictest/conformance"
	"github.com/fabrictest/fabrictest/conformance/packet/ib"
	"github.com/fabrictest/fabrictest/conformance/rig"
	"github.com/fabrictest/fabrictest/verbs"
)

var lengthCases = overRC.Cases([]conformance.Case{{
	ID: "rc/len/only-beyond-the-mtu-refused", Cite: ibta("C9-92", "rc/len/1"),
	Title:   "An ONLY packet with more than the path MTU is refused as invalid",
	Sends:   "a SEND and a WRITE of one packet with 1028 bytes where the path MTU is 1024",
	Expects: "a NAK for an invalid request, no message, no byte in memory",
	Defects: []string{"NoLengthChecks"}, Run: expectEachRefused(
		[]segment{{op: ib.OpSendOnly, payload: 1028}},
		[]segment{{op: ib.OpSendOnlyImm, payload: 2048}},
		[]segment{{op: ib.OpWriteOnly, announced: 1028, payload: 1028}},
	),
}, {
	ID: "rc/len/first-and-middle-are-full", Cite: ibta("C9-92", "rc/len/2"),
	Title:   "A FIRST or MIDDLE packet of another length than the path MTU is refused as invalid",
	Sends:   "FIRST and MIDDLE packets of SENDs and WRITEs with 0, 512, 1020 and 1028 bytes where the path MTU is 1024",
	Expects: "a NAK for an invalid request with the packet's PSN",
	Defects: []string{"NoLengthChecks"}, Run: expectEachRefused(
		[]segment{{op: ib.OpSendFirst, payload: 512}},
		[]segment{{op: ib.OpSendFirst, payload: 0}},
		[]segment{{op: ib.OpSendFirst, payload: 1028}},
		[]segment{{op: ib.OpSendFirst, payload: 1024}, {op: ib.OpSendMiddle, payload: 1020}},
		[]segment{{op: ib.OpWriteFirst, announced: 4000, payload: 512}},
		[]segment{{op: ib.OpWriteFirst, announced: 4000, payload: 1024}, {op: ib.OpWriteMiddle, payload: 1028}},
	),
}, {
	ID: "rc/len/last-has-one-byte-to-the-mtu", Cite: ibta("C9-92", "rc/len/3"),
	Title:   "A LAST packet without payload, or with more than the path MTU, is refused as invalid",
	Sends:   "LAST packets of SENDs and WRITEs with 0 and 1028 bytes; LAST packets with 1 and 1024",
	Expects: "a NAK for an invalid request for the former, an ACK for the latter",
	Defects: []string{"NoLengthChecks"}, Run: OnPort(func(p *Port) {
		for _, n := range []int{1, 1024} {
			c := p.connect(Setup{Receives: 1, recvLen: 4096})
			c.Send(ib.SendFirst(c.PeerPSN(0), Data(1024)), ib.New(ib.OpSendLast, c.PeerPSN(1), Data(n)).AckReq())
			c.expect(c.deviceAck(1, 1))
			c.ExpectRecv(1, 1024+n)
		}
		for _, n := range []int{0, 1028} {
			p.expectLastRefused([]segment{{op: ib.OpSendFirst, payload: 1024}, {op: ib.OpSendLast, payload: n}})
			p.expectLastRefused([]segment{
				{op: ib.OpWriteFirst, announced: 1024 + max(n, 1), payload: 1024}, {op: ib.OpWriteLast, payload: n},
			})
		}
	}),
}, {
	ID: "rc/len/announced-beyond-two-gib-refused", Cite: ibta("C9-94", "rc/len/4"),
	Title:   "A RETH that announces more than 2 GiB is refused as invalid, whatever its key",
	Sends:   "WRITEs and READs that announce 0x80000001 and 0xffffffff bytes, with a good key and a bad one; and 2 GiB, with a bad one",
	Expects: "a NAK for an invalid request; a remote access NAK for 2 GiB",
	Defects: []string{"HugeLengthIsAccess"}, Run: OnPort(func(p *Port) {
		for _, s := range []segment{
			{op: ib.OpWriteFirst, announced: 0x8000_0001, payload: 1024},
			{op: ib.OpWriteFirst, announced: 0xffff_ffff, payload: 1024},
			{op: ib.OpReadRequest, announced: 0x8000_0001},
			{op: ib.OpReadRequest, announced: 0xffff_ffff},
			{op: ib.OpReadRequest, announced: 0x8000_0001, unknownKey: true},
			{op: ib.OpReadRequest, announced: 0xffff_ffff, unknownKey: true},
		} {
			p.expectLastRefused([]segment{s})
		}
		for _, s := range []segment{
			{op: ib.OpWriteFirst, announced: 0x8000_0000, payload: 1024, unknownKey: true},
			{op: ib.OpReadRequest, announced: 0x8000_0000, unknownKey: true},
		} {
			c := p.connect(Setup{})
			c.exchange(s.packet(c, 0), c.deviceNak(0, ib.NakRemoteAccess, 0))
		}
	}),
}, {
	ID: "rc/len/write-of-another-sum-refused", Cite: ibta("", "rc/len/5"),
	Title:   "A WRITE with more or less payload than the RETH announced is refused as invalid",
	Sends:   "with immediate data and without: ONLY packets of 4 bytes that announce 8, and of 8 that announce 4; LAST packets that end before and after the announced length, and a MIDDLE that does",
	Expects: "a NAK for an invalid request with the PSN of the packet that does not fit",
	Defects: []string{"WriteSumUnchecked", "ShortWriteImmAccepted"}, Run: expectEachRefused(
		[]segment{{op: ib.OpWriteOnly, announced: 8, payload: 4}},
		[]segment{{op: ib.OpWriteOnly, announced: 4, payload: 8}},
		[]segment{{op: ib.OpWriteOnlyImm, announced: 8, payload: 4}},
		[]segment{{op: ib.OpWriteOnlyImm, announced: 4, payload: 8}},
		[]segment{{op: ib.OpWriteFirst, announced: 1100, payload: 1024}, {op: ib.OpWriteLast, payload: 72}},
		[]segment{{op: ib.OpWriteFirst, announced: 1100, payload: 1024}, {op: ib.OpWriteLast, payload: 80}},
		[]segment{{op: ib.OpWriteFirst, announced: 1100, payload: 1024}, {op: ib.OpWriteLastImm, payload: 72}},
		[]segment{{op: ib.OpWriteFirst, announced: 1100, payload: 1024}, {op: ib.OpWriteLastImm, payload: 80}},
		[]segment{
			{op: ib.OpWriteFirst, announced: 3000, payload: 1024},
			{op: ib.OpWriteMiddle, payload: 1024},
			{op: ib.OpWriteMiddle, payload: 1024},
		},
	),
}, {
	ID: "rc/len/write-first-announcing-less-refused", Cite: ibta("", "rc/len/5"),
	Title:   "A WRITE whose RETH announces less than the FIRST packet carries, or only that packet, is refused as invalid",
	Sends:   "where the path MTU is 1024: a FIRST packet of 1024 bytes that announces 1000; messages that are as long as announced after the FIRST, one or two MIDDLEs, with a LAST after that",
	Expects: "a NAK for an invalid request, and no byte in memory; for the others, to the packet that leaves nothing or, from devices that count when the message ends, to its LAST, of which no byte is in memory",
	Defects: []string{"WriteSumUnchecked"}, Run: OnPort(func(p *Port) {
		p.expectLastRefused([]segment{{op: ib.OpWriteFirst, announced: 1000, payload: 1024}})
		for full := range 3 {
			p.connect(Setup{}).expectFilledWriteRefused(full)
		}
	}),
}, {
	ID: "rc/len/write-announcing-nothing-refused", Cite: ibta("", "rc/len/5"),
	// A zero-length WRITE needs no valid key, therefore a device may have no region
	// when the bytes arrive. Linux 6.1 crashes.
	Labels:  []string{conformance.Dangerous},
	Title:   "A WRITE with payload whose RETH announces no bytes is refused as invalid",
	Sends:   "a FIRST packet of 1024 bytes, where that is the path MTU, and an ONLY packet of 16, which announce 0",
	Expects: "a NAK for an invalid request, and no byte in memory",
	Defects: []string{"WriteSumUnchecked"}, Run: expectEachRefused(
		[]segment{{op: ib.OpWriteFirst, announced: 0, payload: 1024}},
		[]segment{{op: ib.OpWriteOnly, announced: 0, payload: 16}},
	),
}, {
	ID: "rc/len/pad-of-a-write-agrees-with-its-length", Cite: ibta("", "rc/len/6"),
	Title:   "A WRITE whose padding does not agree with the announced length is refused",
	Sends:   "WRITEs of 4 bytes that announce 4 with PadCnt 1 to 3, or announce 3 with PadCnt 0",
	Expects: "a NAK for an invalid request, and no byte in memory",
	Defects: []string{"WriteSumUnchecked"}, Run: expectEachRefused(
		[]segment{{op: ib.OpWriteOnly, announced: 4, payload: 4, padCnt: 1}},
		[]segment{{op: ib.OpWriteOnly, announced: 4, payload: 4, padCnt: 2}},
		[]segment{{op: ib.OpWriteOnly, announced: 4, payload: 4, padCnt: 3}},
		[]segment{{op: ib.OpWriteOnly, announced: 3, payload: 4}},
	),
}, {
	ID: "rc/mtu/path-beyond-the-port-refused", Cite: ibta("11.2.4.2", "rc/mtu/1"), Setup: conformance.Setup{MTU: 1500},
	Title:   "A path MTU above that of the port is refused",
	Sends:   "nothing: the application sets every path MTU, on a link with an MTU of 1500 bytes",
	Expects: "path MTUs above that of the port are refused, and others are not",
	Defects: []string{"PathMTUUnchecked"}, Run: OnPort(func(p *Port) {
		attr := p.QueryPort()
		p.Check(attr.ActiveMTU.Bytes() <= p.MTU, fmt.Sprintf("an active MTU that fits into packets of %d bytes", p.MTU), "%v", attr.ActiveMTU)
		for mtu := verbs.MTU256; mtu <= verbs.MTU4096; mtu++ {
			c := p.connect(Setup{state: verbs.QPStateInit})
			c.Attr.PathMTU, c.Attr.State = mtu, verbs.QPStateRTR
			err := c.QP.Modify(c.Attr, verbs.QPAttrState|rig.PathAttrs|rig.ResponderAttrs)
			if mtu <= attr.ActiveMTU {
				p.Must(fmt.Sprintf("a path MTU of %v, where the port has %v", mtu, attr.ActiveMTU), err)
				continue
			}
			p.MustFail(fmt.Sprintf("a path MTU of %v, where the port has %v,", mtu, attr.ActiveMTU), err, nil)
			c.ExpectState(c.QP, verbs.QPStateInit)
		}
	}),
}, {
	ID: "rc/mtu/messages-are-cut-at-the-path-mtu", Cite: ibta("", "rc/mtu/2"),
	Title:   "Messages are segmented at the path MTU: every packet but the last is full",
	Sends:   "ACKs for SENDs and WRITEs around the bounds of one and two packets, and of many, at path MTUs of 256, 1024 and the port's",
	Expects: "packets of the path MTU, and the rest in the last",
	Defects: []string{"SegmentsShort"}, Run: OnPort(func(p *Port) {
		for _, mtu := range []verbs.MTU{verbs.MTU256, verbs.MTU1024, p.QueryPort().ActiveMTU} {
			c := p.connect(Setup{Modify: func(a *verbs.QPAttr) { a.PathMTU = mtu }})
			c.expectSegmentation(mtu.Bytes())
		}
	}),
}})

// segment is a request packet whose lengths need not be correct.
type segment struct {
	op ib.Opcode
	// announced is the length in the RETH, if the opcode has one.
	announced, payload int
	padCnt             uint8 // PadCnt, if it is not 0; else it is correct
	unknownKey         bool  // the RETH has an unknown R_Key
}

// packet returns the segment as the peer's k-th packet.
func (s segment) packet(c *Conn, k int) ib.Packet {
	pkt := ib.Op(s.op).WithPSN(c.PeerPSN(k)).WithPayload(Data(s.payload)).AckReq()
	info, _ := s.op.Info()
	if info.Has(ib.HdrRETH) {
		pkt = pkt.WithRETH(c.RETH(0, s.announced))
	}
	if s.unknownKey {
		pkt = pkt.WithRETH(c.unknownKeyRETH(s.announced))
	}
	if s.padCnt != 0 {
		pkt = pkt.WithPadCnt(s.padCnt)
	}
	return pkt
}

// expectLastRefused sends packets on a new connection, and fails the case unless the last is
// answered by a NAK for an invalid request, moves the queue pair to ERR and changes no memory, and
// no message is received.
func (p *Port) expectLastRefused(segments []segment) {
	c := p.connect(Setup{Receives: 1, recvLen: 4096})
	last := len(segments) - 1
	refused := segments[last].packet(c, last)
	for k := range last {
		c.Send(segments[k].packet(c, k).NoAckReq())
	}
	if last > 0 {
		c.Drain(sentSoFar) // earlier packets may be acknowledged
		c.TargetMem.Snapshot()
		c.LocalMem.Snapshot()
	}
	c.exchange(refused, c.deviceNak(last, ib.NakInvalidRequest, 0))
	c.AwaitState(c.QP, verbs.QPStateErr)
	c.ExpectUntouched(c.TargetMem, c.LocalMem)
	c.ExpectNoSuccess()
}

// expectFilledWriteRefused sends the FIRST packet of a WRITE and this number of MIDDLE packets, which
// together are as long as the RETH announces, and then a LAST. The device must refuse the last
// packet before the LAST, or the LAST.
func (c *Conn) expectFilledWriteRefused(middles int) {
	n := (1 + middles) * 1024
	next := segment{op: ib.OpWriteFirst, announced: n, payload: 1024}
	for k := range middles {
		c.exchange(next.packet(c, k), c.deviceAck(k, 0))
		next = segment{op: ib.OpWriteMiddle, payload: 1024}
	}
	c.Send(next.packet(c, middles))
	got := c.expectAnyPacket("a response to the packet that completes the announced length")
	if c.deviceAck(middles, 0).Matches(got.Packet) {
		c.exchange(segment{op: ib.OpWriteLast, payload: 16}.packet(c, middles+1), c.deviceNak(middles+1, ib.NakInvalidRequest, 0))
	} else {
		c.checkPacket(c.deviceNak(middles, ib.NakInvalidRequest, 0), got)
		n -= 1024
	}
	c.ExpectUnchangedOutside(c.TargetMem, 0, n)
	c.AwaitState(c.QP, verbs.QPStateErr)
}

// expectEachRefused makes the body of a case that calls expectLastRefused for each message.
func expectEachRefused(messages ...[]segment) func(*conformance.Bench) error {
	return OnPort(func(p *Port) {
		for _, segments := range messages {
			p.expectLastRefused(segments)
		}
	})
}

// expectSegmentation has the device send SENDs and WRITEs of many lengths, and fails the case
// unless they are segmented at the path MTU.
func (c *Conn) expectSegmentation(mtu int) {
	psn, msn := 0, uint32(0)
	for _, n := range []int{0, mtu - 1, mtu, mtu + 1, 2 * mtu, 2*mtu + 3, min(40*mtu, memLen) - 5} {
		for _, wr := range []verbs.SendWR{c.SendWR(1, n), c.WriteWR(1, n)} {
			psn, msn = psn+len(c.request(psn, wr)), msn+1
			c.completeWith(c.peerAck(psn-1, msn), 1)
		}
	}
}
