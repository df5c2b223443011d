package packet

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
)

// ParseIP splits an IP packet into header, payload by the length in the header, and
// trailer, the padding of the frame. Payload and trailer alias b. It checks the layout
// only, not the checksum.
func ParseIP(b []byte) (h IP, payload, trailer []byte, err error) {
	h, size, err := ParseIPHeader(b)
	if err != nil {
		return h, b[size:], nil, err
	}
	end := int(*h.Length)
	if h.Is6() {
		end += 40
	}
	switch {
	case end < size:
		return h, nil, b[size:], fmt.Errorf("IP length %d ends within the header", *h.Length)
	case end > len(b):
		return h, b[size:], nil, fmt.Errorf("IP payload: %w: the header says %d bytes, there are %d", ErrShort, end, len(b))
	}
	return h, b[size:end], b[end:], nil
}

// ParseIPHeader parses the header at the start of b, and returns its length.
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
