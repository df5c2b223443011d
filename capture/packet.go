package capture

import (
	"net/netip"
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
	Index       int
	Name        string // empty if the file has none
	Description string
	LinkType    LinkType
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

	// Protocol is the highest decoded protocol: "RoCEv2", "CM", "MPA", "iWARP",
	// "TCP", "UDP", "ARP", ….
	Protocol string
	// Note is the summary of a packet without PDUs.
	Note string
	// PDUs are the RDMA messages that end in this packet. A TCP segment can have
	// several or none; they may have begun in earlier segments.
	PDUs  []PDU
	Marks []Mark
}

// Truncated returns the number of octets that were not captured.
func (p *Packet) Truncated() int { return p.Length - len(p.Data) }

func (p *Packet) mark(kind MarkKind, text string) {
	p.Marks = append(p.Marks, Mark{kind, text})
}

// Has reports whether p has a mark of the given kind.
func (p *Packet) Has(kind MarkKind) bool {
	for i := range p.Marks {
		if p.Marks[i].Kind == kind {
			return true
		}
	}
	return false
}

// Src returns the source address and port; the port is 0 if there is none, and the
// AddrPort is zero if the packet is not IP.
func (p *Packet) Src() netip.AddrPort { return netip.AddrPortFrom(p.IP.Src, p.ports()[0]) }

// Dst returns the destination; see Src.
func (p *Packet) Dst() netip.AddrPort { return netip.AddrPortFrom(p.IP.Dst, p.ports()[1]) }

func (p *Packet) ports() [2]uint16 {
	switch {
	case p.UDP.Present:
		return [2]uint16{p.UDP.SrcPort, p.UDP.DstPort}
	case p.TCP.Present:
		return [2]uint16{p.TCP.SrcPort, p.TCP.DstPort}
	}
	return [2]uint16{}
}
