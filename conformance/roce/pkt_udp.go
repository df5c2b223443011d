package roce

import (
	"bytes"
	"fmt"

	"github.com/fabrictest/fabrictest/conformance"
	"github.com/fabrictest/fabrictest/conformance/packet"
	"github.com/fabrictest/fabrictest/conformance/packet/ib"
	"github.com/fabrictest/fabrictest/verbs"
)

var udpCases = overRC.Cases([]conformance.Case{{
	ID: "pkt/udp/destination-port-is-4791", Cite: annexA17("CA17-20", "roce/pkt/udp/1"),
	Run: onRC(func(c *Conn) {
		for _, Port := range []uint16{4790, 4792, 0xc000} {
			c.expectDropped(ib.SendOnly(c.PeerPSN(0), Data(16)).AckReq().WithDstPort(Port))
		}
		// The response must go to the RoCEv2 port, whatever the source port of the
		// request: packets to other ports are not parsed as RoCEv2.
		c.expectAccepted(0, func(p ib.Packet) ib.Packet { return p.WithSrcPort(5000) })
	}),
}, {
	ID:   "pkt/udp/requests-and-resends-keep-one-source-port",
	Cite: annexA17("A17.3.2.1, A17.9.4", "roce/pkt/udp/2"), Level: conformance.Should,
	Run: onConn(Setup{signalAll: true}, func(c *Conn) {
		var ports sourcePorts
		for i := range 30 {
			var wrs []verbs.SendWR
			for k := range 4 {
				wrs = append(wrs, verbs.SendWR{WRID: uint64(4*i + k), Opcode: verbs.OpSend, SGL: c.LocalMem.SGL(k, 32+k)})
			}
			c.PostSend(c.QP, wrs...)
			ports.add(c.Port, c.nextPackets(4))
			if i%3 == 0 {
				c.Send(ib.Nak(c.DevicePSN(4*i+2), ib.NakSequence, uint32(4*i+2)))
				ports.add(c.Port, c.nextPackets(2))
			}
			c.Send(ib.Ack(c.DevicePSN(4*i+3), uint32(4*i+4)))
			for k := range 4 {
				c.ExpectCompletion(uint64(4*i+k), verbs.WCSuccess)
			}
		}
	}),
}, {
	ID:   "pkt/udp/answers-keep-one-source-port",
	Cite: annexA17("A17.3.2.1, A17.9.4", "roce/pkt/udp/2"), Level: conformance.Should,
	Run: onRC(func(c *Conn) {
		var ports sourcePorts
		for i := range 50 {
			from := uint16(0xc000 + 37*i)
			write := ib.WriteOnly(c.PeerPSN(2*i), c.RETH(0, 8), Data(8)).AckReq().WithSrcPort(from)
			c.Send(write)
			ports.add(c.Port, c.nextPackets(1))
			c.Send(ib.ReadRequest(c.PeerPSN(2*i+1), c.RETH(0, 8)).WithSrcPort(from + 1))
			ports.add(c.Port, c.nextPackets(1))
			if i%10 == 0 {
				c.Send(write.WithSrcPort(from + 2))
				ports.add(c.Port, c.nextPackets(1))
			}
		}
		c.PostSend(c.QP, verbs.SendWR{WRID: 1, Opcode: verbs.OpSend, SGL: c.LocalMem.SGL(0, 8)})
		ports.add(c.Port, c.nextPackets(1))
	}),
}, {
	ID:   "pkt/udp/checksum-is-left-out",
	Cite: annexA17("A17.3.2.4", "roce/pkt/udp/3"), Level: conformance.Should, Setup: ipv4,
	Run: onConn(Setup{Receives: 1}, expectNoChecksum),
}, {
	ID:   "pkt/udp/ipv6-checksum-is-left-out",
	Cite: annexA17("A17.3.2.4", "roce/pkt/udp/3"), Level: conformance.Should, Setup: ipv6,
	Run: onConn(Setup{Receives: 1}, expectNoChecksum),
}, {
	ID: "pkt/udp/packet-with-checksum-accepted", Cite: annexA17("CA17-22(d)", "roce/pkt/udp/4"), Setup: ipv4,
	Run: onRC(expectChecksumAccepted),
}, {
	ID: "pkt/udp/ipv6-packet-with-checksum-accepted", Cite: annexA17("CA17-22(d)", "roce/pkt/udp/4"), Setup: ipv6,
	Run: onRC(expectChecksumAccepted),
}, {
	ID: "pkt/udp/packet-without-checksum-accepted", Cite: annexA17("CA17-22(d)", "roce/pkt/udp/4"), Setup: ipv4,
	Run: onRC(expectZeroChecksumAccepted),
}, {
	ID: "pkt/udp/ipv6-packet-without-checksum-accepted", Cite: annexA17("CA17-22(d)", "roce/pkt/udp/4"), Setup: ipv6,
	Run: onRC(expectZeroChecksumAccepted),
}, {
	ID: "pkt/udp/padding-of-the-frame-ignored", Cite: annexA17("CA17-24", "roce/pkt/udp/5"), Setup: ipv4,
	Run: onRC(func(c *Conn) { c.expectPaddingIgnored(46-44, 6, 20) }),
}, {
	ID: "pkt/udp/ipv6-padding-of-the-frame-ignored", Cite: annexA17("CA17-24", "roce/pkt/udp/5"), Setup: ipv6,
	Run: onRC(func(c *Conn) { c.expectPaddingIgnored(2, 6, 20) }),
}})

// expectPaddingIgnored sends SENDs with these numbers of bytes after the packet, the
// first without payload, and fails the case unless they are accepted.
func (c *Conn) expectPaddingIgnored(paddings ...int) {
	for i, padding := range paddings {
		payload := Data(16 * min(i, 1))
		c.Send(ib.SendOnly(c.PeerPSN(i), payload).AckReq().WithTrailer(bytes.Repeat([]byte{0xee}, padding)))
		c.expect(ib.Ack(c.PeerPSN(i), uint32(i+1)))
		c.ExpectRecv(uint64(i+1), len(payload))
		c.ExpectBytes(c.LocalMem, 64*i, payload)
		c.ExpectUnchanged(c.LocalMem, 64*i, len(payload))
		c.LocalMem.Snapshot()
	}
}

// expectNoChecksum fails the case unless packets of many kinds have UDP checksum 0.
func expectNoChecksum(c *Conn) {
	for _, pkt := range c.variedPackets() {
		c.checkPacket(ib.Packet{UDP: packet.UDP{Checksum: new(uint16(0))}}, pkt)
	}
}

// expectChecksumAccepted fails the case unless SENDs with a UDP checksum are accepted.
func expectChecksumAccepted(c *Conn) {
	for n := range 3 {
		c.expectAccepted(n, ib.Packet.WithUDPChecksum)
	}
}

// expectZeroChecksumAccepted fails the case unless SENDs with UDP checksum 0 are
// accepted.
func expectZeroChecksumAccepted(c *Conn) {
	for n := range 3 {
		c.expectAccepted(n, func(p ib.Packet) ib.Packet { p.UDP.Checksum = new(uint16(0)); return p })
	}
}

// sourcePorts checks that all packets have the same source port.
type sourcePorts struct {
	Port uint16
	seen int
}

func (s *sourcePorts) add(p *Port, pkts []ib.Packet) {
	for _, pkt := range pkts {
		if s.seen == 0 {
			s.Port = *pkt.UDP.SrcPort
		}
		s.seen++
		if got := *pkt.UDP.SrcPort; got != s.Port {
			p.Fail(fmt.Sprintf("source port %d in all packets", s.Port), "%d in packet %d, %v", got, s.seen, pkt)
		}
	}
}
