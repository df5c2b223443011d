package ib

import (
	"math/bits"
	"slices"
)

// Sealed lets f choose the ICRC, given the correct one.
func (p Packet) Sealed(f func(right uint32) uint32) Packet { p.seal = f; return p }

// BadICRC flips one bit of the ICRC.
func (p Packet) BadICRC() Packet {
	return p.Sealed(func(right uint32) uint32 { return right ^ 1 })
}

// SwappedICRC sends the most significant byte of the ICRC first.
func (p Packet) SwappedICRC() Packet { return p.Sealed(bits.ReverseBytes32) }

// InFlight changes the packet after its ICRC was computed, like a device on the path.
// Lengths and checksums are computed for the changed packet:
//
//	ib.SendOnly(psn, data).InFlight(func(p *ib.Packet) { p.IP.ID = new(uint32(7)) })
//
// The function sees the fields that were set, those of [Packet.Or] included.
func (p Packet) InFlight(change func(*Packet)) Packet {
	p.odd = append(slices.Clip(p.odd), change)
	return p
}

// Damaged changes the bytes of the finished IP packet. Nothing is recomputed.
func (p Packet) Damaged(change func(ip []byte)) Packet {
	p.damage = append(slices.Clip(p.damage), change)
	return p
}
