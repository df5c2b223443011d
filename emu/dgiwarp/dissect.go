package dgiwarp

import (
	"encoding/binary"
	"fmt"

	"github.com/fabrictest/fabrictest/emu/dgiwarp/wire"
	"github.com/fabrictest/fabrictest/emu/impair"
	ddp "github.com/fabrictest/fabrictest/emu/iwarp/wire"
	"github.com/fabrictest/fabrictest/emu/link"
)

// Dissector lets impairments select packets by destination QP and number (sequence number on
// RD, MSN of an untagged segment on UD), and change their fields with a correct CRC.
type Dissector struct{}

var _ impair.Dissector = Dissector{}

// Dissect implements impair.Dissector. It returns the flow of a packet, which is its destination
// QP, and the packet's number in that flow: the sequence number of RD data, or the MSN of an
// untagged UD segment. It returns false for other packets, which have no number.
func (Dissector) Dissect(payload []byte) (impair.Flow, uint32, bool) {
	var p wire.Packet
	if p.Parse(payload) != nil {
		return 0, 0, false
	}
	flow := impair.Flow(p.DstQP)
	switch {
	case p.Kind == wire.KindRD && p.Flags.Has(wire.FlagData):
		return flow, uint32(p.Data.Seq), true
	case p.Kind == wire.KindUD:
		var h ddp.Header
		if _, err := h.Parse(p.ULPDU); err == nil && !h.Control.Tagged {
			return flow, uint32(h.Untagged.MSN), true
		}
	}
	return flow, 0, false
}

// SetField implements impair.Dissector. It sets a field of the packet header, "kind", "flags",
// "destqp", "srcqp" or "key", and updates the CRC.
func (Dissector) SetField(d *link.Datagram, name string, value uint64) error {
	b := d.Payload
	if len(b) < wire.HeaderLen+wire.CRCLen {
		return fmt.Errorf("field %s: %w", name, wire.ErrShort)
	}
	offset, size, mask := 0, 4, uint64(1)<<32-1
	switch name {
	case "kind":
		size, mask = 1, 0x0f
	case "flags":
		offset, size, mask = 1, 1, 0xff
	case "destqp":
		offset = 4
	case "srcqp":
		offset = 8
	case "key":
		offset = 12
	default:
		return fmt.Errorf("no field %q in datagram-iWARP; there are destqp, flags, key, kind, srcqp", name)
	}
	if value&^mask != 0 {
		return fmt.Errorf("field %s: %#x does not fit into %#x", name, value, mask)
	}
	if size == 1 {
		b[offset] = b[offset]&^byte(mask) | byte(value)
	} else {
		binary.BigEndian.PutUint32(b[offset:], uint32(value))
	}
	d.Payload = wire.AppendCRC(b[:len(b)-wire.CRCLen], 0) // the CRC covers the packet from octet 0
	return nil
}
