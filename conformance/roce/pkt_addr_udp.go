package roce

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"net/netip"

	"github.com/fabrictest/fabrictest/conformance"
	"github.com/fabrictest/fabrictest/conformance/packet"
	"github.com/fabrictest/fabrictest/conformance/packet/ib"
	"github.com/fabrictest/fabrictest/conformance/rig"
	"github.com/fabrictest/fabrictest/verbs"
)

var addressCases = mostlyRC.Cases([]conformance.Case{{
	ID:   "pkt/ip/source-address-is-that-of-the-chosen-gid",
	Cite: annexA17("CA17-11, CA17-12, CA17-18, CA17-19", "pkt/ip/9"), Setup: conformance.Setup{TwoAddresses: true},
	Title:   "Packets have the address of the connection's GID as source and the peer's address as destination",
	Sends:   "a SEND to the device's second address, and an ACK for the device's SEND",
	Expects: "an ACK and a SEND from the second address to the peer's",
	Defects: []string{"PrimaryAddressUsed"}, Run: OnPort(func(p *Port) {
		p.deviceAddr = p.Local[1]
		index := p.gidIndex(p.deviceAddr)
		c := p.connect(Setup{Receives: 1, Modify: func(a *verbs.QPAttr) { a.AH.GRH.SGIDIndex = index }})
		c.expectAccepted(0)
		c.request(0, c.SendWR(100, 8))
		c.completeWith(c.peerAck(0, 1), 100)
	}),
}, {
	ID: "pkt/addr/packet-from-another-host-dropped", Cite: ibta("9.6.1.2.3", "pkt/addr/2"),
	Title:   "A packet from another address than the peer's is dropped",
	Sends:   "a SEND and a WRITE from another source address; an ACK for the device's SEND from another source address",
	Expects: "no response, no completion, and memory and the expected PSN unchanged",
	Defects: []string{"SourceUnchecked"}, Run: acceptsAfter(func(c *Conn) {
		other := c.PeerAddr(1)
		c.expectDropped(c.peerSend(0, 16).From(other))
		c.expectDropped(c.peerWrite(0, 16).From(other))
		c.request(0, c.SendWR(100, 8))
		c.expectDropped(c.peerAck(0, 1).From(other))
	}),
}, {
	ID:   "pkt/addr/uc-packet-from-another-host-dropped",
	Cite: ibta("9.6.1.2.3", "pkt/addr/2"), Needs: verbs.CapUC, Labels: labelUC,
	Title:   "A UC packet from another address than the peer's is dropped",
	Sends:   "a SEND and a UC WRITE from another address, then a SEND from the peer's",
	Expects: "a completion of the last only",
	Defects: []string{"SourceUnchecked"}, Run: onConn(Setup{qpType: verbs.QPTypeUC, Receives: 2}, func(c *Conn) {
		other := c.PeerAddr(1)
		c.expectDropped(ib.SendOnly(c.PeerPSN(0), Data(16)).On(ib.UC).From(other))
		c.expectDropped(ib.WriteOnly(c.PeerPSN(0), c.RETH(0, 16), Data(16)).On(ib.UC).From(other))
		c.expectUCDelivery(0, 24, 1)
	}),
}, {
	ID:   "pkt/addr/packet-to-another-local-address-dropped",
	Cite: ibta("9.6.1.2.3", "pkt/addr/3"), Setup: conformance.Setup{TwoAddresses: true},
	Title:   "A packet to another address of the device than the connection's is dropped",
	Sends:   "a SEND and a WRITE for a connection at the device's first address, sent to its second",
	Expects: "no response, no completion, and memory and the expected PSN unchanged",
	Defects: []string{"IPUnchecked"}, Run: acceptsAfter(func(c *Conn) {
		second := c.Local[1]
		c.expectDropped(c.peerSend(0, 16).Via(c.Peer, second))
		c.expectDropped(c.peerWrite(0, 16).Via(c.Peer, second))
	}),
}, {
	ID:   "pkt/addr/gid-of-rocev1-only-receives-nothing",
	Cite: annexA17("CA17-41", "pkt/addr/4"), Needs: verbs.CapUD, Labels: labelUD,
	Title:   "A packet to an address that the GID table has for RoCEv1 only is dropped",
	Sends:   "a datagram, and a REQ for QP 1, to the address of a GID of RoCEv1; then a datagram to an address of RoCEv2",
	Expects: "a completion of the last, and nothing else",
	Defects: []string{"IPUnchecked"}, Run: OnPort(func(p *Port) {
		v1 := p.rocev1OnlyAddr()
		d := p.newUDPort(2, nil)
		d.expectDropped(d.datagram(Data(16)).Via(p.Peer, v1))
		if p.Caps.Has(verbs.CapCM) {
			p.SendPacket(ib.CM(0x11, p.cmRequest(cmClosedPort, 0x1001)).Via(p.Peer, v1))
			p.expectSilence(silencePeriod)
		}
		d.expectAccepted()
	}),
}, {
	ID: "pkt/addr/mad-to-qp0-dropped", Cite: annexA17("CA17-33", "pkt/addr/5"), Needs: verbs.CapCM, Labels: labelCM,
	Title:   "A MAD for QP 0 is dropped, and does not reach QP 1",
	Sends:   "a REQ for a service without a listener, to QP 0, with the Q_Keys of QP 1 and of none; then to QP 1",
	Expects: "nothing, nothing, and a REJ",
	Defects: []string{"QPNLoose"}, Run: OnPort(func(p *Port) {
		req := ib.CM(0x11, p.cmRequest(cmClosedPort, 0x1001))
		p.SendPacket(req.To(0))
		p.expectSilence(silencePeriod)
		p.SendPacket(req.WithDETH(0, 0).To(0))
		p.expectSilence(silencePeriod)
		p.SendPacket(req)
		p.cmExpect(ib.REJ{RemoteCommID: new(uint32(0x1001))})
	}),
}})

// gidTable returns the GID table of port 1.
func (p *Port) gidTable() (table []verbs.GIDEntry) {
	for i := range p.QueryPort().GIDs {
		e, err := p.Device.QueryGID(1, i)
		if errors.Is(err, verbs.ErrNotFound) {
			continue // an empty entry
		}
		p.Must("a GID table that can be read", err)
		table = append(table, e)
	}
	return table
}

// gidIndex returns the index of an address's RoCEv2 entry in the GID table, or fails the case.
func (p *Port) gidIndex(a netip.Addr) uint8 {
	i := p.findGID(a)
	p.Check(i >= 0, fmt.Sprintf("a RoCEv2 GID for the device's address %v", a), "none")
	return uint8(i)
}

// findGID returns the index of an address's RoCEv2 entry in the GID table, or -1. Unlike gidTable
// it reads no entries after that one, because each costs a verb call.
func (p *Port) findGID(a netip.Addr) int {
	for i := range p.QueryPort().GIDs {
		if e, err := p.Device.QueryGID(1, i); err == nil && e.GID.Addr() == a && e.Type == verbs.GIDTypeRoCEv2 {
			return i
		}
	}
	return -1
}

// rocev1OnlyAddr returns an address of the device's IP version that has an entry of RoCEv1 in the
// GID table and none of RoCEv2. The case ends as unsupported if there is none.
func (p *Port) rocev1OnlyAddr() netip.Addr {
	table := p.gidTable()
	for _, e := range table {
		a := e.GID.Addr()
		if e.Type == verbs.GIDTypeRoCEv1 && !hasRoCEv2GID(table, a) && a.Is4() == p.deviceAddr.Is4() {
			return a
		}
	}
	rig.BenchCannot("the device has no GID for RoCEv1 only")
	return netip.Addr{}
}

var udpCases = overRC.Cases([]conformance.Case{{
	ID: "pkt/udp/destination-port-is-4791", Cite: annexA17("CA17-20", "pkt/udp/1"),
	Title:   "RoCEv2 uses UDP port 4791, and no other",
	Sends:   "valid SENDs to ports 4790, 4792 and 49152, then one to 4791",
	Expects: "a response to the last only, which is sent to port 4791",
	Defects: []string{"IPUnchecked"}, Run: onRC(func(c *Conn) {
		for _, Port := range []uint16{4790, 4792, 0xc000} {
			c.expectDropped(c.peerSend(0, 16).WithDstPort(Port))
		}
		// The response must go to the RoCEv2 port, whatever the source port of the
		// request: packets to other ports are not parsed as RoCEv2.
		c.expectAccepted(0, func(p ib.Packet) ib.Packet { return p.WithSrcPort(5000) })
	}),
}, {
	ID:   "pkt/udp/requests-and-resends-keep-one-source-port",
	Cite: annexA17("A17.3.2.1, A17.9.4", "pkt/udp/2"), Level: conformance.Should,
	Title:   "Requests and retransmissions of a queue pair have one UDP source port",
	Sends:   "NAKs that cause some of 120 requests to be retransmitted, ACKs for the rest",
	Expects: "one source port in all packets",
	Defects: []string{"SourcePortPerPacket"}, Run: onConn(Setup{}, func(c *Conn) {
		var ports sourcePorts
		for i := range 30 {
			c.PostSend(c.QP, c.SendWR(1, 32), c.SendWR(2, 33), c.SendWR(3, 34), c.SendWR(4, 35))
			ports.checkNext(c.Port, 4)
			if i%3 == 0 {
				c.Send(c.peerNak(4*i+2, ib.NakSequence, uint32(4*i+2)))
				ports.checkNext(c.Port, 2)
			}
			c.completeWith(c.peerAck(4*i+3, uint32(4*i+4)), 1, 2, 3, 4)
		}
	}),
}, {
	ID:   "pkt/udp/answers-keep-one-source-port",
	Cite: annexA17("A17.3.2.1, A17.9.4", "pkt/udp/2"), Level: conformance.Should,
	Title:   "Responses of a queue pair have the UDP source port of its requests, whatever the source port of the peer's requests",
	Sends:   "WRITEs, READs and duplicates from changing source ports, and responses to a request of the device",
	Expects: "one source port in all packets of the device",
	Defects: []string{"SourcePortPerPacket"}, Run: onRC(func(c *Conn) {
		var ports sourcePorts
		for i := range 50 {
			from := uint16(0xc000 + 37*i)
			write := c.peerWrite(2*i, 8).WithSrcPort(from)
			c.Send(write)
			ports.checkNext(c.Port, 1)
			c.Send(c.peerRead(2*i+1, 8).WithSrcPort(from + 1))
			ports.checkNext(c.Port, 1)
			if i%10 == 0 {
				c.Send(write.WithSrcPort(from + 2))
				ports.checkNext(c.Port, 1)
			}
		}
		c.PostSend(c.QP, c.SendWR(1, 8))
		ports.checkNext(c.Port, 1)
	}),
}, {
	ID: "pkt/udp/checksum-is-left-out", Cite: annexA17("A17.3.2.4", "pkt/udp/3"), Level: conformance.Should, Setup: ipv4,
	Title:   "The UDP checksum is sent as 0, over IPv4",
	Sends:   "requests that are acknowledged, answered and refused, and responses to requests of the device; a REQ for a service without a listener",
	Expects: "a UDP checksum of 0 in every packet of RC, UC and UD and in the REJ",
	Defects: []string{"PlainSocket"}, Run: onConn(Setup{Receives: 1}, expectNoChecksum),
}, {
	ID:   "pkt/udp/ipv6-checksum-is-left-out",
	Cite: annexA17("A17.3.2.4", "pkt/udp/3"), Level: conformance.Should, Setup: ipv6,
	Title:   "The UDP checksum is sent as 0, over IPv6",
	Sends:   "requests that are acknowledged, answered and refused, and responses to requests of the device; a REQ for a service without a listener",
	Expects: "a UDP checksum of 0 in every packet of RC, UC and UD and in the REJ",
	Defects: []string{"PlainSocket"}, Run: onConn(Setup{Receives: 1}, expectNoChecksum),
}, {
	ID: "pkt/udp/packet-with-checksum-accepted", Cite: annexA17("CA17-22(d)", "pkt/udp/4"), Setup: ipv4,
	Title:   "A packet with a correct UDP checksum is accepted, over IPv4",
	Sends:   "SENDs, and an ACK for the device's SEND, with a UDP checksum",
	Expects: "an ACK and a completion for each SEND, and the completion of the acknowledged request",
	Defects: []string{"ICRCCheckUnmasked"}, Run: acceptsThree(ib.Packet.WithUDPChecksum),
}, {
	ID: "pkt/udp/ipv6-packet-with-checksum-accepted", Cite: annexA17("CA17-22(d)", "pkt/udp/4"), Setup: ipv6,
	Title:   "A packet with a correct UDP checksum is accepted, over IPv6",
	Sends:   "SENDs, and an ACK for the device's SEND, with a UDP checksum",
	Expects: "an ACK and a completion for each SEND, and the completion of the acknowledged request",
	Defects: []string{"ICRCCheckUnmasked"}, Run: acceptsThree(ib.Packet.WithUDPChecksum),
}, {
	ID: "pkt/udp/packet-without-checksum-accepted", Cite: annexA17("CA17-22(d)", "pkt/udp/4"), Setup: ipv4,
	Title:   "A packet without UDP checksum is accepted, over IPv4",
	Sends:   "SENDs, and an ACK for the device's SEND, with a UDP checksum of 0",
	Expects: "an ACK and a completion for each SEND, and the completion of the acknowledged request",
	Defects: []string{"UDPChecksumRequired"}, Run: acceptsThree(withZeroChecksum),
}, {
	ID: "pkt/udp/ipv6-packet-without-checksum-accepted", Cite: annexA17("CA17-22(d)", "pkt/udp/4"), Setup: ipv6,
	Title:   "A packet without UDP checksum is accepted, over IPv6",
	Sends:   "SENDs, and an ACK for the device's SEND, with a UDP checksum of 0",
	Expects: "an ACK and a completion for each SEND, and the completion of the acknowledged request",
	Defects: []string{"UDPChecksumRequired"}, Run: acceptsThree(withZeroChecksum),
}, {
	ID: "pkt/udp/padding-of-the-frame-ignored", Cite: annexA17("CA17-24", "pkt/udp/5"), Setup: ipv4,
	Title:   "Bytes after the end of the IP packet in a frame are ignored",
	Sends:   "a SEND without payload, 44 bytes of IPv4, in a frame of the least length; SENDs, and a READ response, in frames with 6 and 20 bytes too many",
	Expects: "an ACK and a completion for each, and no byte of the padding in memory",
	Defects: []string{"FrameEndICRC"}, Run: onRC(func(c *Conn) { c.expectPaddingIgnored(46-44, 6, 20) }),
}, {
	ID: "pkt/udp/ipv6-padding-of-the-frame-ignored", Cite: annexA17("CA17-24", "pkt/udp/5"), Setup: ipv6,
	Title:   "Bytes after the end of the IP packet in a frame are ignored, over IPv6",
	Sends:   "a SEND without payload, SENDs with some, and a READ response, in frames with 2, 6 and 20 bytes too many, as switches that cut off a tag leave them",
	Expects: "an ACK and a completion for each, and no byte of the padding in memory",
	Defects: []string{"FrameEndICRC"}, Run: onRC(func(c *Conn) { c.expectPaddingIgnored(2, 6, 20) }),
}})

// expectPaddingIgnored sends a SEND with each of these numbers of padding bytes after the IP
// packet, and a READ response with the last number. The device must accept all of them.
func (c *Conn) expectPaddingIgnored(paddings ...int) {
	var trailer []byte
	for i, padding := range paddings {
		payload := Data(16 * min(i, 1)) // the first SEND has none
		trailer = bytes.Repeat([]byte{0xee}, padding)
		c.Send(ib.SendOnly(c.PeerPSN(i), payload).AckReq().WithTrailer(trailer))
		c.expect(c.deviceAck(i, uint32(i+1)))
		c.ExpectRecv(uint64(i+1), len(payload))
		c.ExpectBytes(c.LocalMem, 64*i, payload)
		c.ExpectUnchangedOutside(c.LocalMem, 64*i, len(payload))
		c.LocalMem.Snapshot()
	}
	c.request(0, c.ReadWR(100, 8))
	c.completeWith(ib.ReadResponseOnly(c.DevicePSN(0), 1, Data(8)).WithTrailer(trailer), 100)
	c.ExpectBytes(c.LocalMem, SinkOffset, Data(8))
	c.ExpectUnchangedOutside(c.LocalMem, SinkOffset, 8)
}

// expectNoChecksum fails the case unless packets of many kinds, of all services, have UDP checksum
// 0.
func expectNoChecksum(c *Conn) {
	c.expectInAllServices(ib.Packet{UDP: packet.UDP{Checksum: new(uint16(0))}})
}

// acceptsThree makes the body of a case in which three modified SENDs and a modified ACK must be
// accepted.
func acceptsThree(modify func(ib.Packet) ib.Packet) func(*conformance.Bench) error {
	return onRC(func(c *Conn) {
		for n := range 3 {
			c.expectAccepted(n, modify)
		}
		c.request(0, c.SendWR(100, 8))
		c.completeWith(modify(c.peerAck(0, 1)), 100)
	})
}

// withZeroChecksum returns a packet with UDP checksum 0.
func withZeroChecksum(p ib.Packet) ib.Packet { p.UDP.Checksum = new(uint16(0)); return p }

// sourcePorts checks that all packets have the UDP source port of the first one.
type sourcePorts struct{ first uint16 }

// checkNext fails the case unless the next n packets have the source port of those before.
func (s *sourcePorts) checkNext(p *Port, n int) {
	for _, pkt := range p.nextPackets(n) {
		got := *pkt.UDP.SrcPort
		s.first = cmp.Or(s.first, got)
		p.Check(got == s.first, fmt.Sprintf("source port %d in all packets", s.first), "%d in %v", got, pkt)
	}
}
