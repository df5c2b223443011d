package iwarp

import "github.com/fabrictest/fabrictest/conformance/packet"

// Diff adds the fields of got that differ from the expected segment s.
func (s Segment) Diff(d *packet.Differences, got Segment) {
	packet.DiffValue(d, "opcode", "%v", s.RDMAP.Opcode, got.RDMAP.Opcode)
	s.DDP.diff(d, got.DDP)
	s.RDMAP.diff(d, got.RDMAP)
	s.diffHeaders(d, got)
	packet.DiffBytes(d, "payload", s.Payload, got.Payload)
	if s.Payload == nil {
		packet.DiffValue(d, "payload", "%d B", s.PayloadLen, new(len(got.Payload)))
	}
	if s.Verbatim != nil {
		packet.DiffBytes(d, "ULPDU", s.Verbatim, got.Append(nil))
	}
}

func (h DDP) diff(d *packet.Differences, got DDP) {
	packet.DiffValue(d, "T", "%t", h.Tagged, got.Tagged)
	packet.DiffValue(d, "L", "%t", h.Last, got.Last)
	packet.DiffValue(d, "DDP reserved bits", "%#x", h.Reserved, got.Reserved)
	packet.DiffValue(d, "DV", "%d", h.Version, got.Version)
	packet.DiffValue(d, "STag", "%#x", h.STag, got.STag)
	packet.DiffValue(d, "TO", "%#x", h.TO, got.TO)
	packet.DiffValue(d, "QN", "%d", h.QN, got.QN)
	packet.DiffValue(d, "MSN", "%d", h.MSN, got.MSN)
	packet.DiffValue(d, "MO", "%d", h.MO, got.MO)
}

func (h RDMAP) diff(d *packet.Differences, got RDMAP) {
	packet.DiffValue(d, "RV", "%d", h.Version, got.Version)
	packet.DiffValue(d, "RDMAP reserved bits", "%#x", h.Reserved, got.Reserved)
	packet.DiffValue(d, "Invalidate STag", "%#x", h.InvalidateSTag, got.InvalidateSTag)
}

func (s Segment) diffHeaders(d *packet.Differences, got Segment) {
	packet.DiffHeader(d, "Read Request header", "", s.Read, got.Read)
	packet.DiffHeader(d, "Atomic Request header", "", s.AtomicRequest, got.AtomicRequest)
	packet.DiffHeader(d, "Atomic Response header", "", s.AtomicResponse, got.AtomicResponse)
	packet.DiffHeader(d, "immediate data", "", s.Immediate, got.Immediate)
	switch {
	case s.Terminate == nil:
	case got.Terminate == nil:
		d.Add("Terminate header", "one", "none")
	default:
		s.Terminate.diff(d, got.Terminate)
	}
	packet.DiffBytes(d, "header", s.OtherHeader, got.OtherHeader)
}
