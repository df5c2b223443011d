package packet

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
)

// Protocol numbers.
const (
	ProtocolTCP      = 6
	ProtocolUDP      = 17
	ProtocolFragment = 44 // the fragment header of IPv6
	ProtocolICMPv6   = 58
)

// IP is an IPv4 or IPv6 header; the family of its addresses decides. Comments name the
// value of a nil field when building.
type IP struct {
	Src, Dst netip.Addr
	Version  *uint8 // that of the addresses
	IHL      *uint8 // IPv4 header length in 4-byte words: the actual length
	TClass   *uint8 // DSCP and ECN: 0
	// Length is the total length of an IPv4 packet, or the payload length of an IPv6
	// packet: the actual length.
	Length *uint16
	// ID is the identification: 0. IPv6 has it only in the fragment header.
	ID *uint32
	// ReservedFlag (false), DF (don't fragment: true), MF (more fragments: false) are IPv4 flags.
	ReservedFlag, DF, MF *bool
	// FragOff is the fragment offset in units of eight bytes: 0. An IPv6 packet gets a
	// fragment header if FragOff, MF or ID is set.
	FragOff   *uint16
	HopLimit  *uint8  // also the TTL of IPv4: 64
	Protocol  *uint8  // protocol or next header: UDP
	Checksum  *uint16 // IPv4 header checksum: the correct one
	Options   []byte  // of IPv4, padded with zeros to whole words: none
	FlowLabel *uint32 // of IPv6: 0
}

// Is6 reports whether the header is an IPv6 header, by its addresses.
func (h IP) Is6() bool { return is6(h.Src) || is6(h.Dst) }

func is6(a netip.Addr) bool { return a.Is6() && !a.Is4In6() }

// Fragmented reports whether the packet is a fragment.
func (h IP) Fragmented() bool { return Get(h.MF, false) || Get(h.FragOff, 0) != 0 }

// WithoutComputed returns h without version, IHL, length and checksum, which Append then computes.
func (h IP) WithoutComputed() IP {
	h.Version, h.IHL, h.Length, h.Checksum = nil, nil, nil, nil
	return h
}

// Append appends the packet of this header and payload. It computes nil fields, or uses defaults.
func (h IP) Append(b, payload []byte) []byte {
	if h.Is6() {
		return h.append6(b, payload)
	}
	return h.append4(b, payload)
}

// append4 appends an IPv4 packet, with defaults for nil fields of the header.
func (h IP) append4(b, payload []byte) []byte {
	options := append([]byte(nil), h.Options...)
	for len(options)%4 != 0 {
		options = append(options, 0)
	}
	at, size := len(b), 20+len(options)
	b = append(b, Get(h.Version, 4)<<4|Get(h.IHL, uint8(size/4))&15, Get(h.TClass, 0))
	b = binary.BigEndian.AppendUint16(b, Get(h.Length, uint16(size+len(payload))))
	b = binary.BigEndian.AppendUint16(b, uint16(Get(h.ID, 0)))
	flagsAndOffset := Get(h.FragOff, 0) & 0x1fff
	for i, set := range []bool{Get(h.ReservedFlag, false), Get(h.DF, true), Get(h.MF, false)} {
		if set {
			flagsAndOffset |= 0x8000 >> i
		}
	}
	b = binary.BigEndian.AppendUint16(b, flagsAndOffset)
	b = append(b, Get(h.HopLimit, 64), Get(h.Protocol, ProtocolUDP), 0, 0)
	src, dst := addr4(h.Src), addr4(h.Dst)
	b = append(append(append(b, src[:]...), dst[:]...), options...)
	binary.BigEndian.PutUint16(b[at+10:], Get(h.Checksum, Checksum(b[at:])))
	return append(b, payload...)
}

// append6 appends an IPv6 packet, with a fragment header if one of its fields is set.
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

// Diff adds to d the fields that are set in the expected header h and differ in got.
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

// Get returns *p, or def if p is nil.
func Get[T any](p *T, def T) T {
	if p == nil {
		return def
	}
	return *p
}

// ParseIP splits an IP packet into header, payload (up to the length in the header), and trailer
// (frame padding). Payload and trailer alias b. It checks the lengths but not the checksum.
func ParseIP(b []byte) (h IP, payload, trailer []byte, err error) {
	h, size, err := ParseIPHeader(b)
	if err != nil {
		return h, b[size:], nil, err
	}
	end := int(*h.Length)
	if h.Is6() {
		end += 40 // the length does not count the IPv6 header
	}
	switch {
	case end < size:
		return h, nil, b[size:], fmt.Errorf("IP length %d ends within the header", *h.Length)
	case end > len(b):
		return h, b[size:], nil, fmt.Errorf("IP payload: %w: the header says %d bytes, there are %d", ErrShort, end, len(b))
	}
	return h, b[size:end], b[end:], nil
}

// ParseIPHeader parses the IPv4 or IPv6 header at the start of b, and returns its length, which
// includes options or a fragment header. After an error, size is the length of the parsed part.
func ParseIPHeader(b []byte) (h IP, size int, err error) {
	if len(b) == 0 {
		return IP{}, 0, fmt.Errorf("IP header: %w: no byte", ErrShort)
	}
	switch b[0] >> 4 {
	case 4:
		return parse4(b)
	case 6:
		return parse6(b)
	}
	return IP{Version: new(b[0] >> 4)}, 0, fmt.Errorf("IP version %d is neither 4 nor 6", b[0]>>4)
}

// parse4 parses an IPv4 header with its options, and returns its length; after an error, that of the
// part that it parsed.
func parse4(b []byte) (h IP, size int, err error) {
	if len(b) < 20 {
		return IP{Version: new(uint8(4))}, 0, fmt.Errorf("IPv4 header: %w: %d of 20 bytes", ErrShort, len(b))
	}
	flags := binary.BigEndian.Uint16(b[6:])
	h = IP{
		Version: new(b[0] >> 4), IHL: new(b[0] & 15), TClass: new(b[1]),
		Length: new(binary.BigEndian.Uint16(b[2:])), ID: new(uint32(binary.BigEndian.Uint16(b[4:]))),
		ReservedFlag: new(flags&0x8000 != 0), DF: new(flags&0x4000 != 0), MF: new(flags&0x2000 != 0),
		FragOff: new(flags & 0x1fff), HopLimit: new(b[8]), Protocol: new(b[9]),
		Checksum: new(binary.BigEndian.Uint16(b[10:])),
		Src:      netip.AddrFrom4([4]byte(b[12:])), Dst: netip.AddrFrom4([4]byte(b[16:])),
		Options: []byte{},
	}
	size = 4 * int(*h.IHL)
	switch {
	case size < 20:
		return h, 20, fmt.Errorf("IHL %d is less than 5", *h.IHL)
	case size > len(b):
		return h, 20, fmt.Errorf("IPv4 options: %w: the header has %d bytes, there are %d", ErrShort, size, len(b))
	}
	h.Options = append(h.Options, b[20:size]...)
	return h, size, nil
}

// parse6 parses an IPv6 header, and a fragment header if one follows, and returns their length;
// after an error, that of the part that it parsed.
func parse6(b []byte) (h IP, size int, err error) {
	if len(b) < 40 {
		return IP{Version: new(uint8(6))}, 0, fmt.Errorf("IPv6 header: %w: %d of 40 bytes", ErrShort, len(b))
	}
	word := binary.BigEndian.Uint32(b)
	h = IP{
		Version: new(b[0] >> 4), TClass: new(uint8(word >> 20)), FlowLabel: new(word & 0xfffff),
		Length: new(binary.BigEndian.Uint16(b[4:])), Protocol: new(b[6]), HopLimit: new(b[7]),
		Src: netip.AddrFrom16([16]byte(b[8:])), Dst: netip.AddrFrom16([16]byte(b[24:])),
	}
	if !h.Is6() {
		return h, 40, errors.New("IPv6 header with IPv4-mapped addresses")
	}
	if b[6] != ProtocolFragment {
		return h, 40, nil
	}
	if len(b) < 48 {
		return h, 40, fmt.Errorf("IPv6 fragment header: %w: %d of 8 bytes", ErrShort, len(b)-40)
	}
	off := binary.BigEndian.Uint16(b[42:])
	h.Protocol, h.MF, h.FragOff = new(b[40]), new(off&1 != 0), new(off>>3)
	h.ID = new(binary.BigEndian.Uint32(b[44:]))
	if b[41] != 0 || off&6 != 0 {
		return h, 48, errors.New("IPv6 fragment header: reserved bits are set")
	}
	return h, 48, nil
}

// Fragments splits an IPv4 packet into two fragments. The first gets the first n bytes of the
// payload; n must be a multiple of 8.
func Fragments(ip []byte, n int) ([][]byte, error) {
	h, payload, _, err := ParseIP(ip)
	if err != nil {
		return nil, fmt.Errorf("packet to be fragmented: %w", err)
	}
	h = h.WithoutComputed() // Append computes the lengths and checksums of the fragments
	first, second := h, h
	first.DF, first.MF = new(false), new(true)
	second.DF, second.FragOff = new(false), new(uint16(n/8))
	return [][]byte{first.Append(nil, bytes.Clone(payload[:n])), second.Append(nil, bytes.Clone(payload[n:]))}, nil
}
