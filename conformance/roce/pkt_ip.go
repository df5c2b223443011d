package roce

import (
	"errors"
	"fmt"

	"github.com/fabrictest/fabrictest/conformance"
	"github.com/fabrictest/fabrictest/conformance/packet"
	"github.com/fabrictest/fabrictest/conformance/packet/ib"
	"github.com/fabrictest/fabrictest/conformance/rig"
	"github.com/fabrictest/fabrictest/verbs"
)

var ipCases = overRC.Cases([]conformance.Case{{
	ID: "pkt/ip/ipv4-carries-a-connection", Cite: annexA17("CA17-1", "pkt/ip/1"), Setup: ipv4,
	Title:   "A connection over IPv4 transfers data in both directions",
	Sends:   "a SEND, a WRITE and a READ, and responses to those of the device",
	Expects: "all six done, in packets of IPv4 between the two addresses",
	Defects: []string{"ICRCWrong"}, Run: onRC(exchangeBothWays),
}, {
	ID: "pkt/ip/ipv6-carries-a-connection", Cite: annexA17("CA17-1", "pkt/ip/1"), Setup: ipv6,
	Title:   "A connection over IPv6 transfers data in both directions",
	Sends:   "a SEND, a WRITE and a READ, and responses to those of the device",
	Expects: "all six done, in packets of IPv6 between the two addresses",
	Defects: []string{"IPv6Dead"}, Run: onRC(exchangeBothWays),
}, {
	ID: "pkt/ip/packet-with-options-dropped", Cite: annexA17("CA17-3, CA17-24", "pkt/ip/2"), Setup: ipv4,
	Title:   "A packet with IPv4 options is dropped, although its ICRC is correct",
	Sends:   "a SEND after four options that do nothing, which the ICRC covers",
	Expects: "no response, no effect, and the expected PSN unchanged",
	Defects: []string{"ICRCIgnored"}, Run: acceptsAfter(func(c *Conn) {
		send := c.peerSend(0, 16)
		send.IP.Options = ipOptionNOPs
		c.expectDropped(send)
	}),
}, {
	ID: "pkt/ip/packet-that-got-options-on-its-way-dropped", Cite: annexA17("CA17-3, CA17-24", "pkt/ip/2"), Setup: ipv4,
	Title:   "A packet that got IPv4 options in flight is dropped",
	Sends:   "a SEND with an ICRC for the packet without options, after four options that do nothing",
	Expects: "no response, no effect, and the expected PSN unchanged",
	Defects: []string{"ICRCIgnored"}, Run: acceptsAfter(func(c *Conn) {
		c.expectDropped(c.peerSend(0, 16).InFlight(func(p *ib.Packet) { p.IP.Options = ipOptionNOPs }))
	}),
}, {
	ID: "pkt/ip/dscp-of-requests-and-answers-is-the-traffic-class", Cite: annexA17("CA17-4, CA17-13", "pkt/ip/3"),
	Title:   "The DSCP of every packet, responses included, is that of the connection's traffic class",
	Sends:   "requests of DSCP 0 that are acknowledged, answered and refused, and responses to requests of the device",
	Expects: "DSCP 26 in every packet",
	Defects: []string{"AnswersNoDSCP"}, Run: onConn(Setup{Receives: 1, Modify: func(a *verbs.QPAttr) { a.AH.GRH.TrafficClass = 0x68 }}, func(c *Conn) {
		for _, pkt := range c.variedPackets() {
			tc := *pkt.IP.TClass
			c.Check(tc>>2 == 0x68>>2, fmt.Sprintf("%v with DSCP 26", pkt), "DSCP %d", tc>>2)
		}
	}),
}, {
	ID: "pkt/ip/ecn-bits-not-taken-from-the-traffic-class", Cite: annexA17("CA17-5, CA17-14", "pkt/ip/4"),
	Title:   "The ECN bits are not those of the traffic class: 00 without congestion management, never 11",
	Sends:   "requests, and responses to requests of the device, on four connections whose traffic classes end in 00, 01, 10 and 11",
	Expects: "the same ECN bits on all four: 00, or an ECN-capable transport if the device manages congestion",
	Defects: []string{"ECNFromTClass"}, Run: OnPort(func(p *Port) {
		ecn := make(map[ib.Opcode]uint8)
		for low := range uint8(4) {
			c := p.connect(Setup{Receives: 1, Modify: func(a *verbs.QPAttr) { a.AH.GRH.TrafficClass = 0x68 | low }})
			for _, pkt := range c.variedPackets() {
				bits := *pkt.IP.TClass & 3
				before, seen := ecn[pkt.Opcode()] // with another traffic class
				ecn[pkt.Opcode()] = bits
				c.Check(bits != 3, fmt.Sprintf("%v without a CE mark", pkt), "ECN 11")
				if !c.Caps.Has(verbs.CapCongestion) {
					c.Check(bits == 0, fmt.Sprintf("%v with ECN 00", pkt), "%02b", bits)
				}
				if seen {
					c.Check(bits == before, fmt.Sprintf("%v with ECN %02b, as with other traffic classes", pkt, before), "%02b", bits)
				}
			}
		}
	}),
}, {
	ID: "pkt/ip/ipv4-lengths-end-at-the-icrc", Cite: annexA17("CA17-6, CA17-21", "pkt/ip/5"), Setup: ipv4, Labels: []string{conformance.BenchHeaders},
	Title:   "The lengths of IPv4 and UDP end at the ICRC",
	Sends:   "a SEND; the device sends 0, 1, 2, 3, 4 and 1024 bytes",
	Expects: "lengths that count the headers, the payload, its padding and the ICRC, and nothing else",
	Defects: []string{"TrailingBytes"}, Run: onRC(checkLengths),
}, {
	ID:   "pkt/ip/ipv6-payload-length-ends-at-the-icrc",
	Cite: annexA17("CA17-15, CA17-21", "pkt/ip/10", "pkt/ip/5"), Setup: ipv6, Labels: []string{conformance.BenchHeaders},
	Title:   "The payload length of IPv6 counts from the UDP header to the ICRC",
	Sends:   "a SEND; the device sends 0, 1, 2, 3, 4 and 1024 bytes",
	Expects: "lengths that count the UDP header, the BTH, the payload, its padding and the ICRC, and nothing else",
	Defects: []string{"TrailingBytes"}, Run: onRC(checkLengths),
}, {
	ID:   "pkt/ip/every-packet-forbids-fragmentation",
	Cite: annexA17("CA17-3, CA17-7, CA17-8", "pkt/ip/6", "pkt/ip/2"), Setup: ipv4, Labels: []string{conformance.BenchHeaders},
	Title:   "Every IPv4 packet has DF set, is no fragment, and has no options",
	Sends:   "requests that are acknowledged, answered and refused, and responses to requests of the device; a REQ for a service without a listener",
	Expects: "DF, no MF, offset 0 and IHL 5 in every packet of RC, UC and UD and in the REJ",
	Defects: []string{"PlainSocket"}, Run: onConn(Setup{Receives: 1}, func(c *Conn) {
		c.expectInAllServices(ib.Packet{IP: packet.IP{
			DF: new(true), MF: new(false), FragOff: new(uint16(0)), ReservedFlag: new(false), IHL: new(uint8(5)),
		}})
	}),
}, {
	ID: "pkt/ip/fragments-dropped", Cite: annexA17("CA17-24", "pkt/ip/7"), Setup: ipv4,
	Title:   "Fragments are dropped and not reassembled",
	Sends:   "a SEND with MF set, and one with a fragment offset; SENDs in two fragments with the ICRC of the whole packet",
	Expects: "no response, no effect, and the expected PSN unchanged",
	Defects: []string{"ICRCIgnored"}, Run: acceptsAfter(func(c *Conn) {
		send := c.peerSend(0, 64)
		more, last := send, send
		more.IP.MF, more.IP.ID = new(true), new(uint32(0x1100))
		c.expectDropped(more)
		last.IP.FragOff, last.IP.ID = new(uint16(185)), new(uint32(0x1103))
		c.expectDropped(last)
		// Fragments have DF clear. The ICRC covers the DF bit of the whole packet;
		// both values are tried.
		for id, df := range []bool{true, false} {
			whole := send.Or(ib.Packet{}.To(uint32(c.QP.QPN())).Via(c.Peer, c.deviceAddr))
			whole.IP.DF, whole.IP.ID = &df, new(uint32(0x1101+id))
			parts, err := packet.Fragments(whole.Build(), 48)
			for _, part := range parts {
				err = errors.Join(err, c.Wire.Send(part))
			}
			if err != nil {
				rig.Abort(err)
			}
			c.expectNothing()
		}
	}),
}, {
	ID: "pkt/ip/packet-without-df-dropped", Cite: annexA17("CA17-24", "pkt/ip/7"), Setup: ipv4,
	Title:   "A packet with DF clear is dropped, although its ICRC is correct",
	Sends:   "a SEND, and an ACK for the device's SEND, with DF clear, which the ICRC covers",
	Expects: "no response, no effect, and the expected PSN unchanged",
	Defects: []string{"DFUnchecked"}, Run: acceptsAfter(func(c *Conn) {
		c.request(0, c.SendWR(100, 8))
		for _, pkt := range []ib.Packet{c.peerSend(0, 16), c.peerAck(0, 1)} {
			pkt.IP.DF = new(false)
			c.expectDropped(pkt)
		}
	}),
}, {
	ID: "pkt/ip/ttl-is-the-hop-limit-of-the-path", Cite: annexA17("CA17-9, CA17-17", "pkt/ip/8"),
	Title:   "The time to live of every packet is the hop limit of the connection",
	Sends:   "requests that are acknowledged, answered and refused, and responses to requests of the device",
	Expects: "a hop limit of 7 in every packet",
	Defects: []string{"FixedHopLimit"}, Run: onConn(Setup{Receives: 1, Modify: func(a *verbs.QPAttr) { a.AH.GRH.HopLimit = 7 }}, func(c *Conn) {
		c.expectInAllPackets(ib.Packet{}.WithHopLimit(7))
	}),
}})

// ipOptionNOPs are four IPv4 no-operation options.
var ipOptionNOPs = []byte{1, 1, 1, 1}

// exchangeBothWays has the peer and the device each send, write and read.
func exchangeBothWays(c *Conn) {
	c.expectAccepted(0) // a SEND
	c.exchange(c.peerWrite(1, 100), c.deviceAck(1, 2))
	c.ExpectBytes(c.TargetMem, 0, Data(100))
	c.exchange(c.peerRead(2, 50), ib.ReadResponseOnly(c.PeerPSN(2), 3, Data(100)[:50]))

	c.request(0, c.SendWR(1, 33), c.WriteWR(2, 5), c.ReadWR(3, 10))
	c.Send(c.peerAck(1, 2), ib.ReadResponseOnly(c.DevicePSN(2), 3, Data(10)))
	c.ExpectCompletions(verbs.WCSuccess, 1, 2, 3)
	c.ExpectBytes(c.LocalMem, SinkOffset, Data(10))
}

// variedPackets has the device send packets of many kinds on a connection with one receive, and
// returns them: requests of one and several packets, a retransmission, an ACK, READ responses, a
// sequence NAK, an RNR NAK and a fatal NAK.
func (c *Conn) variedPackets() []Arrival {
	c.PostSend(c.QP, c.SendWR(101, 1), c.WriteWR(102, 2500), c.ReadWR(103, 8))
	all := c.nextPackets(5)
	c.Send(c.peerNak(4, ib.NakSequence, 2)) // makes the device retransmit the READ
	all = append(all, c.nextPackets(1)...)
	c.Send(ib.ReadResponseOnly(c.DevicePSN(4), 3, Data(8)))
	sendAndAdd := func(request ib.Packet, responses int) {
		c.Send(request)
		all = append(all, c.nextPackets(responses)...)
	}
	sendAndAdd(c.peerSend(0, 16), 1)
	sendAndAdd(c.peerRead(1, 2500), 3)
	sendAndAdd(c.peerWrite(9, 0), 1) // after a gap
	sendAndAdd(c.peerSend(4, 16), 1) // no receive is left
	sendAndAdd(c.outOfBoundsWrite(4), 1)
	return all
}

// outOfBoundsWrite is a WRITE with the peer's k-th PSN and an address far before TargetMem.
func (c *Conn) outOfBoundsWrite(k int) ib.Packet {
	return ib.WriteOnly(c.PeerPSN(k), c.RETH(0, 4).Skip(-1<<40), Data(4)).AckReq()
}

// expectInAllPackets fails the case unless all of variedPackets have the fields of want.
func (c *Conn) expectInAllPackets(want ib.Packet) {
	for _, pkt := range c.variedPackets() {
		c.checkPacket(want, pkt)
	}
}

// expectInAllServices fails the case unless all of variedPackets, and packets of the other services
// that the device has, have the fields of want.
func (c *Conn) expectInAllServices(want ib.Packet) {
	c.expectInAllPackets(want)
	var others []Arrival
	if c.Caps.Has(verbs.CapUC) {
		uc := c.connect(Setup{qpType: verbs.QPTypeUC, Modify: func(a *verbs.QPAttr) { a.DestQPN = otherPeerQPN }})
		uc.PostSend(uc.QP, uc.SendWR(1, 5), uc.WriteWR(2, 2500))
		others = append(others, c.nextPackets(4)...)
	}
	if c.Caps.Has(verbs.CapUD) {
		d := c.newUDPort(0, nil)
		d.post(verbs.OpSend, 5)
		d.post(verbs.OpSendImm, 6)
		others = append(others, c.nextPackets(2)...)
	}
	if c.Caps.Has(verbs.CapCM) {
		c.SendPacket(ib.CM(0x11, c.cmRequest(cmClosedPort, 0x1001)))
		others = append(others, c.nextPackets(1)...)
	}
	for _, pkt := range others {
		c.checkPacket(want, pkt)
	}
}

// checkLengths fails the case unless the IP and UDP lengths of an ACK and of SENDs include the pad
// bytes and the ICRC.
func checkLengths(c *Conn) {
	if c.UDPSockets {
		rig.BenchCannot("sockets do not show the lengths in the headers")
	}
	const udpAndBTH, icrc, aeth = 8 + 12, 4, 4
	check := func(body int) {
		f, err := c.Wire.Recv(c.ResponseTimeout())
		c.Must("a packet", err)
		// The lengths are checked before the ICRC, because they locate it.
		pkt, _ := ib.Parse(f.Packet)
		udpLen := udpAndBTH + body + icrc
		ipLen := udpLen // IPv6 does not count its header
		if !pkt.IP.Is6() {
			ipLen += 20
		}
		lengths := ib.Packet{IP: packet.IP{Length: new(uint16(ipLen))}, UDP: packet.UDP{Length: new(uint16(udpLen))}}
		c.checkPacket(lengths, Arrival{pkt, f.At})
		c.Must("a correct ICRC at the end of the packet", pkt.CheckICRC())
	}
	c.Send(c.peerSend(0, 16))
	check(aeth)
	for i, n := range []int{0, 1, 2, 3, 4, MTU} {
		c.PostSend(c.QP, c.SendWR(100, n))
		check((n + 3) &^ 3)
		c.Send(c.peerAck(i, uint32(i+1)))
	}
}
