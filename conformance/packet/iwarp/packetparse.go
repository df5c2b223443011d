package iwarp

import (
	"encoding/binary"

	"github.com/fabrictest/fabrictest/conformance/packet"
)

// ReceivedPacket is a packet as it was received.
type ReceivedPacket struct {
	Packet
	Raw      []byte
	RightCRC uint32
	Odd      oddities // descriptions of unusual values
}

// ParsePacket parses a packet of any octets. Incomplete blocks are nil, and remaining octets are
// the trailer. The result does not alias b.
func ParsePacket(b []byte) ReceivedPacket {
	g := ReceivedPacket{Raw: append([]byte{}, b...)}
	b = g.Raw
	if n := len(b) - crcLen; n >= 0 {
		g.RightCRC = CRC32c(b[:n])
		crc := binary.LittleEndian.Uint32(b[n:])
		g.CRC = &crc
		g.CRCStatus = new(crcState(crc, g.RightCRC))
		b = b[:n:n]
	}
	rest, err := packet.ParseFields(b, &g.Header)
	if err != nil {
		g.Trailer = b
		g.Odd.addf("%d octets are too few for a packet", len(g.Raw))
		return g
	}
	short := false
	g.Trailer, short = g.parseBlocks(rest)
	if short {
		g.Odd.addf("%d octets are too few for the blocks", len(g.Raw))
	}
	g.findOddities(short)
	return g
}

// parseBlocks parses the blocks that kind and flags announce. It returns the rest, and
// whether a block is incomplete.
func (p *Packet) parseBlocks(b []byte) (rest []byte, short bool) {
	h := &p.Header
	switch *h.Kind {
	case KindUD:
		p.parseSegment(b)
		return nil, false
	case KindRD:
		return p.parseRD(b)
	case KindChallenge:
		p.Challenge, b = packet.ParseAs[ChallengeBlock](b)
		return b, p.Challenge == nil
	case KindRefusal:
		p.Refusal, b = packet.ParseAs[RefusalBlock](b)
		return b, p.Refusal == nil
	default:
		return b, false
	}
}

func (p *Packet) parseRD(b []byte) (rest []byte, short bool) {
	if *p.Header.HasAck {
		ok := false
		if p.Ack, b, ok = parseAck(b); !ok {
			return b, true
		}
	}
	if !*p.Header.HasData {
		return b, false
	}
	if p.Data, b = packet.ParseAs[DataBlock](b); p.Data == nil {
		return b, true
	}
	if *p.Header.Start {
		if p.Data.Start, b = packet.ParseAs[StartBlock](b); p.Data.Start == nil {
			return b, true
		}
	}
	p.parseSegment(b)
	return nil, false
}

// parseSegment parses the rest as a ULPDU.
func (p *Packet) parseSegment(b []byte) {
	s := ParseSegment(b)
	if s.Op() == OpExperimental && s.Verbatim == nil && s.IsTagged() {
		p.Record, s.Payload = packet.ParseAs[RecordHeader](s.Payload)
	}
	p.Segment = &s
}

// Diff returns the fields of got that differ from the expected packet.
func (p Packet) Diff(got ReceivedPacket) packet.Differences {
	var d packet.Differences
	packet.DiffFields(&d, "", p.Header, got.Header)
	diffPart(&d, "Ack", p.Ack, got.Ack, (*AckBlock).diff)
	diffPart(&d, "Data", p.Data, got.Data, (*DataBlock).diff)
	packet.DiffHeader(&d, "Challenge", "Challenge.", p.Challenge, got.Challenge)
	packet.DiffHeader(&d, "Refusal", "Refusal.", p.Refusal, got.Refusal)
	packet.DiffHeader(&d, "Record", "Record.", p.Record, got.Record)
	diffPart(&d, "segment", p.Segment, got.Segment, func(w *Segment, d *packet.Differences, g *Segment) { w.Diff(d, *g) })
	packet.DiffBytes(&d, "octets behind the last block", p.Trailer, got.Trailer)
	packet.DiffValue(&d, "CRC", "%v", p.CRCStatus, got.CRCStatus)
	packet.DiffValue(&d, "CRC", "%#08x", p.CRC, got.CRC)
	return d
}

// Matches reports whether got matches the expected packet.
func (p Packet) Matches(got ReceivedPacket) bool { return len(p.Diff(got)) == 0 }

// diffPart compares blocks.
func diffPart[P any](d *packet.Differences, name string, want, got *P, diff func(*P, *packet.Differences, *P)) {
	switch {
	case want == nil:
	case got == nil:
		d.Add(name, "one", "none")
	default:
		diff(want, d, got)
	}
}
