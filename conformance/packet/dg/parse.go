package dg

import (
	"encoding/binary"
	"fmt"

	"github.com/fabrictest/fabrictest/conformance/packet"
	"github.com/fabrictest/fabrictest/conformance/packet/iwarp"
)

// ReceivedPacket is a packet as it was received.
type ReceivedPacket struct {
	Packet
	Raw      []byte
	RightCRC uint32
	Odd      []string // descriptions of unusual values
}

// Parse parses a packet of any octets. Incomplete blocks are nil, and remaining octets are
// the trailer. The result does not alias b.
func Parse(b []byte) ReceivedPacket {
	g := ReceivedPacket{Raw: append([]byte{}, b...)}
	b = g.Raw
	if n := len(b) - crcLen; n >= 0 {
		g.RightCRC = iwarp.CRC32c(b[:n])
		crc := binary.LittleEndian.Uint32(b[n:])
		g.CRC = &crc
		switch crc {
		case g.RightCRC:
			g.CRCStatus = new(iwarp.CRCRight)
		case 0:
			g.CRCStatus = new(iwarp.CRCZero)
		default:
			g.CRCStatus = new(iwarp.CRCWrong)
		}
		b = b[:n:n]
	}
	rest, err := packet.ParseFields(b, &g.Header)
	if err != nil {
		g.Trailer = b
		g.oddf("%d octets are too few for a packet", len(g.Raw))
		return g
	}
	short := false
	g.Trailer, short = g.parseBlocks(rest)
	if short {
		g.oddf("%d octets are too few for the blocks", len(g.Raw))
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
	s := iwarp.ParseSegment(b)
	if s.Op() == iwarp.OpExperimental && s.Verbatim == nil && s.IsTagged() {
		p.Record, s.Payload = packet.ParseAs[Record](s.Payload)
	}
	p.Segment = &s
}

// Diff returns the fields of got that differ from the expected packet.
func Diff(want Packet, got ReceivedPacket) packet.Differences {
	var d packet.Differences
	packet.DiffFields(&d, "", want.Header, got.Header)
	diffPart(&d, "Ack", want.Ack, got.Ack, (*AckBlock).diff)
	diffPart(&d, "Data", want.Data, got.Data, (*DataBlock).diff)
	packet.DiffHeader(&d, "Challenge", "Challenge.", want.Challenge, got.Challenge)
	packet.DiffHeader(&d, "Refusal", "Refusal.", want.Refusal, got.Refusal)
	packet.DiffHeader(&d, "Record", "Record.", want.Record, got.Record)
	diffPart(&d, "segment", want.Segment, got.Segment, func(w *iwarp.Segment, d *packet.Differences, g *iwarp.Segment) { w.Diff(d, *g) })
	packet.DiffBytes(&d, "octets behind the last block", want.Trailer, got.Trailer)
	packet.DiffValue(&d, "CRC", "%v", want.CRCStatus, got.CRCStatus)
	packet.DiffValue(&d, "CRC", "%#08x", want.CRC, got.CRC)
	return d
}

// Matches reports whether got matches the expected packet.
func Matches(want Packet, got ReceivedPacket) bool { return len(Diff(want, got)) == 0 }

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

func (g *ReceivedPacket) oddf(format string, args ...any) {
	g.Odd = append(g.Odd, fmt.Sprintf(format, args...))
}
