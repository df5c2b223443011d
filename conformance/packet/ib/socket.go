package ib

import (
	"encoding/binary"
	"math/bits"
	"slices"

	"github.com/fabrictest/fabrictest/conformance/packet"
)

// AsFromSocket returns a parsed packet as if a UDP socket had received it, without the fields that
// the socket does not report: IPv4 fields other than addresses, traffic class and hop limit, UDP
// fields other than the ports, and trailing bytes.
func (p Packet) AsFromSocket() Packet {
	h := &p.IP
	h.IHL, h.Length, h.ID, h.ReservedFlag, h.DF, h.MF, h.FragOff, h.Checksum, h.Options = nil, nil, nil, nil, nil, nil, nil, nil, nil
	p.UDP.Length, p.UDP.Checksum = nil, nil
	p.Behind, p.Trailer = nil, nil
	p.fromSocket = true
	return p
}

// UnseenFields returns the names of the fields that are set in p, the expected packet, and unknown
// in got, the received one, because a UDP socket did not report them. A case cannot check them.
func (p Packet) UnseenFields(got Packet) (unseen []string) {
	if !got.fromSocket {
		return nil
	}
	var d packet.Differences
	p.IP.Diff(&d, got.IP)
	p.UDP.Diff(&d, got.UDP)
	for _, field := range d {
		if field.Got == packet.NoValue {
			unseen = append(unseen, field.Field)
		}
	}
	if p.IP.Options != nil || p.Behind != nil { // Diff takes nil in got as empty
		unseen = append(unseen, "IP options, and bytes behind the datagram")
	}
	return unseen
}

// Identify finds the IPv4 identification and DF flag, which a UDP socket does not report, from the
// ICRC: those for which the ICRC is correct. ok is false if there are none. The 17 bits have 2^17
// values, so a wrong ICRC, one of 2^32, has a solution with a probability of only 2^-15.
//
// A CRC is linear: each field bit flips fixed CRC bits. Gaussian elimination finds the field bits.
func Identify(ip []byte) (id uint16, df, ok bool) {
	b := slices.Clone(ip)
	if len(b) < 20 || b[0]>>4 != 4 {
		return 0, false, false
	}
	const flagDF = 0x40 // in byte 6
	b[4], b[5], b[6] = 0, 0, b[6]&^flagDF
	correct, err := ICRC(b)
	if err != nil {
		return 0, false, false
	}
	difference := correct ^ binary.LittleEndian.Uint32(b[len(b)-icrcLen:])
	var rows icrcRows
	for i := range 17 { // the bits of the identification, the highest first, and DF
		at, bit := 4+i/8, byte(0x80)>>(i%8) // of the identification, in bytes 4 and 5
		if i == 16 {
			at, bit = 6, flagDF
		}
		b[at] ^= bit
		flipped, _ := ICRC(b)
		b[at] ^= bit
		if r := rows.reduce(icrcRow{changes: flipped ^ correct, bits: 1 << (16 - i)}); r.changes != 0 {
			rows[bits.Len32(r.changes)-1] = r
		}
	}
	solution := rows.reduce(icrcRow{changes: difference})
	return uint16(solution.bits >> 1), solution.bits&1 != 0, solution.changes == 0
}

// icrcRow is a set of bits of the identification and DF, and the ICRC bits that they change.
type icrcRow struct{ changes, bits uint32 }

// icrcRows are rows by the highest ICRC bit that they change.
type icrcRows [32]icrcRow

// reduce clears the set bits of r.changes, the highest first. It clears bit i by XOR with rows[i],
// the row whose highest set bit is i. Without such a row the bit stays set.
func (rows *icrcRows) reduce(r icrcRow) icrcRow {
	for i := len(rows) - 1; i >= 0; i-- {
		if r.changes>>i&1 != 0 {
			r.changes, r.bits = r.changes^rows[i].changes, r.bits^rows[i].bits
		}
	}
	return r
}
