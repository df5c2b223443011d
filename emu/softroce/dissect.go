package softroce

import (
	"encoding/binary"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/fabrictest/fabrictest/emu/impair"
	"github.com/fabrictest/fabrictest/emu/link"
	"github.com/fabrictest/fabrictest/emu/sim"
	"github.com/fabrictest/fabrictest/emu/softroce/wire"
)

// Dissector lets impairments select RoCEv2 packets by destination QP and PSN, and change
// their fields with a correct ICRC.
type Dissector struct{}

var _ sim.MemoryDissector = Dissector{}

// Dissect implements impair.Dissector: it returns the destination QP and the PSN; false if the
// payload is too short for a BTH and an ICRC.
func (Dissector) Dissect(payload []byte) (impair.Flow, uint32, bool) {
	if len(payload) < wire.BTHLen+wire.ICRCLen {
		return 0, 0, false
	}
	qpn := binary.BigEndian.Uint32(payload[4:]) & 0xffffff
	psn := binary.BigEndian.Uint32(payload[8:]) & 0xffffff
	return impair.Flow(qpn), psn, true
}

// IsReadResponse implements sim.MemoryDissector.
func (Dissector) IsReadResponse(payload []byte) bool {
	info, ok := infoOf(payload)
	return ok && info.Class.Has(wire.Response|wire.Read)
}

// ConsumesReceive implements sim.MemoryDissector.
func (Dissector) ConsumesReceive(payload []byte) bool {
	info, ok := infoOf(payload)
	return ok && info.Class.Has(wire.ConsumesRecv)
}

// RemoteAddr implements sim.MemoryDissector: it returns the address in the RETH.
func (Dissector) RemoteAddr(payload []byte) (addr uint64, ok bool) {
	info, ok := infoOf(payload)
	if !ok || !info.Headers.Has(wire.HasRETH) {
		return 0, false
	}
	at := wire.BTHLen + (info.Headers & (wire.HasRETH - 1)).Len()
	if len(payload) < at+8 {
		return 0, false
	}
	return binary.BigEndian.Uint64(payload[at:]), true
}

// infoOf returns what the opcode of a packet says; false for an unknown or a short packet.
func infoOf(payload []byte) (info wire.Info, ok bool) {
	if len(payload) < wire.BTHLen {
		return info, false
	}
	return wire.Opcode(payload[0]).Info()
}

// field is a header field: bits of the big-endian number of size bytes at offset.
type field struct {
	header       wire.HeaderSet // 0 for the BTH
	offset, size int
	shift, bits  uint
}

var fields = map[string]field{
	"bth.opcode":    {offset: 0, size: 1, bits: 8},
	"bth.solicited": {offset: 1, size: 1, shift: 7, bits: 1},
	"bth.migreq":    {offset: 1, size: 1, shift: 6, bits: 1},
	"bth.pad":       {offset: 1, size: 1, shift: 4, bits: 2},
	"bth.tver":      {offset: 1, size: 1, bits: 4},
	"bth.pkey":      {offset: 2, size: 2, bits: 16},
	"bth.fecn":      {offset: 4, size: 1, shift: 7, bits: 1},
	"bth.becn":      {offset: 4, size: 1, shift: 6, bits: 1},
	"bth.destqp":    {offset: 4, size: 4, bits: 24},
	"bth.ackreq":    {offset: 8, size: 1, shift: 7, bits: 1},
	"bth.psn":       {offset: 8, size: 4, bits: 24},

	"aeth.syndrome": {header: wire.HasAETH, offset: 0, size: 1, bits: 8},
	"aeth.msn":      {header: wire.HasAETH, offset: 0, size: 4, bits: 24},
	"reth.va":       {header: wire.HasRETH, offset: 0, size: 8, bits: 64},
	"reth.rkey":     {header: wire.HasRETH, offset: 8, size: 4, bits: 32},
	"reth.length":   {header: wire.HasRETH, offset: 12, size: 4, bits: 32},
	"deth.qkey":     {header: wire.HasDETH, offset: 0, size: 4, bits: 32},
	"deth.srcqp":    {header: wire.HasDETH, offset: 4, size: 4, bits: 24},
	"immdt":         {header: wire.HasImm, offset: 0, size: 4, bits: 32},
	"ieth.rkey":     {header: wire.HasIETH, offset: 0, size: 4, bits: 32},
	"xrceth.srqn":   {header: wire.HasXRCETH, offset: 0, size: 4, bits: 24},

	"atomiceth.va":      {header: wire.HasAtomicETH, offset: 0, size: 8, bits: 64},
	"atomiceth.rkey":    {header: wire.HasAtomicETH, offset: 8, size: 4, bits: 32},
	"atomiceth.swapadd": {header: wire.HasAtomicETH, offset: 12, size: 8, bits: 64},
	"atomiceth.compare": {header: wire.HasAtomicETH, offset: 20, size: 8, bits: 64},
}

// FieldNames lists the fields of SetField.
func FieldNames() []string { return slices.Sorted(maps.Keys(fields)) }

// SetField implements impair.Dissector: it sets a field, one of FieldNames, and updates the ICRC.
// It returns an error if the packet does not have the field, or if the value does not fit.
func (Dissector) SetField(d *link.Datagram, name string, value uint64) error {
	f, ok := fields[name]
	if !ok {
		return fmt.Errorf("no field %q in RoCEv2; there are %s", name, strings.Join(FieldNames(), ", "))
	}
	if f.bits < 64 && value>>f.bits != 0 {
		return fmt.Errorf("field %s has %d bits: %#x does not fit", name, f.bits, value)
	}
	if len(d.Payload) < wire.BTHLen+wire.ICRCLen {
		return fmt.Errorf("field %s: %w", name, wire.ErrShort)
	}
	at := f.offset
	if f.header != 0 {
		info, ok := wire.Opcode(d.Payload[0]).Info()
		if !ok || !info.Headers.Has(f.header) {
			return fmt.Errorf("field %s: %v has no such header", name, wire.Opcode(d.Payload[0]))
		}
		// Headers follow the BTH in the order of their bits: f.header-1 selects those before.
		at += wire.BTHLen + (info.Headers & (f.header - 1)).Len()
	}
	if at+f.size > len(d.Payload)-wire.ICRCLen {
		return fmt.Errorf("field %s: %w", name, wire.ErrShort)
	}
	putBits(d.Payload[at:at+f.size], f, value)
	id := uint16(d.IPID) // 0 for link.IPIDUnknown
	wire.NewICRC(d.Src, d.Dst).Seal(id, d.Payload)
	return nil
}

// putBits sets the bits of field f in b, the f.size bytes that hold it, and keeps the other bits.
func putBits(b []byte, f field, value uint64) {
	var n uint64 // the bytes as a big-endian number
	for _, v := range b {
		n = n<<8 | uint64(v)
	}
	mask := ^uint64(0)
	if f.bits < 64 {
		mask = (1<<f.bits - 1) << f.shift
	}
	n = n&^mask | value<<f.shift&mask
	for i := len(b) - 1; i >= 0; i-- {
		b[i] = byte(n)
		n >>= 8
	}
}

// FindIPID returns the IPv4 identification for which the ICRC of a received RoCEv2 packet is
// right, for links that do not report the identification. ok is false if none is right, or if
// d is not a RoCEv2 packet over IPv4.
func FindIPID(d *link.Datagram) (id uint16, ok bool) {
	if d.Dst.Port() != wire.Port || !d.Is4() {
		return 0, false
	}
	return wire.NewICRC(d.Src, d.Dst).CheckAnyIPID(d.Payload)
}
