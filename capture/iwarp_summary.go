package capture

import (
	"fmt"
	"strings"

	"github.com/fabrictest/fabrictest/emu/iwarp/wire"
)

// Op implements PDU.
func (m *MPAStart) Op() string {
	if m.Reply {
		return "MPA Reply"
	}
	return "MPA Request"
}

// PayloadLen implements PDU. Private data is no payload.
func (m *MPAStart) PayloadLen() int { return 0 }

// Summary implements PDU.
func (m *MPAStart) Summary() string {
	var b strings.Builder
	fmt.Fprintf(&b, "revision %d, CRC %s, markers %s", m.Revision, onOff(m.CRC), onOff(m.Markers))
	if m.Reject {
		b.WriteString(", rejected")
	}
	private := m.PrivateData
	if e, rest, ok := m.Split(); ok {
		private = rest
		fmt.Fprintf(&b, ", IRD %s, ORD %s", depth(e.IRD), depth(e.ORD))
		if e.PeerToPeer {
			b.WriteString(", peer to peer")
		}
		var rtr []string
		for _, r := range []struct {
			set  bool
			name string
		}{{e.RTRSend, "Send"}, {e.RTRWrite, "Write"}, {e.RTRRead, "Read"}} {
			if r.set {
				rtr = append(rtr, r.name)
			}
		}
		if len(rtr) > 0 {
			b.WriteString(", RTR by " + strings.Join(rtr, " or "))
		}
	}
	if len(private) > 0 {
		fmt.Fprintf(&b, ", %d B private data", len(private))
	}
	return b.String()
}

// onOff returns "on" or "off".
func onOff(v bool) string {
	if v {
		return "on"
	}
	return "off"
}

// depth formats an IRD or ORD.
func depth(n uint16) string {
	if n == wire.DepthNotNegotiated {
		return "not negotiated"
	}
	return fmt.Sprint(n)
}

// Op implements PDU.
func (f *FPDU) Op() string {
	if !f.HeadersComplete && len(f.ULPDU) < wire.ControlLen {
		return "FPDU"
	}
	return f.Segment.Control.Opcode.String()
}

// PayloadLen implements PDU. It includes octets that were not captured.
func (f *FPDU) PayloadLen() int {
	if !f.HeadersComplete {
		return 0
	}
	return len(f.Segment.Payload) + f.Length - len(f.ULPDU)
}

// Summary implements PDU.
func (f *FPDU) Summary() string {
	var b strings.Builder
	if f.HeadersComplete {
		f.summariseSegment(&b)
	} else {
		fmt.Fprintf(&b, "%d octets", f.Length)
	}
	switch f.CRCStatus {
	case wire.CRCBad:
		b.WriteString(" CRC bad")
	case wire.CRCUnknown: // octets of the FPDU were not captured
		b.WriteString(" truncated")
	}
	return b.String()
}

// summariseSegment appends the fields of a complete DDP segment to the line of a packet. Fields
// with their usual values, such as the queue of the opcode, are left out.
func (f *FPDU) summariseSegment(b *strings.Builder) {
	s := &f.Segment
	info, _ := s.Control.Opcode.Info()
	if s.Control.Tagged {
		fmt.Fprintf(b, "STag %#x TO %#x", uint32(s.Tagged.STag), s.Tagged.TO)
	} else {
		fmt.Fprintf(b, "MSN %d", s.Untagged.MSN)
		if s.Untagged.QN != info.Queue {
			fmt.Fprintf(b, " queue %d", s.Untagged.QN)
		}
		if s.Untagged.MO != 0 {
			fmt.Fprintf(b, " at %d", s.Untagged.MO)
		}
		if info.Class.Has(wire.Invalidates) {
			fmt.Fprintf(b, " invalidate %#x", uint32(s.Untagged.Invalidate))
		}
	}
	if info.Class.Has(wire.HasPayload) || f.PayloadLen() > 0 {
		fmt.Fprintf(b, " %d B", f.PayloadLen())
	}
	switch op := s.Control.Opcode; {
	case s.Control.Tagged:
	case op == wire.OpReadRequest:
		r := s.ReadRequest
		fmt.Fprintf(b, " %d B from %#x+%#x to %#x+%#x", r.Size, uint32(r.SrcSTag), r.SrcTO, uint32(r.SinkSTag), r.SinkTO)
	case op == wire.OpTerminate:
		f.summariseTerminate(b)
	case op == wire.OpImmediate, op == wire.OpImmediateSE:
		fmt.Fprintf(b, " %x", s.Immediate)
	case op == wire.OpAtomicRequest:
		a := s.AtomicRequest
		fmt.Fprintf(b, " %v id %#x STag %#x TO %#x", a.Op, a.RequestID, uint32(a.STag), a.TO)
		if a.Op == wire.AtomicFetchAdd {
			fmt.Fprintf(b, " add %#x", a.AddSwap)
		} else {
			fmt.Fprintf(b, " %#x if %#x", a.AddSwap, a.Compare)
		}
	case op == wire.OpAtomicResponse:
		fmt.Fprintf(b, " id %#x was %#x", s.AtomicResponse.RequestID, s.AtomicResponse.Original)
	}
	if !s.Control.Last {
		b.WriteString(" more follows")
	}
}

// summariseTerminate appends the error of a Terminate, and the segment that it is about.
func (f *FPDU) summariseTerminate(b *strings.Builder) {
	t := &f.Segment.Terminate
	fmt.Fprintf(b, " %v", t.Error)
	if t.HasDDP {
		fmt.Fprintf(b, ", about a %v", t.DDP.Control.Opcode)
		if !t.DDP.Control.Tagged {
			fmt.Fprintf(b, " MSN %d", t.DDP.Untagged.MSN)
		} else {
			fmt.Fprintf(b, " STag %#x TO %#x", uint32(t.DDP.Tagged.STag), t.DDP.Tagged.TO)
		}
	}
	if t.Order == wire.OrderSiw { // the Linux driver siw writes the bits of a Terminate in another order
		b.WriteString(" (bits in the order of siw)")
	}
}
