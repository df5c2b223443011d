package ethernet

import (
	"encoding/binary"
	"math/bits"
)

// sum adds b to s as big-endian 16-bit words in ones' complement, eight bytes
// at a time. fold reduces the result to 16 bits.
func sum(s uint64, b []byte) uint64 {
	var carry uint64
	for ; len(b) >= 8; b = b[8:] {
		s, carry = bits.Add64(s, binary.BigEndian.Uint64(b), carry)
	}
	s, carry = bits.Add64(s, carry, 0)
	if len(b) > 0 {
		var last [8]byte
		copy(last[:], b)
		var c uint64
		s, c = bits.Add64(s, binary.BigEndian.Uint64(last[:]), 0)
		carry += c
	}
	s, carry = bits.Add64(s, carry, 0)
	return s + carry
}

func fold(s uint64) uint16 {
	s = s>>32 + s&0xffffffff
	s = s>>32 + s&0xffffffff
	s = s>>16 + s&0xffff
	return uint16(s>>16 + s&0xffff)
}

// checksumAt returns the offset of the transport checksum; false for other
// protocols.
func (h *headers) checksumAt() (int, bool) {
	switch h.proto {
	case protoUDP:
		return h.l4 + 6, true
	case protoTCP:
		return h.l4 + 16, true
	}
	return 0, false
}

// pseudoSum returns the sum over the pseudo-header.
func (h *headers) pseudoSum(b []byte) uint64 {
	addresses := b[h.l3+12 : h.l3+20]
	if h.v6 {
		addresses = b[h.l3+8 : h.l3+40]
	}
	return sum(uint64(h.proto)+uint64(h.end-h.l4), addresses)
}

// setChecksum computes the transport checksum: over the pseudo-header only if
// the frame is partial, else over everything. A UDP checksum of 0 (none) is
// kept.
func (h *headers) setChecksum(b []byte, partial bool) {
	at, ok := h.checksumAt()
	if !ok {
		return
	}
	field := b[at : at+2]
	switch {
	case partial:
		binary.BigEndian.PutUint16(field, fold(h.pseudoSum(b)))
	case h.proto == protoUDP && field[0] == 0 && field[1] == 0:
	default:
		field[0], field[1] = 0, 0
		check := ^fold(sum(h.pseudoSum(b), b[h.l4:h.end]))
		if check == 0 && h.proto == protoUDP {
			check = 0xffff
		}
		binary.BigEndian.PutUint16(field, check)
	}
}
