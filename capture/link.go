package capture

import (
	"encoding/binary"
	"fmt"
)

// Link is the link-layer header.
type Link struct {
	Src, Dst [6]byte
	HasMAC   bool // Src and Dst are set
	VLANs    []uint16
	Type     uint16 // EtherType; 0 if the link header has none
}

// EtherTypes.
const (
	typeIPv4 = 0x0800
	typeARP  = 0x0806
	typeIPv6 = 0x86DD
	typeVLAN = 0x8100
	typeQinQ = 0x88A8
	typeLLDP = 0x88CC
	typeRoCE = 0x8915 // RoCEv1
)

// maxVLANs bounds the VLAN tags that are decoded.
const maxVLANs = 4

// decodeLink decodes the link header and returns the rest; ok is false if it cannot be
// decoded.
func (s *Stream) decodeLink() (rest []byte, ok bool) {
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
			rest = p.Link.decodeVLANs(rest)
		}
		return rest, ok
	case LinkSLL:
		if rest, ok = cut(16); ok {
			p.Link = Link{Type: binary.BigEndian.Uint16(b[14:])}
			rest = p.Link.decodeVLANs(rest)
		}
		return rest, ok
	case LinkSLL2:
		if rest, ok = cut(20); ok {
			p.Link = Link{Type: binary.BigEndian.Uint16(b)}
			rest = p.Link.decodeVLANs(rest)
		}
		return rest, ok
	}
	p.Protocol, p.Note = "-", fmt.Sprintf("%d bytes of link type %d, which is not decoded", p.Length, p.Interface.LinkType)
	return nil, false
}

// decodeVLANs removes VLAN tags.
func (l *Link) decodeVLANs(b []byte) []byte {
	for (l.Type == typeVLAN || l.Type == typeQinQ) && len(b) >= 4 && len(l.VLANs) < maxVLANs {
		l.VLANs = append(l.VLANs, binary.BigEndian.Uint16(b)&0x0FFF)
		l.Type = binary.BigEndian.Uint16(b[2:])
		b = b[4:]
	}
	return b
}
