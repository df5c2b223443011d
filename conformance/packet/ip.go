package packet

import (
	"encoding/binary"
	"net/netip"
)

// Protocol numbers.
const (
	ProtocolTCP      = 6
	ProtocolUDP      = 17
	ProtocolFragment = 44 // the fragment header of IPv6
	ProtocolICMPv6   = 58
)

// IP is the header of an IPv4 or an IPv6 packet: the family of its addresses says of
// which.
type IP struct {
	Src, Dst netip.Addr
	// Version is the number in the first four bits: that of the addresses.
	Version *uint8
	// IHL is the length of an IPv4 header in words of four bytes: what it has.
	IHL *uint8
	// TClass is DSCP and ECN: 0.
	TClass *uint8
	// Length is the total length of an IPv4 packet, and of an IPv6 packet what follows
	// the header: what there is.
	Length *uint16
	// ID is 0. An IPv6 packet has one in its fragment header only.
	ID *uint32
	// ReservedFlag is the first of the three flags of IPv4: 0.
	ReservedFlag *bool
	// DF forbids fragments, in IPv4: true.
	DF *bool
	// MF says that there are more fragments: false.
	MF *bool
	// FragOff is where in its packet a fragment begins, in units of eight bytes: 0.
	// An IPv6 packet gets a fragment header when it, MF or ID is set.
	FragOff *uint16
	// HopLimit is the time to live of IPv4: 64.
	HopLimit *uint8
	// Protocol is UDP.
	Protocol *uint8
	// Checksum is that of the IPv4 header.
	Checksum *uint16
	// Options of IPv4 are filled up to whole words with zeros: none.
	Options []byte
	// FlowLabel of IPv6 is 0.
	FlowLabel *uint32
}

// Is6 reports whether the layout is that of IPv6.
func (h IP) Is6() bool { return is6(h.Src) || is6(h.Dst) }

func is6(a netip.Addr) bool { return a.Is6() && !a.Is4In6() }

// Fragmented reports whether the packet is a part of a larger one.
func (h IP) Fragmented() bool { return Get(h.MF, false) || Get(h.FragOff, 0) != 0 }

// Fresh returns h without what follows from the rest of the packet, so that building
// computes it: version, header length, length and checksum.
func (h IP) Fresh() IP {
	h.Version, h.IHL, h.Length, h.Checksum = nil, nil, nil, nil
	return h
}

// Append appends the packet with this header and payload.
func (h IP) Append(b, payload []byte) []byte {
	if h.Is6() {
		return h.append6(b, payload)
	}
	return h.append4(b, payload)
}

func (h IP) append4(b, payload []byte) []byte {
	options := append([]byte(nil), h.Options...)
	for len(options)%4 != 0 {
		options = append(options, 0)
	}
	at, size := len(b), 20+len(options)
	b = append(b, Get(h.Version, 4)<<4|Get(h.IHL, uint8(size/4))&15, Get(h.TClass, 0))
	b = binary.BigEndian.AppendUint16(b, Get(h.Length, uint16(size+len(payload))))
	b = binary.BigEndian.AppendUint16(b, uint16(Get(h.ID, 0)))
	flags := Get(h.FragOff, 0) & 0x1fff
	for i, f := range []bool{Get(h.ReservedFlag, false), Get(h.DF, true), Get(h.MF, false)} {
		if f {
			flags |= 0x8000 >> i
		}
	}
	b = binary.BigEndian.AppendUint16(b, flags)
	b = append(b, Get(h.HopLimit, 64), Get(h.Protocol, ProtocolUDP), 0, 0)
	src, dst := addr4(h.Src), addr4(h.Dst)
	b = append(append(append(b, src[:]...), dst[:]...), options...)
	binary.BigEndian.PutUint16(b[at+10:], Get(h.Checksum, Checksum(b[at:])))
	return append(b, payload...)
}

func (h IP) append6(b, payload []byte) []byte {
	var fragment []byte
	next := Get(h.Protocol, ProtocolUDP)
	if h.FragOff != nil || h.MF != nil || h.ID != nil {
		more := uint16(0)
		if Get(h.MF, false) {
			more = 1
		}
		fragment = append(fragment, next, 0)
		fragment = binary.BigEndian.AppendUint16(fragment, Get(h.FragOff, 0)<<3|more)
		fragment = binary.BigEndian.AppendUint32(fragment, Get(h.ID, 0))
		next = ProtocolFragment
	}
	word := uint32(Get(h.Version, 6))<<28 | uint32(Get(h.TClass, 0))<<20 | Get(h.FlowLabel, 0)&0xfffff
	b = binary.BigEndian.AppendUint32(b, word)
	b = binary.BigEndian.AppendUint16(b, Get(h.Length, uint16(len(fragment)+len(payload))))
	b = append(b, next, Get(h.HopLimit, 64))
	src, dst := addr16(h.Src), addr16(h.Dst)
	b = append(append(append(b, src[:]...), dst[:]...), fragment...)
	return append(b, payload...)
}

// Diff adds to d where the header got is not as h, the expected one, says.
func (h IP) Diff(d *Differences, got IP) {
	DiffAddr(d, "source address", h.Src, got.Src)
	DiffAddr(d, "destination address", h.Dst, got.Dst)
	DiffValue(d, "IP version", "%d", h.Version, got.Version)
	DiffValue(d, "IHL", "%d", h.IHL, got.IHL)
	DiffValue(d, "traffic class", "%#02x", h.TClass, got.TClass)
	DiffValue(d, "IP length", "%d", h.Length, got.Length)
	DiffValue(d, "IP identification", "%#x", h.ID, got.ID)
	DiffValue(d, "reserved IP flag", "%v", h.ReservedFlag, got.ReservedFlag)
	DiffValue(d, "DF", "%v", h.DF, got.DF)
	DiffValue(d, "MF", "%v", h.MF, got.MF)
	DiffValue(d, "fragment offset", "%d", h.FragOff, got.FragOff)
	DiffValue(d, "hop limit", "%d", h.HopLimit, got.HopLimit)
	DiffValue(d, "protocol", "%d", h.Protocol, got.Protocol)
	DiffValue(d, "IP checksum", "%#04x", h.Checksum, got.Checksum)
	DiffBytes(d, "IP options", h.Options, got.Options)
	DiffValue(d, "flow label", "%#x", h.FlowLabel, got.FlowLabel)
}

// Get returns what p points to, or def.
func Get[T any](p *T, def T) T {
	if p == nil {
		return def
	}
	return *p
}
