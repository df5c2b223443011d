package capture

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/fabrictest/fabrictest/emu/link"
	"github.com/fabrictest/fabrictest/emu/softroce/wire"
)

// dissect decodes the headers and messages of the current packet, s.p.
func (s *Stream) dissect() {
	p := &s.p
	b, ok := s.decodeLink()
	if !ok {
		return
	}
	switch p.Link.Type {
	case 0, link.EtherTypeIPv4, link.EtherTypeIPv6: // 0 if the link header has no type field
		s.dissectIP(b)
	case typeARP:
		p.Protocol, p.Note = "ARP", arpNote(b)
	case typeLLDP:
		p.Protocol, p.Note = "LLDP", fmt.Sprintf("%d bytes", len(b))
	case typeRoCE:
		p.Protocol, p.Note = "RoCEv1", fmt.Sprintf("%d bytes; only version 2 is decoded", len(b))
	default:
		p.Protocol, p.Note = "-", fmt.Sprintf("Ethernet type 0x%04x, %d bytes", p.Link.Type, len(b))
	}
}

// dissectIP decodes an IP packet and its payload.
func (s *Stream) dissectIP(b []byte) {
	p := &s.p
	b, problem := p.IP.parseIP(b)
	if problem != "" {
		p.Protocol = "IP"
		p.stopDecoding(problem)
		return
	}
	if p.IP.Version == 4 && !p.IP.ChecksumOK {
		p.mark(MarkChecksum, "IPv4 header checksum is wrong")
	}
	if p.IP.TClass&ecnMask == ecnCE {
		p.mark(MarkCongestion, "ECN: congestion experienced")
	}
	if p.IP.Fragment {
		p.Protocol, p.Note = "IP", fmt.Sprintf("fragment at %d of a packet of protocol %d, %d bytes", p.IP.Offset, p.IP.Protocol, p.IP.Length)
		return
	}
	switch p.IP.Protocol {
	case link.ProtocolUDP:
		s.dissectUDP(b)
	case link.ProtocolTCP:
		s.dissectTCP(b)
	case protoICMP:
		p.Protocol, p.Note = "ICMP", icmpNote(b)
	case protoICMPv6:
		p.Protocol, p.Note = "ICMPv6", icmpv6Note(b)
	case protoIGMP:
		p.Protocol, p.Note = "IGMP", fmt.Sprintf("%d bytes", p.IP.Length)
	default:
		p.Protocol, p.Note = "IP", fmt.Sprintf("protocol %d, %d bytes", p.IP.Protocol, p.IP.Length)
	}
}

// dissectUDP decodes a datagram, and the RoCE packet in it if it goes to the port of RoCEv2.
func (s *Stream) dissectUDP(b []byte) {
	p := &s.p
	p.Protocol = "UDP"
	payload, problem := p.UDP.parse(b, p.IP.Length)
	if problem != "" {
		p.stopDecoding(problem)
		return
	}
	if p.UDP.DstPort == wire.Port {
		missing := p.UDP.Length - len(payload) // octets that were not captured
		s.dissectRoCE(payload, missing)
		return
	}
	p.Note = fmt.Sprintf("%d bytes%s", p.UDP.Length, cmp.Or(portNames[p.UDP.DstPort], portNames[p.UDP.SrcPort]))
}

// portNames are the names of UDP protocols that are common in RDMA networks, by port.
var portNames = map[uint16]string{53: " (DNS)", 67: " (DHCP)", 68: " (DHCP)", 319: " (PTP)", 320: " (PTP)", 5353: " (mDNS)"}

// FlagNames returns the names of the set flags, as in "SYN ACK".
func (t *TCP) FlagNames() string {
	var set []string
	for i, name := range []string{"FIN", "SYN", "RST", "PSH", "ACK", "URG"} { // the least significant bit first
		if t.Flags&(1<<i) != 0 {
			set = append(set, name)
		}
	}
	return strings.Join(set, " ")
}
