package iwarp

import (
	"encoding/binary"
	"fmt"
	"slices"
	"strings"

	"github.com/fabrictest/fabrictest/conformance/packet"
)

// ReceivedPacket is a packet as it was received.
type ReceivedPacket struct {
	Packet
	Raw        []byte
	CorrectCRC uint32
	Odd        oddities // descriptions of unusual values
}

// ParsePacket parses a packet of datagram-iWARP, which may be malformed. It parses the blocks, the
// headers that kind and flags announce, up to the first that is incomplete. The octets that it does
// not parse are the trailer. The result does not alias b.
func ParsePacket(b []byte) ReceivedPacket {
	g := ReceivedPacket{Raw: append([]byte{}, b...)}
	b = g.Raw
	if n := len(b) - crcLen; n >= 0 {
		g.CorrectCRC = CRC32c(b[:n])
		crc := binary.LittleEndian.Uint32(b[n:])
		g.CRC = &crc
		g.CRCStatus = new(crcState(crc, g.CorrectCRC))
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
	g.Odd.addIf(short, "%d octets are too few for the blocks", len(g.Raw))
	g.findOddities(short)
	return g
}

// parseBlocks parses the blocks that kind and flags announce. short reports an incomplete block.
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

// parseRD parses the blocks of a reliable-datagram packet. short reports an incomplete block.
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

// parseSegment parses b as a ULPDU; a tagged one of the experimental opcode is a Write-Record.
func (p *Packet) parseSegment(b []byte) {
	s := ParseSegment(b)
	if s.Op() == OpExperimental && s.Verbatim == nil && s.IsTagged() {
		p.Record, s.Payload = packet.ParseAs[RecordHeader](s.Payload)
	}
	p.Segment = &s
}

// Diff returns the fields of got that differ from the expected packet p; nil matches any value.
func (p Packet) Diff(got ReceivedPacket) packet.Differences {
	var d packet.Differences
	packet.DiffFields(&d, "", p.Header, got.Header)
	packet.DiffHeader(&d, "Ack", "Ack.", p.Ack, got.Ack)
	if want, has := Val(p.Ack).SACK, Val(got.Ack).SACK; want != nil && got.Ack != nil && !slices.Equal(want, has) {
		d.Add("Ack.SACK", fmt.Sprintf("%08x", want), fmt.Sprintf("%08x", has))
	}
	packet.DiffHeader(&d, "Data", "Data.", p.Data, got.Data)
	if got.Data != nil {
		packet.DiffHeader(&d, "Start", "Start.", Val(p.Data).Start, got.Data.Start)
	}
	packet.DiffHeader(&d, "Challenge", "Challenge.", p.Challenge, got.Challenge)
	packet.DiffHeader(&d, "Refusal", "Refusal.", p.Refusal, got.Refusal)
	packet.DiffHeader(&d, "Record", "Record.", p.Record, got.Record)
	switch {
	case p.Segment == nil:
	case got.Segment == nil:
		d.Add("segment", "one", "none")
	default:
		p.Segment.Diff(&d, *got.Segment)
	}
	packet.DiffBytes(&d, "octets behind the last block", p.Trailer, got.Trailer)
	packet.DiffValue(&d, "CRC", "%v", p.CRCStatus, got.CRCStatus)
	packet.DiffValue(&d, "CRC", "%#08x", p.CRC, got.CRC)
	return d
}

// Matches reports whether got matches the expected packet.
func (p Packet) Matches(got ReceivedPacket) bool { return len(p.Diff(got)) == 0 }

// findOddities adds unusual values of the packet to g.Odd as text. Cases decide whether one is an
// error. short says that a block is incomplete: g.Trailer then has its octets.
func (g *ReceivedPacket) findOddities(short bool) {
	h := &g.Header
	g.Odd.addIf(*h.Version != version, "version %d", *h.Version)
	g.Odd.addIf(*h.Kind < KindUD || *h.Kind > KindRefusal, "%v is not assigned", *h.Kind)
	g.Odd.addIf(*h.Reserved != 0 || *h.FlagsReserved != 0, "reserved bits are set")
	flags := *h.HasData || *h.HasAck || *h.Start || *h.AckNow || *h.Marked || *h.Repeats
	g.Odd.addIf(*h.Kind != KindRD && flags, "flags of RD are set in %v", *h.Kind)
	if *h.Kind == KindRD {
		g.Odd.addIf(!*h.HasData && !*h.HasAck, "neither data nor acknowledgement")
		g.Odd.addIf(*h.Start && !*h.HasData, "start flag without data")
	}
	if a := g.Ack; a != nil {
		g.Odd.addIf(*a.Words > maxWords, "%d words of SACK, the most there can be is %d", *a.Words, maxWords)
		g.Odd.addIf(*a.Reserved != 0, "reserved octet of the Ack is set")
	}
	if d := g.Data; d != nil && d.Start != nil {
		g.Odd.addIf(*d.Start.Incarnation == 0, "incarnation 0")
	}
	if r := g.Refusal; r != nil {
		g.Odd.addIf(*r.Reason < ReasonUnknownFlow || *r.Reason > ReasonNoRoom, "reason %d is not assigned", uint8(*r.Reason))
		g.Odd.addIf(*r.Reserved != 0, "reserved octets of the Refusal are set")
	}
	g.Odd.addIf(g.Challenge != nil && *g.Challenge.Incarnation == 0, "incarnation 0")
	g.Odd.addIf(len(g.Trailer) > 0 && !short, "%d octets behind the last block", len(g.Trailer))
	if g.Segment != nil {
		g.findSegmentOddities()
	}
	g.Odd.addIf(*g.CRCStatus != CRCCorrect, "CRC %08x %v, right is %08x", *g.CRC, *g.CRCStatus, g.CorrectCRC)
}

// findSegmentOddities adds unusual values of the segment to g.Odd.
func (g *ReceivedPacket) findSegmentOddities() {
	s := *g.Segment
	switch {
	case g.Record != nil:
		// Write-Record has an experimental opcode, and otherwise the fields of a Write.
		end := uint64(*g.Record.MO) + uint64(len(s.Payload))
		g.Odd.addIf(end > uint64(*g.Record.Length), "data up to octet %[2]d of a Write-Record of %[1]d octets", *g.Record.Length, end)
		s = s.Opcode(OpWrite)
	case s.Op() == OpExperimental && s.Verbatim == nil:
		g.Odd.addf("a Write-Record without its header")
		return
	}
	g.Odd = append(g.Odd, s.Oddities()...)
}

// String returns "UD", "RD", "CHALLENGE" or "REFUSAL", or the number of an unknown kind.
func (k PacketKind) String() string {
	if k >= KindUD && k <= KindRefusal {
		return [...]string{"UD", "RD", "CHALLENGE", "REFUSAL"}[k-KindUD]
	}
	return fmt.Sprintf("kind %d", uint8(k))
}

// String returns the reason in words.
func (r RefusalReason) String() string {
	if r >= ReasonUnknownFlow && r <= ReasonNoRoom {
		return [...]string{"unknown flow", "no such queue pair", "queue pair not ready", "no room"}[r-ReasonUnknownFlow]
	}
	return fmt.Sprintf("reason %d", uint8(r))
}

// String formats the packet as a line of a ladder diagram: "RD seq 3 ack-now SEND msn 1 5 B
// last". It omits unset fields.
func (p Packet) String() string {
	var l packet.Line
	if p.Header.Kind == nil {
		l.Addf("PACKET")
	} else {
		l.Addf("%v", *p.Header.Kind)
	}
	v := packet.Get(p.Header.Version, version)
	addIf(&l, v != version, "version %d", v)
	p.describeBlocks(&l)
	l.AddFlag("ack-now", p.Header.AckNow)
	l.AddFlag("marked", p.Header.Marked)
	l.AddFlag("repeats", p.Header.Repeats)
	if p.Segment != nil {
		l.Addf("%s", p.describeSegment())
	}
	addIf(&l, len(p.Trailer) > 0, "and %d B more", len(p.Trailer))
	addIf(&l, Val(p.CRCStatus) != CRCCorrect, "with CRC %v", Val(p.CRCStatus))
	return l.String()
}

// describeBlocks adds the fields of the blocks that p has (Ack, Data, Challenge and Refusal) to l,
// a line of a ladder diagram. A window of 0 is shown as busy: no receive is posted for the next
// packet.
func (p Packet) describeBlocks(l *packet.Line) {
	if a := p.Ack; a != nil {
		packet.AddField(l, "ack %d", a.Next)
		addIf(l, len(a.SACK) > 0, "sack %x", a.SACK)
		addIf(l, packet.Get(a.Window, 1) == 0, "busy")
	}
	if d := p.Data; d != nil {
		packet.AddField(l, "seq %d", d.Seq)
		if d.Start != nil {
			l.Addf("start")
			packet.AddField(l, "epoch %#x", d.Epoch)
			addIf(l, Val(d.Start.Proof) != 0, "proof %#x", Val(d.Start.Proof))
		}
	}
	if c := p.Challenge; c != nil {
		packet.AddField(l, "epoch %#x", c.Epoch)
		packet.AddField(l, "cookie %#x", c.Cookie)
	}
	if r := p.Refusal; r != nil {
		packet.AddField(l, "epoch %#x", r.Epoch)
		packet.AddField(l, "%v", r.Reason)
	}
}

// describeSegment formats the segment, with the header of a Write-Record.
func (p Packet) describeSegment() string {
	if p.Record == nil {
		return p.Segment.String()
	}
	text := strings.Replace(p.Segment.String(), p.Segment.Op().String(), "WRITE-RECORD", 1)
	l := packet.Line{text}
	packet.AddField(&l, "msn %d", p.Record.MSN)
	packet.AddField(&l, "mo %d", p.Record.MO)
	packet.AddField(&l, "of %d B", p.Record.Length)
	packet.AddField(&l, "imm %#x", p.Record.Immediate)
	return l.String()
}
