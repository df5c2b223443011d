package capture

import (
	"net/netip"
	"time"
)

// LinkType is what the packets of an interface begin with, by the numbers of
// tcpdump.org.
type LinkType uint16

// The link types that are decoded.
const (
	LinkNull     LinkType = 0 // BSD loopback
	LinkEthernet LinkType = 1
	LinkRawBSD   LinkType = 12  // as LinkRaw, on some systems
	LinkRaw      LinkType = 101 // an IP header
	LinkLoop     LinkType = 108 // OpenBSD loopback
	LinkSLL      LinkType = 113 // Linux "any", older
	LinkIPv4     LinkType = 228
	LinkIPv6     LinkType = 229
	LinkSLL2     LinkType = 276 // Linux "any", newer
)

// Interface is where packets were recorded.
type Interface struct {
	Index       int
	Name        string // empty if the file has none
	Description string
	LinkType    LinkType
}

// Direction is that of a packet, as its interface saw it.
type Direction uint8

// The directions.
const (
	DirectionUnknown Direction = iota
	Inbound
	Outbound
)

// Packet is one packet of a capture.
type Packet struct {
	Number     int           // from 1
	Time       time.Time     // zero if the file does not say
	SinceFirst time.Duration // after the first packet that has a time
	Delta      time.Duration // after the one before
	Interface  Interface
	Direction  Direction
	Data       []byte // as recorded
	Length     int    // on the wire: more than len(Data) if it was truncated
	Comments   []string

	Link Link
	IP   IP
	UDP  UDP
	TCP  TCP

	// Protocol is what the packet is about: "RoCEv2", "CM", "MPA", "iWARP",
	// "TCP", "UDP", "ARP", ….
	Protocol string
	// Note is all that is said of a packet without PDUs.
	Note string
	// PDUs are the messages that end in this packet. In a TCP segment there may
	// be several, or none; some may have begun in earlier ones.
	PDUs  []PDU
	Marks []Mark
}

// Truncated is how many octets were on the wire and are not in the file.
func (p *Packet) Truncated() int { return p.Length - len(p.Data) }

// mark adds a mark.
func (p *Packet) mark(kind MarkKind, text string) {
	p.Marks = append(p.Marks, Mark{kind, text})
}

// Has reports whether p bears a mark of the given kind.
func (p *Packet) Has(kind MarkKind) bool {
	for i := range p.Marks {
		if p.Marks[i].Kind == kind {
			return true
		}
	}
	return false
}

// Src and Dst return the address and, if there is one, the port of the two
// ends; the zero AddrPort for what is not IP.
func (p *Packet) Src() netip.AddrPort { return netip.AddrPortFrom(p.IP.Src, p.ports()[0]) }

// Dst is where the packet goes; see Src.
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
