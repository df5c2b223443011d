// Package capture reads pcap and pcapng files and decodes RDMA traffic: RoCEv2 with
// the connection manager on QP 1, and iWARP over reassembled TCP streams. Other
// protocols get a one-line summary.
//
// It decodes packets in file order and tracks flows to mark retransmissions, gaps, reordering,
// wrong checksums, rejects and reported errors. A mark is not a verdict: marked packets can be
// correct. Flow state is bounded; the least recently used flows are dropped. A corrupt file yields
// the packets before the corruption and then a [CorruptError].
//
// A [Printer] prints the packets: a line per packet, headers, hex dumps, JSON and
// statistics. It escapes control characters of captured text and buffers a page of lines
// to align columns. The command "fabrictest capture show" uses it ([PrintFiles]).
//
// A [Stream] or [Printer] must not be used from several goroutines, and a packet is valid
// until the next call of [Stream.Next].
package capture

import (
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"time"
)

// LinkType is the link-layer header type of an interface (LINKTYPE_ of tcpdump.org).
type LinkType uint16

// Supported link types.
const (
	LinkNull     LinkType = 0 // BSD loopback
	LinkEthernet LinkType = 1
	LinkRawBSD   LinkType = 12  // LinkRaw on some BSDs
	LinkRaw      LinkType = 101 // no link header
	LinkLoop     LinkType = 108 // OpenBSD loopback
	LinkSLL      LinkType = 113 // Linux "any", older
	LinkIPv4     LinkType = 228
	LinkIPv6     LinkType = 229
	LinkSLL2     LinkType = 276 // Linux "any", newer
)

// Interface is the interface on which packets were captured.
type Interface struct {
	Index    int
	Name     string // empty if the file has none
	LinkType LinkType
}

// Direction is the direction of a packet at its interface.
type Direction uint8

// Directions.
const (
	DirectionUnknown Direction = iota
	Inbound
	Outbound
)

// Packet is a captured packet.
type Packet struct {
	Number     int           // from 1
	Time       time.Time     // zero if the file has none
	SinceFirst time.Duration // since the first packet with a timestamp
	Delta      time.Duration // since the previous packet
	Interface  Interface
	Direction  Direction
	Data       []byte // as captured
	Length     int    // on the wire; more than len(Data) if truncated
	Comments   []string

	Link Link
	IP   IP
	UDP  UDP
	TCP  TCP

	Protocol string // highest decoded protocol: "RoCEv2", "CM", "MPA", "iWARP", "TCP", "UDP", "ARP", …
	Note     string // summary of a packet without PDUs
	// PDUs are the RDMA messages that end in this packet. A TCP segment can have
	// several or none; they may have begun in earlier segments.
	PDUs  []PDU
	Marks []Mark
}

// Truncated returns the number of octets that were not captured.
func (p *Packet) Truncated() int { return p.Length - len(p.Data) }

// mark adds a mark with its details.
func (p *Packet) mark(kind MarkKind, text string) {
	p.Marks = append(p.Marks, Mark{kind, text})
}

// stopDecoding notes the problem for which the packet is not decoded further. It marks the packet
// as malformed, unless the capture truncated it.
func (p *Packet) stopDecoding(problem string) {
	p.Note = problem
	if p.Truncated() == 0 {
		p.mark(MarkMalformed, problem)
	}
}

// Has reports whether p has a mark of the given kind.
func (p *Packet) Has(kind MarkKind) bool {
	return slices.ContainsFunc(p.Marks, func(m Mark) bool { return m.Kind == kind })
}

// Src returns the source address and port; the port is 0 if there is none, and the
// AddrPort is zero if the packet is not IP.
func (p *Packet) Src() netip.AddrPort { return netip.AddrPortFrom(p.IP.Src, p.ports()[0]) }

// Dst returns the destination address and port; the port is 0 if there is none, and the AddrPort is
// zero if the packet is not IP.
func (p *Packet) Dst() netip.AddrPort { return netip.AddrPortFrom(p.IP.Dst, p.ports()[1]) }

// ports returns the source and the destination port; zeros if there are none.
func (p *Packet) ports() [2]uint16 {
	switch {
	case p.UDP.Present:
		return [2]uint16{p.UDP.SrcPort, p.UDP.DstPort}
	case p.TCP.Present:
		return [2]uint16{p.TCP.SrcPort, p.TCP.DstPort}
	}
	return [2]uint16{}
}

// Headers returns the decoded headers of p from the link layer up, with those of each PDU.
func (p *Packet) Headers() (all []Header) {
	if p.Link.HasMAC {
		h := Header{Name: "Ethernet"}
		h.add("source", net.HardwareAddr(p.Link.Src[:]).String())
		h.add("destination", net.HardwareAddr(p.Link.Dst[:]).String())
		for _, v := range p.Link.VLANs {
			h.add("VLAN", v)
		}
		h.add("type", p.Link.Type, fmt.Sprintf("0x%04x", p.Link.Type))
		all = append(all, h)
	}
	if p.IP.Version != 0 {
		all = append(all, p.IP.header())
	}
	if p.UDP.Present {
		h := Header{Name: "UDP"}
		h.add("source port", p.UDP.SrcPort)
		h.add("destination port", p.UDP.DstPort)
		h.add("length", p.UDP.Length, fmt.Sprintf("%d + 8", p.UDP.Length)) // payload and header
		h.add("checksum", p.UDP.Checksum, hexText(p.UDP.Checksum))
		all = append(all, h)
	}
	if p.TCP.Present {
		h := Header{Name: "TCP"}
		h.add("source port", p.TCP.SrcPort)
		h.add("destination port", p.TCP.DstPort)
		h.add("sequence", p.TCP.Seq)
		h.add("acknowledgement", p.TCP.Ack)
		h.add("flags", p.TCP.Flags, p.TCP.FlagNames())
		h.add("window", p.TCP.Window)
		h.add("length", p.TCP.Length)
		all = append(all, h)
	}
	for _, d := range p.PDUs {
		all = append(all, d.Headers()...)
	}
	return all
}

// header returns the fields of the IP header.
func (ip *IP) header() Header {
	h := Header{Name: fmt.Sprintf("IPv%d", ip.Version)}
	h.add("source", ip.Src.String())
	h.add("destination", ip.Dst.String())
	h.add("DSCP", ip.TClass>>2)
	h.add("ECN", ip.TClass&ecnMask, [...]string{"not capable", "ECT(1)", "ECT(0)", "congestion experienced"}[ip.TClass&ecnMask])
	h.add("hop limit", ip.HopLimit)
	h.add("protocol", ip.Protocol)
	if ip.Version == 4 {
		h.add("identification", ip.ID, hexText(ip.ID))
		h.add("don't fragment", ip.DontFragment)
		h.add("checksum good", ip.ChecksumOK)
	} else {
		h.add("flow label", ip.FlowLabel, hexText(ip.FlowLabel))
	}
	return h
}

// add adds a field. text is its formatted value if the default format does not suit.
func (h *Header) add(name string, value any, text ...string) {
	h.Fields = append(h.Fields, Field{name, value, strings.Join(text, "")})
}

// String returns Text, or the formatted value.
func (f Field) String() string {
	if f.Text != "" {
		return f.Text
	}
	return fmt.Sprint(f.Value)
}
