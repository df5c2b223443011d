package dgiwarp

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"slices"

	"github.com/fabrictest/fabrictest/conformance"
	"github.com/fabrictest/fabrictest/conformance/packet"
	"github.com/fabrictest/fabrictest/conformance/packet/iwarp"
	"github.com/fabrictest/fabrictest/verbs"
)

var verbsCases = []conformance.Case{{
	ID: "dg/verbs/reliable-queue-pairs-are-of-type-ud", Cite: cite("8", "dg/verbs/1"), Setup: setupRD,
	Title:   "An RD queue pair has type UD, and its Sends complete when they are acknowledged",
	Sends:   "a Challenge, and a delayed Ack",
	Expects: "the type UD, RD packets, no completion before the Ack",
	Defects: []string{"RDCompletesAtOnce"}, Run: onPeer(func(p *peer) {
		p.Check(p.qp.Type() == verbs.QPTypeUD, "a queue pair of type UD", "%v", p.qp.Type())
		p.acceptFlowOf(p.sendWR(1, 0, 8))
		p.expectNoCompletionYet()
		p.ackAndComplete(1)
	}),
}, {
	ID: "dg/verbs/address-area", Cite: cite("8", "dg/verbs/2"), Setup: ipv6,
	Title:   "The first 40 octets of a receive are the IPv6 header of the packet, with the UDP source port in octets 2 and 3",
	Sends:   "Sends from several ports",
	Expects: "version, protocol, addresses, length and port",
	Defects: []string{"SourceLost", "HopLimitOfIPv6Constant", "AreaLengthWithoutUDP"}, Run: onPeer(func(p *peer) { p.checkGRHAreas(0) }),
}, {
	ID: "dg/verbs/address-area-of-ipv4", Cite: cite("8", "dg/verbs/2"), Setup: ipv4,
	Title:   "The last 20 of the first 40 octets of a receive are the IPv4 header of the packet, and octets 2 and 3 the UDP source port",
	Sends:   "Sends from several ports",
	Expects: "version, protocol, addresses, length and port",
	Defects: []string{"SourceLost", "AreaLengthWithoutUDP"}, Run: onPeer(func(p *peer) { p.checkGRHAreas(20) }),
}, {
	ID: "dg/verbs/address-area-of-a-long-message", Cite: cite("8", "dg/verbs/2"), Setup: ipv6,
	Title:   "The length in the IPv6 header of the address area is at most 65,515 octets",
	Sends:   "Sends of 65,507, 65,508 and 65,536 octets, in segments",
	Expects: "the length of the first with its UDP header in the address areas of all",
	Defects: []string{"AreaLengthWraps"}, Run: onSetup(setup{receives: 3, recvLen: maxSend}, (*peer).checkLongGRHAreas),
}, {
	ID: "dg/verbs/address-area-of-a-long-message-over-ipv4", Cite: cite("8", "dg/verbs/2"), Setup: ipv4,
	Title:   "The length in the IPv4 header of the address area is at most 65,535 octets",
	Sends:   "Sends of 65,507, 65,508 and 65,536 octets, in segments",
	Expects: "the length of the first with its headers in the address areas of all",
	Defects: []string{"AreaLengthWraps"}, Run: onSetup(setup{receives: 3, recvLen: maxSend}, (*peer).checkLongGRHAreas),
}, {
	ID: "dg/verbs/address-area-with-checksum-zero", Cite: cite("8", "dg/verbs/2"), Setup: ipv4,
	Title:   "The checksum of the IPv4 header in the address area is 0 if the other fields sum up to 0xffff",
	Sends:   "a Send, and one with the traffic class and the hop limit that make the checksum 0",
	Expects: "the second message, with the checksum 0 in its address area",
	Defects: []string{"ChecksumMinusZero"}, Run: onSetup(setup{receives: 2, recvLen: 1024}, (*peer).checkZeroChecksum),
}, {
	ID: "dg/verbs/address-area-on-rd", Cite: cite("8", "dg/verbs/2"), Setup: setupRD,
	Title:   "The length in the address area of a receive on RD is that of a UDP datagram with the whole message",
	Sends:   "Sends of 0, 1 and 200 octets, one of two segments, and Immediate Data",
	Expects: "the length of each message in its address area",
	Defects: []string{"AreaLengthZero"}, Run: onFlow(setup{receives: 5, recvLen: 512}, func(p *peer) {
		p.expectDelivered(iwarp.Send(1, nil))
		p.expectDelivered(iwarp.Send(2, data(1)))
		p.expectDelivered(iwarp.Send(3, data(200)))
		p.expectDelivered(iwarp.Send(4, data(100)).Last(false))
		p.expectDelivered(iwarp.Send(4, data(200)).MO(100))
		p.expectDelivered(iwarp.Immediate(5, immediateData))
		for i, n := range []int{0, 1, 200, 300, 0} {
			p.ExpectRecv(uint64(i+1), grhAreaLen+n)
			area := p.localMem.Buf[i*p.recvLen:][:grhAreaLen]
			header := area
			if area[0]>>4 != 6 {
				header = area[grhAreaLen-20:] // of IPv4
			}
			p.checkIPLength(header, n)
		}
	}),
}, {
	ID: "dg/verbs/address-area-in-two-buffers", Cite: cite("8", "dg/verbs/2"), Setup: setupRD,
	Title:   "The address area of a receive may end in any of its buffers",
	Sends:   "Sends to receives of two buffers, of which the first is of 1, 20, 39, 40 and 41 octets",
	Expects: "the address area and then the message, in the two buffers",
	Defects: []string{"AreaLosesAnOctet"}, Run: onFlow(setup{}, func(p *peer) {
		for i, n := range []int{1, 20, 39, 40, 41} {
			first, second := 2*i*p.recvLen, (2*i+1)*p.recvLen
			p.PostRecv(p.qp, uint64(i+1), p.localMem.SGE(first, n), p.localMem.SGE(second, p.recvLen-n))
			p.expectDelivered(iwarp.Send(uint32(i+1), data(16)))
			p.ExpectRecv(uint64(i+1), grhAreaLen+16)
			got := slices.Concat(p.localMem.Buf[first:][:n], p.localMem.Buf[second:][:p.recvLen-n])
			port := binary.BigEndian.Uint16(got[2:])
			p.Check(port == peerPort, fmt.Sprintf("port %d in octets 2 and 3", peerPort), "%d", port)
			p.Check(bytes.Equal(got[grhAreaLen:][:16], data(16)), "the message after the address area", "% x", got)
		}
	}),
}, {
	ID: "dg/verbs/address-area-of-a-waiting-message", Cite: cite("8", "dg/verbs/2"), Setup: setupRD, Level: conformance.Should,
	Title:   "The address area of a Send that waited for a receive is not that of a later packet from the same host",
	Sends:   "two Sends in the wrong order to a queue pair with one receive; a Write of another queue pair of the same host with another traffic class",
	Expects: "the traffic class of the Sends in the address area of the second, which gets its receive then",
	Defects: []string{"AreaOfLastPacket"}, Run: onSetup(setup{receives: 1}, func(p *peer) {
		p.route.tclass = 0x20
		p.openFlow(zeroLengthWrite())
		p.storeSend()
		other := p.peer(len(p.Peers)) // at the same address
		other.route.tclass = 0x48
		other.openFlow(zeroLengthWrite())
		p.PostRecv(p.qp, 2, p.localMem.SGE(p.recvLen, p.recvLen))
		p.expectRecv(2, data(16))
		area := p.localMem.Buf[p.recvLen:][:grhAreaLen]
		got := uint8(binary.BigEndian.Uint16(area) >> 4)
		if area[0]>>4 != 6 {
			got = area[21] // of IPv4
		}
		p.Check(p.UDPSockets || got == 0x20, "the traffic class 0x20", "%#x", got)
	}),
}, {
	ID: "dg/verbs/write-with-immediate-on-rd", Cite: cite("8", "dg/verbs/3"), Setup: setupRD,
	Title:   "RDMA Write with immediate data is a Write and an Immediate Data message on RD",
	Sends:   "Acks; the application posts one of 32 octets, and a Send",
	Expects: "a Write, immediate data, the Send; completions after the Acks",
	Defects: []string{"RecordIsWrite"}, Run: onFlow(setup{}, func(p *peer) {
		p.establishDeviceFlow()
		p.PostSend(p.qp, p.writeRecordWR(1, 32), p.sendWR(2, 0, 8))
		p.checkPacket(iwarp.AnyPacket().With(iwarp.Write(peerSTag, peerTO, p.localMem.Buf[:32])), p.expectData(1))
		a := p.expectData(2)
		p.checkPacket(iwarp.AnyPacket().With(iwarp.Op(iwarp.OpImmediate).MSN(2)), a)
		value := *a.Segment.Immediate.Value
		p.Check(value == immediateData || value == immediateData<<32, fmt.Sprintf("immediate data %#x", immediateData), "%#x", value)
		p.checkPacket(iwarp.AnyPacket().With(iwarp.Send(3, p.localMem.Buf[:8])), p.expectData(3))
		p.send(p.ack(2)) // acknowledges the Write only
		p.expectNoCompletionYet()
		p.ackAndComplete(1, 2)
	}),
}, {
	ID: "dg/verbs/failure-stays-with-its-peer", Cite: cite("8", "dg/verbs/4"), Setup: setupRD,
	Title:   "When a flow fails, its requests and those after them to the same peer fail; the queue pair and the flows to others still work",
	Sends:   "a Refusal of one of two flows with several requests; Acks for the other",
	Expects: "failures of all requests to the one peer, successes of those to the other, then a new flow to the first",
	Defects: []string{"FailureStopsQP"}, Run: onPeer(func(p *peer) {
		other := p.peer(1)
		p.establishDeviceFlow()
		other.establishDeviceFlow()
		p.PostSend(p.qp, p.sendWR(1, 0, 8), p.sendWR(2, 0, 8), other.sendWR(3, 0, 8))
		p.expectData(1)
		p.refuseFlow(1)
		p.expectFailure(2)
		p.syncDevice()
		for _, a := range p.drainArrived() {
			if iwarp.Val(a.Header.DestQP) == other.qpn && a.Data != nil {
				other.trackData(a)
			}
		}
		other.ackAndComplete(3)
		p.ExpectState(p.qp, verbs.QPStateRTS)
		p.ExpectNoEvent()
		p.syncDevice()
		p.drainArrived() // retransmissions that crossed with the Ack
		p.establishDeviceFlow()
		p.openFlowTo(1, iwarp.Send(1, data(8)))
	}),
}, {
	ID: "dg/verbs/flow-label-is-the-port", Cite: cite("8", "dg/verbs/6"),
	Title:   "The flow label of an address is the destination UDP port, and 0 means the sender's port",
	Sends:   "nothing; the device sends to ports 1, 1024, 65535 and 0",
	Expects: "packets to these ports, and to 65041 for 0",
	Defects: []string{"FlowLabelIgnored"}, Run: onPeer(func(p *peer) {
		for i, port := range []uint16{1, 1024, 65535, 0} {
			p.ah = p.addressHandle(ahAttr(p.Peers[0], uint32(port)))
			want := port
			if port == 0 {
				want = devicePort
			}
			p.route = p.route.fromPort(want)
			p.expectSent(p.sendWR(uint64(i), 0, 8), iwarp.UD(iwarp.Op(iwarp.OpSend)))
		}
	}),
}, {
	ID: "dg/verbs/drained-when-acknowledged", Cite: cite("8", "dg/verbs/8"), Setup: setupRD,
	Title:   "An RD queue pair in SQD reports SQ_DRAINED when the requests that it has begun are acknowledged, and begins no other",
	Sends:   "a delayed Ack of a Send; the application moves the queue pair to SQD before it and posts another Send",
	Expects: "no event before the Ack, then SQ_DRAINED; the other Send in RTS",
	Defects: []string{"DrainedBeforeAcks", "SQDBeginsRequests"}, Run: onFlow(setup{}, func(p *peer) {
		p.establishDeviceFlow()
		p.PostSend(p.qp, p.sendWR(1, 0, 8))
		p.expectData(1)
		p.beginDrain()
		p.PostSend(p.qp, p.sendWR(2, 0, 8))
		p.syncDevice()
		p.ExpectNoEvent()
		p.ackAndComplete(1)
		p.expectDrained()
		p.Must("the Q_Key again", p.qp.Modify(verbs.QPAttr{QKey: p.deviceQP.key}, verbs.QPAttrQKey))
		p.ExpectNoEvent()
		p.syncDevice()
		for _, a := range p.drainArrived() {
			p.Check(a.Data == nil || *a.Data.Seq == 1, "no new data packet in SQD", "%v", a.Packet)
		}
		p.ToState(p.qp, verbs.QPStateRTS)
		p.expectData(2)
		p.ackAndComplete(2)
	}),
}, {
	ID: "dg/verbs/reset-again-and-again", Cite: cite("8", "dg/verbs/9"), Setup: setupNarrowRD,
	Title:   "Requests that were under way when an RD queue pair was reset hold no room for later ones, however often that happens",
	Sends:   "no answer to the start of a flow with a Write of 1 MiB, 300 times, after each of which the application resets the queue pair; then Acks",
	Expects: "a start each time, and a completion at last",
	Defects: []string{"ResetKeepsSegments"}, Run: onSetup(setup{memLen: 1 << 20}, func(p *peer) {
		for range 300 { // with a window of packets each, more than the 65,536 of a device
			p.PostSend(p.qp, p.wr(1, verbs.OpRDMAWrite, 0, 1<<20))
			p.recvStart()
			p.ToState(p.qp, verbs.QPStateReset)
			p.toRTS()
			p.drainArrived() // retransmissions
		}
		p.establishDeviceFlow()
		p.ExpectNoCompletion()
	}),
}, {
	ID: "dg/verbs/address-handle-sets-the-ip-header", Cite: cite("8", "dg/verbs/7"), Setup: conformance.Setup{TwoAddresses: true},
	Title:   "Traffic class, hop limit and GID index of an address handle are those of the packets",
	Sends:   "nothing; the device sends with several address handles",
	Expects: "UD packets with the traffic class without ECN, the hop limit and the source address",
	Defects: []string{"HandleFieldsIgnored"}, Run: onPeer(func(p *peer) {
		p.withHandles(func(int) { p.expectSent(p.sendWR(1, 0, 8), iwarp.UD(iwarp.Op(iwarp.OpSend))) })
	}),
}, {
	ID: "dg/verbs/address-handle-sets-the-ip-header-of-rd", Cite: cite("8", "dg/verbs/7"), Setup: conformance.Setup{TwoAddresses: true, Reliable: true},
	Title:   "Traffic class, hop limit and GID index of an address handle are those of the data packets of RD",
	Sends:   "Acks; the device sends with several address handles, also to the same queue pair",
	Expects: "RD packets with the traffic class, the hop limit and the source address",
	Defects: []string{"HandleFieldsIgnored", "FirstHandleStays"}, Run: onPeer(func(p *peer) {
		p.withHandles(func(i int) {
			if i == 0 {
				p.establishDeviceFlow()
			} else {
				p.PostSend(p.qp, p.sendWR(2, 0, 8))
				p.expectData(uint32(i))
				p.ackAndComplete(2)
			}
			to := p.peer(i * len(p.Peers)) // another queue pair at the same address
			to.qpn++
			to.ah = p.ah
			to.acceptFlowOf(to.sendWR(1, 0, 8))
			to.ackAndComplete(1)
		})
	}),
}, {
	ID: "dg/verbs/flow-label-of-more-than-16-bits", Cite: cite("8", "dg/verbs/6"),
	Title:   "An address handle with a flow label above 65535 is refused",
	Sends:   "nothing; the application creates address handles with the flow labels 0x10000 and 0xfffff, and sends to them",
	Expects: "a refusal of the address handle, or of the Send, and nothing on the wire",
	Defects: []string{"FlowLabelIgnored"}, Run: onPeer(func(p *peer) {
		for _, label := range []uint32{0x10000, 0xfffff, 0x10000 | peerPort} {
			ah, err := p.PD.CreateAH(ahAttr(p.Peers[0], label))
			if err == nil {
				p.ah = ah
				_, err = p.qp.PostSend([]verbs.SendWR{p.sendWR(1, 0, 8)})
			}
			p.MustFail(fmt.Sprintf("the flow label %#x", label), err, nil)
		}
		p.expectIdle()
	}),
}}

// checkGRHAreas sends from three UDP ports, and checks the GRH areas of the receives: the first 40
// octets of a receive buffer, where UD has the GRH. Each must have the packet's IP header, whose
// offset is 0 for IPv6 and 20 for IPv4, and the UDP source port in octets 2 and 3, which in an IPv6
// header are the lower bits of the flow label.
func (p *peer) checkGRHAreas(headerOffset int) {
	for i, port := range []uint16{peerPort, 1025, 65535} {
		from := p.peer(i) // another scripted peer of the same queue pair
		from.route = from.route.fromPort(port)
		from.route.tclass, from.route.hopLimit = []uint8{0x01, 0x4d, 0x99}[i], []uint8{255, 128, 1}[i]
		from.sendSegments(iwarp.Send(1, data(8)))
		p.expectRecv(uint64(i+1), data(8))
		area := p.localMem.Buf[i*p.recvLen:][:grhAreaLen]
		got := binary.BigEndian.Uint16(area[2:])
		p.Check(got == port, fmt.Sprintf("port %d in octets 2 and 3", port), "%d: % x", got, area)
		header := area[headerOffset:]
		src, dst, version, protocol := header[8:24], header[24:40], byte(6), header[6]
		if headerOffset != 0 {
			src, dst, version, protocol = header[12:16], header[16:20], 4, header[9]
		}
		if !p.UDPSockets { // UDP sockets do not pass on all fields of the header
			p.checkIPHeader(header, from.route)
		}
		p.checkIPLength(header, len(data(8)))
		p.Check(header[0]>>4 == version && protocol == packet.ProtocolUDP, fmt.Sprintf("a header of IPv%d and UDP", version), "% x", header)
		p.Check(bytes.Equal(src, from.route.from.Addr().AsSlice()) && bytes.Equal(dst, from.route.to.Addr().AsSlice()),
			fmt.Sprintf("from %v to %v", from.route.from.Addr(), from.route.to.Addr()), "% x", header)
	}
}

// checkLongGRHAreas sends the longest message whose length the IP header in a GRH area can have, and
// two longer ones, to the first receives of the queue pair, and checks the length in their GRH areas.
func (p *peer) checkLongGRHAreas() {
	for i, n := range []int{65507, 65508, maxSend} {
		p.sendSegments(sendSegmentsOf(uint32(i+1), data(n), 1024)...)
		p.expectRecv(uint64(i+1), data(n))
		area := p.localMem.Buf[i*p.recvLen:][:grhAreaLen]
		if p.Local[0].Is4() {
			area = area[20:]
		}
		p.checkIPLength(area, n)
	}
}

// checkZeroChecksum sends a message, and computes from the IPv4 header in its GRH area which traffic
// class and hop limit make the checksum of that header 0. It sends another message with them, and
// checks the checksum in its GRH area. It checks nothing on a device that does not see these fields.
func (p *peer) checkZeroChecksum() {
	header := func(id uint64, n int) []byte {
		p.sendSegments(iwarp.Send(uint32(id), data(n)))
		p.expectRecv(id, data(n))
		return p.localMem.Buf[int(id-1)*p.recvLen+20:][:20]
	}
	if p.UDPSockets {
		return
	}
	n := 8
	h := slices.Clone(header(1, n))
	h[1], h[8], h[10], h[11] = 0, 0, 0, 0 // without traffic class, hop limit and checksum
	rest := 0xffff - sumOfHeader(h)
	if rest>>8 == 0 { // no packet with hop limit 0 arrives: a longer message has another sum
		const more = 512
		n, rest = n+more, 0xffff-more+rest
	}
	p.route.tclass, p.route.hopLimit = uint8(rest), uint8(rest>>8)
	h = header(2, n)
	p.checkIPHeader(h, p.route)
	p.Check(h[10] == 0 && h[11] == 0, "the checksum 0", "% x", h)
}

// sumOfHeader returns the one's complement sum of an IPv4 header, of which the checksum is the
// complement.
func sumOfHeader(h []byte) uint32 {
	var sum uint32
	for i := 0; i < len(h); i += 2 {
		sum += uint32(binary.BigEndian.Uint16(h[i:]))
	}
	return sum>>16 + sum&0xffff
}

// checkIPLength checks the length field of the IP header in the GRH area of a receive: that of a UDP
// datagram with the message.
func (p *peer) checkIPLength(header []byte, message int) {
	const udpHeader, ipv4Header, longest = 8, 20, 1<<16 - 1 - 20
	got := int(binary.BigEndian.Uint16(header[4:])) // of IPv6, without the header
	if header[0]>>4 == 4 {
		got = int(binary.BigEndian.Uint16(header[2:])) - ipv4Header
	}
	want := min(message+udpHeader, longest)
	p.Check(got == want, fmt.Sprintf("an IP header for a payload of %d octets", want), "%d", got)
}

// checkIPHeader checks the traffic class and the hop limit of the IP header in the GRH area of a
// receive, and for IPv4 also the length of the header and its checksum.
func (p *peer) checkIPHeader(header []byte, from route) {
	class, hops := uint8(binary.BigEndian.Uint16(header)>>4), header[7]
	if header[0]>>4 == 4 {
		class, hops = header[1], header[8]
		p.Check(header[0]&15 == 5 && sumOfHeader(header[:20]) == 0xffff, "an IPv4 header of 20 octets with its checksum", "% x", header)
	}
	p.Check(class == from.tclass && hops == from.hopLimit, fmt.Sprintf("traffic class %#x and hop limit %d", from.tclass, from.hopLimit), "%#x and %d", class, hops)
}

// beginDrain moves the queue pair to SQD, and requests SQ_DRAINED.
func (p *peer) beginDrain() {
	attr := verbs.QPAttr{State: verbs.QPStateSQD, EnSQDAsyncNotify: true}
	p.Must("RTS to SQD", p.qp.Modify(attr, verbs.QPAttrState|verbs.QPAttrEnSQDAsyncNotify))
}

// expectDrained expects SQ_DRAINED of the queue pair.
func (p *peer) expectDrained() {
	e := p.ExpectEvent(verbs.EventSQDrained)
	p.Check(e.QP == p.qp, "SQ_DRAINED of the queue pair", "%v", e.QP)
}

// withHandles calls send, which sends a packet, with address handles of different traffic classes,
// hop limits and GID indexes, and checks the IP headers of all packets that the device then sends.
// With hop limit 0 in the handle, the device may choose the hop limit of the packet.
func (p *peer) withHandles(send func(i int)) {
	for i, g := range []verbs.GRH{{}, {TrafficClass: 0xfc, HopLimit: 1}, {TrafficClass: 0x2b, HopLimit: 255, SGIDIndex: 1}} {
		a := ahAttr(p.Peers[0], peerPort)
		a.GRH.TrafficClass, a.GRH.HopLimit, a.GRH.SGIDIndex = g.TrafficClass, g.HopLimit, g.SGIDIndex
		p.ah = p.addressHandle(a)
		p.checkIP = func(ip packet.IP) {
			class, hops := iwarp.Val(ip.TClass), iwarp.Val(ip.HopLimit)
			p.Check(class&^ecnMask == g.TrafficClass&^ecnMask && ip.Src == p.Local[g.SGIDIndex] && (g.HopLimit == 0 || hops == g.HopLimit),
				fmt.Sprintf("traffic class %#x, hop limit %d, from %v", g.TrafficClass&^ecnMask, g.HopLimit, p.Local[g.SGIDIndex]), "%#x, %d, from %v", class, hops, ip.Src)
		}
		send(i)
	}
}
