package iwarp

import (
	"fmt"
	"strings"

	"github.com/fabrictest/fabrictest/conformance/packet"
)

// findOddities lists unusual values as text. Cases decide whether one is an error.
func (g *ReceivedPacket) findOddities(short bool) {
	h := &g.Header
	if *h.Version != version {
		g.Odd.addf("version %d", *h.Version)
	}
	if k := *h.Kind; k < KindUD || k > KindRefusal {
		g.Odd.addf("%v is not assigned", k)
	}
	if *h.Reserved != 0 || *h.FlagsReserved != 0 {
		g.Odd.addf("reserved bits are set")
	}
	flags := *h.HasData || *h.HasAck || *h.Start || *h.AckNow || *h.Marked || *h.Repeats
	if *h.Kind != KindRD && flags {
		g.Odd.addf("flags of RD are set in %v", *h.Kind)
	}
	g.oddRD()
	if r := g.Refusal; r != nil {
		if *r.Reason < ReasonUnknownFlow || *r.Reason > ReasonNoRoom {
			g.Odd.addf("reason %d is not assigned", uint8(*r.Reason))
		}
		if *r.Reserved != 0 {
			g.Odd.addf("reserved octets of the Refusal are set")
		}
	}
	if c := g.Challenge; c != nil && *c.Incarnation == 0 {
		g.Odd.addf("incarnation 0")
	}
	if len(g.Trailer) > 0 && !short {
		g.Odd.addf("%d octets behind the last block", len(g.Trailer))
	}
	if g.Segment != nil {
		g.oddSegment()
	}
	if *g.CRCStatus != CRCRight {
		g.Odd.addf("CRC %08x %v, right is %08x", *g.CRC, *g.CRCStatus, g.RightCRC)
	}
}

func (g *ReceivedPacket) oddRD() {
	h := &g.Header
	if *h.Kind != KindRD {
		return
	}
	if !*h.HasData && !*h.HasAck {
		g.Odd.addf("neither data nor acknowledgement")
	}
	if *h.Start && !*h.HasData {
		g.Odd.addf("start flag without data")
	}
	if a := g.Ack; a != nil {
		if *a.Words > maxWords {
			g.Odd.addf("%d words of SACK, the most there can be is %d", *a.Words, maxWords)
		}
		if *a.Reserved != 0 {
			g.Odd.addf("reserved octet of the Ack is set")
		}
	}
	if d := g.Data; d != nil && d.Start != nil && *d.Start.Incarnation == 0 {
		g.Odd.addf("incarnation 0")
	}
}

func (g *ReceivedPacket) oddSegment() {
	s := *g.Segment
	switch {
	case g.Record != nil:
		// Write-Record uses the opcode reserved for experiments.
		if end := uint64(*g.Record.MO) + uint64(len(s.Payload)); end > uint64(*g.Record.Length) {
			g.Odd.addf("a record of %d octets has some up to %d", *g.Record.Length, end)
		}
		s = s.Opcode(OpWrite)
	case s.Op() == OpExperimental && s.Verbatim == nil:
		g.Odd.addf("a Write-Record without its header")
		return
	}
	g.Odd = append(g.Odd, s.Oddities()...)
}

// String returns "UD", "RD", "CHALLENGE" or "REFUSAL".
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
	if v := packet.Get(p.Header.Version, version); v != version {
		l.Addf("version %d", v)
	}
	p.describeBlocks(&l)
	for _, f := range []struct {
		name string
		v    *bool
	}{{"ack-now", p.Header.AckNow}, {"marked", p.Header.Marked}, {"repeats", p.Header.Repeats}} {
		if Val(f.v) {
			l.Addf("%s", f.name)
		}
	}
	if p.Segment != nil {
		l.Addf("%s", p.describeSegment())
	}
	if len(p.Trailer) > 0 {
		l.Addf("and %d B more", len(p.Trailer))
	}
	if state := Val(p.CRCStatus); state != CRCRight {
		l.Addf("with CRC %v", state)
	}
	return strings.Join(l, " ")
}

func (p Packet) describeBlocks(l *packet.Line) {
	if a := p.Ack; a != nil {
		packet.AddField(l, "ack %d", a.Next)
		if len(a.SACK) > 0 {
			l.Addf("sack %x", a.SACK)
		}
		if a.Window != nil && *a.Window == 0 {
			l.Addf("busy")
		}
	}
	if d := p.Data; d != nil {
		packet.AddField(l, "seq %d", d.Seq)
		if d.Start != nil {
			l.Addf("start")
			packet.AddField(l, "epoch %#x", d.Epoch)
			if proof := Val(d.Start.Proof); proof != 0 {
				l.Addf("proof %#x", proof)
			}
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
	return strings.Join(l, " ")
}
