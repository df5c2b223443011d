package ib

import (
	"encoding/binary"
	"math/bits"
	"slices"
)

// Unseen returns a packet that was parsed without what an ordinary UDP socket does not
// show of it: of IPv4 all but addresses, traffic class and hop limit, of UDP all but the
// ports, and what is behind. Whoever looks at that finds nothing.
func (p Packet) Unseen() Packet {
	h := &p.IP
	h.IHL, h.Length, h.ID, h.ReservedFlag, h.DF, h.MF, h.FragOff, h.Checksum, h.Options = nil, nil, nil, nil, nil, nil, nil, nil, nil
	p.UDP.Length, p.UDP.Checksum = nil, nil
	p.Behind, p.Trailer = nil, nil
	p.unseen = true
	return p
}

// About names what p, an expectation, says of what was not seen of got. Nothing can be said
// of such a packet then.
func (p Packet) About(got Packet) (unseen []string) {
	if !got.unseen {
		return nil
	}
	h, u := p.IP, p.UDP
	for _, f := range []struct {
		asked bool
		name  string
	}{
		{h.IHL != nil, "IHL"},
		{h.Length != nil, "IP length"},
		{h.ID != nil, "IP identification"},
		{h.ReservedFlag != nil, "reserved IP flag"},
		{h.DF != nil, "DF"},
		{h.MF != nil, "MF"},
		{h.FragOff != nil, "fragment offset"},
		{h.Checksum != nil, "IP checksum"},
		{h.Options != nil, "IP options"},
		{u.Length != nil, "UDP length"},
		{u.Checksum != nil, "UDP checksum"},
		{p.Behind != nil, "what is behind the datagram"},
	} {
		if f.asked {
			unseen = append(unseen, f.name)
		}
	}
	return unseen
}

// Identify finds the identification and the flag DF with which the ICRC of an IPv4 packet
// is right, without looking at those that it has. Two of a random ICRC's 65,536 would do:
// if there is one, it is most likely what was on the wire, and if there is none, the ICRC
// was wrong.
//
// A CRC is linear: a bit of the packet changes the same bits of the CRC, whatever the
// others are. So the bits that are missing are found by elimination.
func Identify(ip []byte) (id uint16, df, ok bool) {
	b := slices.Clone(ip)
	if len(b) < 20 || b[0]>>4 != 4 {
		return 0, false, false
	}
	const flag = 0x40 // DF, in byte 6
	b[4], b[5], b[6] = 0, 0, b[6]&^flag
	right, err := ICRC(b)
	if err != nil {
		return 0, false, false
	}
	missing := right ^ binary.LittleEndian.Uint32(b[len(b)-icrcLen:])
	var rows icrcRows
	for i := range 17 {
		at, bit := 4+i/8, byte(0x80)>>(i%8)
		if i == 16 {
			at, bit = 6, flag
		}
		b[at] ^= bit
		with, _ := ICRC(b)
		b[at] ^= bit
		if r := rows.reduce(icrcRow{changes: with ^ right, bits: 1 << (16 - i)}); r.changes != 0 {
			rows[bits.Len32(r.changes)-1] = r
		}
	}
	left := rows.reduce(icrcRow{changes: missing})
	return uint16(left.bits >> 1), left.bits&1 != 0, left.changes == 0
}

// icrcRow are bits of a header, the identification and then DF, and what they change of
// the ICRC.
type icrcRow struct{ changes, bits uint32 }

// icrcRows are rows by the first bit that they change.
type icrcRows [32]icrcRow

// reduce takes rows away from one as long as they take away its bits, the first ones
// first.
func (rows *icrcRows) reduce(r icrcRow) icrcRow {
	for i := len(rows) - 1; i >= 0; i-- {
		if r.changes>>i&1 != 0 {
			r.changes, r.bits = r.changes^rows[i].changes, r.bits^rows[i].bits
		}
	}
	return r
}
