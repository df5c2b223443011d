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

// Further EtherTypes; package link has those of IP.
const (
	typeARP  = 0x0806
	typeVLAN = 0x8100
	typeQinQ = 0x88A8
	typeLLDP = 0x88CC
	typeRoCE = 0x8915 // RoCEv1
)

// linkHeaders are the decoded link headers. typeAt is the offset of the EtherType, or -1.
var linkHeaders = map[LinkType]struct{ length, typeAt int }{
	LinkRaw: {0, -1}, LinkRawBSD: {0, -1}, LinkIPv4: {0, -1}, LinkIPv6: {0, -1}, LinkNull: {4, -1}, LinkLoop: {4, -1},
	LinkEthernet: {14, 12}, LinkSLL: {16, 14}, LinkSLL2: {20, 0},
}

// decodeLink decodes the link header and returns the rest; ok is false if it cannot be decoded.
func (s *Stream) decodeLink() (rest []byte, ok bool) {
	const maxVLANs = 4 // more tags are not decoded
	p, b := &s.p, s.p.Data
	h, known := linkHeaders[p.Interface.LinkType]
	switch {
	case !known:
		p.Protocol, p.Note = "-", fmt.Sprintf("%d bytes of link type %d, which is not decoded", p.Length, p.Interface.LinkType)
		return nil, false
	case len(b) < h.length:
		p.Protocol, p.Note = "-", fmt.Sprintf("%d bytes, too short for a link header", len(b))
		return nil, false
	case h.typeAt < 0: // IP without a type field
		return b[h.length:], true
	}
	p.Link.Type = binary.BigEndian.Uint16(b[h.typeAt:])
	if p.Interface.LinkType == LinkEthernet {
		p.Link.Dst, p.Link.Src, p.Link.HasMAC = [6]byte(b), [6]byte(b[6:]), true
	}
	l, b := &p.Link, b[h.length:]
	for (l.Type == typeVLAN || l.Type == typeQinQ) && len(b) >= 4 && len(l.VLANs) < maxVLANs {
		l.VLANs = append(l.VLANs, binary.BigEndian.Uint16(b)&0x0FFF)
		l.Type = binary.BigEndian.Uint16(b[2:])
		b = b[4:]
	}
	return b, true
}
