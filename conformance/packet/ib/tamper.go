package ib

import (
	"math/bits"
	"slices"
)

// WithICRC sets the ICRC.
func (p Packet) WithICRC(icrc uint32) Packet { p.ICRC = &icrc; return p }

// Sealed has f choose the ICRC, given the right one.
func (p Packet) Sealed(f func(right uint32) uint32) Packet { p.seal = f; return p }

// BadICRC sends an ICRC with one bit turned.
func (p Packet) BadICRC() Packet {
	return p.Sealed(func(right uint32) uint32 { return right ^ 1 })
}

// SwappedICRC sends the ICRC in the order of all other fields, the most significant
// byte first.
func (p Packet) SwappedICRC() Packet { return p.Sealed(bits.ReverseBytes32) }

// InFlight changes the packet after its ICRC has been computed, as something on its
// way might; lengths and checksums are right for what comes out:
//
//	ib.SendOnly(psn, data).InFlight(func(p *ib.Packet) { p.IP.ID = new(uint32(7)) })
//
// The function finds the fields that were set, those of [Packet.Or] included.
func (p Packet) InFlight(change func(*Packet)) Packet {
	p.odd = append(slices.Clip(p.odd), change)
	return p
}

// Damaged changes the bytes of the finished IP packet, and nothing is put right.
func (p Packet) Damaged(change func(ip []byte)) Packet {
	p.damage = append(slices.Clip(p.damage), change)
	return p
}
