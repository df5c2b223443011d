package uswitch

import (
	"fmt"
	"net"
	"slices"
	"testing"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"

	"github.com/fabrictest/fabrictest/internal/must"
)

var (
	macA = net.HardwareAddr{2, 0, 0, 0, 0, 0xa}
	macB = net.HardwareAddr{2, 0, 0, 0, 0, 0xb}
	macC = net.HardwareAddr{2, 0, 0, 0, 0, 0xc}
)

// kind is an IP version and a transport protocol of test packets.
type kind struct {
	name string
	v6   bool
	tcp  bool
}

var kinds = []kind{{"udp4", false, false}, {"udp6", true, false}, {"tcp4", false, true}, {"tcp6", true, true}}

// packetSpec describes a packet that gopacket builds, independently of this package.
type packetSpec struct {
	kind
	from, to net.HardwareAddr
	port     int // destination
	id       uint16
	seq      uint32
	flags    byte // of TCP, besides ACK
	payload  []byte
}

// frame serializes s with complete checksums.
func (s packetSpec) frame(tb testing.TB) []byte {
	tb.Helper()
	// Built here, because gopacket pads short frames.
	header := slices.Concat(s.to, s.from, []byte{0x08, 0x00})
	if s.from == nil {
		header = slices.Concat(macB, macA, []byte{0x08, 0x00})
	}
	proto := layers.IPProtocolUDP
	if s.tcp {
		proto = layers.IPProtocolTCP
	}
	ip4 := &layers.IPv4{
		Version: 4, IHL: 5, TOS: 2, TTL: 64, Id: s.id, Flags: layers.IPv4DontFragment, Protocol: proto,
		SrcIP: net.IP{10, 0, 0, 1}, DstIP: net.IP{10, 0, 0, 2},
	}
	ip6 := &layers.IPv6{
		Version: 6, TrafficClass: 2, FlowLabel: 0x12345, HopLimit: 64, NextHeader: proto,
		SrcIP: net.ParseIP("fd00::1"), DstIP: net.ParseIP("fd00::2"),
	}
	var network gopacket.NetworkLayer = ip4
	stack := []gopacket.SerializableLayer{ip4}
	if s.v6 {
		header[12], header[13] = 0x86, 0xdd
		network, stack[0] = ip6, ip6
	}
	port := s.port
	if port == 0 {
		port = 4791
	}
	if s.tcp {
		tcp := &layers.TCP{
			SrcPort: 50000, DstPort: layers.TCPPort(port), Seq: s.seq, Ack: 77, ACK: true, Window: 5000,
			FIN: s.flags&tcpFIN != 0, PSH: s.flags&tcpPSH != 0, CWR: s.flags&tcpCWR != 0,
			Options: []layers.TCPOption{
				{OptionType: layers.TCPOptionKindNop},
				{OptionType: layers.TCPOptionKindNop},
				{OptionType: layers.TCPOptionKindTimestamps, OptionLength: 10, OptionData: []byte{1, 2, 3, 4, 5, 6, 7, 8}},
			},
		}
		must.Do(tb, tcp.SetNetworkLayerForChecksum(network))
		stack = append(stack, tcp)
	} else {
		udp := &layers.UDP{SrcPort: 50000, DstPort: layers.UDPPort(port)}
		must.Do(tb, udp.SetNetworkLayerForChecksum(network))
		stack = append(stack, udp)
	}
	buf := gopacket.NewSerializeBuffer()
	opts := gopacket.SerializeOptions{FixLengths: true, ComputeChecksums: true}
	must.Do(tb, gopacket.SerializeLayers(buf, opts, append(stack, gopacket.Payload(s.payload))...))
	return append(header, buf.Bytes()...)
}

// partial replaces the checksum by the pseudo-header sum, as the kernel leaves it
// (CHECKSUM_PARTIAL).
func partial(tb testing.TB, b []byte) []byte {
	tb.Helper()
	l, ok := parse(b)
	if !ok {
		tb.Fatal("not UDP or TCP")
	}
	at := l.checksumAt()
	rest := append([]byte(nil), b[l.l4:]...)
	rest[at-l.l4], rest[at-l.l4+1] = 0, 0
	check := uint64(^(uint16(b[at])<<8 | uint16(b[at+1])))
	pseudo := fold(check + uint64(^fold(sum(rest))))
	b[at], b[at+1] = byte(pseudo>>8), byte(pseudo)
	return b
}

// verify checks a frame with complete checksums.
func verify(b []byte) string {
	p := gopacket.NewPacket(b, layers.LayerTypeEthernet, gopacket.NoCopy)
	if e := p.ErrorLayer(); e != nil {
		return e.Error().Error()
	}
	var err error
	switch l := p.TransportLayer().(type) {
	case *layers.UDP:
		err = l.SetNetworkLayerForChecksum(p.NetworkLayer())
	case *layers.TCP:
		err = l.SetNetworkLayerForChecksum(p.NetworkLayer())
	}
	if err != nil {
		return err.Error()
	}
	if err, bad := p.VerifyChecksums(); err != nil || len(bad) > 0 {
		return fmt.Sprint("checksum: ", err, bad)
	}
	return ""
}

// completed returns b with the partial checksum completed.
func completed(b []byte) []byte {
	l, _ := parse(b)
	p := packet{bytes: append([]byte(nil), b...), vnet: vnetHeader{
		flags: vnetNeedsChecksum, csumStart: uint16(l.l4), csumOffset: uint16(l.checksumAt() - l.l4),
	}}
	p.completeChecksum()
	return p.bytes
}

// gsoPacket builds a GSO packet of kind k as the kernel passes it.
func gsoPacket(tb testing.TB, k kind, size, payload int, flags byte) *packet {
	tb.Helper()
	body := make([]byte, payload)
	for i := range body {
		body[i] = byte(i*7 + i/size)
	}
	b := partial(tb, packetSpec{kind: k, id: 100, seq: 1000, flags: flags, payload: body}.frame(tb))
	l, _ := parse(b)
	v := vnetHeader{
		flags: vnetNeedsChecksum, gsoType: gsoUDP, headerLen: uint16(l.payload), gsoSize: uint16(size),
		csumStart: uint16(l.l4), csumOffset: uint16(l.checksumAt() - l.l4),
	}
	switch {
	case k.tcp && k.v6:
		v.gsoType = gsoTCPv6
	case k.tcp:
		v.gsoType = gsoTCPv4
	}
	return &packet{bytes: b, vnet: v}
}

// segmentsOf returns the frames of a GSO packet, built by gopacket.
func segmentsOf(tb testing.TB, k kind, size int, p *packet, flags byte) (all [][]byte) {
	tb.Helper()
	l, _ := parse(p.bytes)
	body := p.bytes[l.payload:]
	for i := 0; len(body) > 0; i++ {
		n := min(size, len(body))
		f := byte(0)
		if i == 0 {
			f |= flags & tcpCWR
		}
		if n == len(body) {
			f |= flags & (tcpFIN | tcpPSH)
		}
		all = append(all, packetSpec{kind: k, id: 100 + uint16(i), seq: 1000 + uint32(i*size), flags: f, payload: body[:n]}.frame(tb))
		body = body[n:]
	}
	return all
}
