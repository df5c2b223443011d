package capture

import (
	"encoding/binary"
	"fmt"
)

// Link is the header in front of IP.
type Link struct {
	Src, Dst [6]byte
	HasMAC   bool // Src and Dst are there
	VLANs    []uint16
	Type     uint16 // Ethernet type; 0 if none says what follows
}

// Ethernet types.
const (
	typeIPv4 = 0x0800
	typeARP  = 0x0806
	typeIPv6 = 0x86DD
	typeVLAN = 0x8100
	typeQinQ = 0x88A8
	typeLLDP = 0x88CC
	typeRoCE = 0x8915 // version 1, without IP
)

// maxVLANs is how many tags are unwrapped.
const maxVLANs = 4

// stripLink decodes the link header and returns what follows; ok is false if
// there is nothing to decode.
func (s *Stream) stripLink() (rest []byte, ok bool) {
	p, b := &s.p, s.p.Data
	cut := func(header int) ([]byte, bool) {
		if len(b) < header {
			p.Protocol, p.Note = "-", fmt.Sprintf("%d bytes, too short for a link header", len(b))
			return nil, false
		}
		return b[header:], true
	}
	switch p.Interface.LinkType {
	case LinkRaw, LinkRawBSD, LinkIPv4, LinkIPv6:
		return b, true
	case LinkNull, LinkLoop:
		return cut(4)
	case LinkEthernet:
		if rest, ok = cut(14); ok {
			p.Link = Link{Dst: [6]byte(b), Src: [6]byte(b[6:]), HasMAC: true, Type: binary.BigEndian.Uint16(b[12:])}
			rest = p.Link.untag(rest)
		}
		return rest, ok
	case LinkSLL:
		if rest, ok = cut(16); ok {
			p.Link = Link{Type: binary.BigEndian.Uint16(b[14:])}
			rest = p.Link.untag(rest)
		}
		return rest, ok
	case LinkSLL2:
		if rest, ok = cut(20); ok {
			p.Link = Link{Type: binary.BigEndian.Uint16(b)}
			rest = p.Link.untag(rest)
		}
		return rest, ok
	}
	p.Protocol, p.Note = "-", fmt.Sprintf("%d bytes of link type %d, which is not decoded", p.Length, p.Interface.LinkType)
	return nil, false
}

// untag takes VLAN tags off.
func (l *Link) untag(b []byte) []byte {
	for (l.Type == typeVLAN || l.Type == typeQinQ) && len(b) >= 4 && len(l.VLANs) < maxVLANs {
		l.VLANs = append(l.VLANs, binary.BigEndian.Uint16(b)&0x0FFF)
		l.Type = binary.BigEndian.Uint16(b[2:])
		b = b[4:]
	}
	return b
}
