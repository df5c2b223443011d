package iwarp

import (
	"encoding/binary"

	"github.com/fabrictest/fabrictest/conformance/packet"
)

// TerminateHeader is the header of a Terminate message (RFC 5040 section 4.8): the cause,
// and quoted headers of the wrong segment.
type TerminateHeader struct {
	_     struct{} `size:"4"`
	Cause *Cause   `at:"0,16"`
	// The header control bits M, D and R. nil: by the quoted headers.
	LengthValid *bool   `at:"2.0,1"`
	HasDDP      *bool   `at:"2.1,1"`
	HasRDMAP    *bool   `at:"2.2,1"`
	Reserved    *uint16 `at:"2.3,13" fmt:"%#x"`

	// SegmentLength is the length of the wrong segment; nil: not present, or any.
	SegmentLength *uint16
	// DDPHeader and RDMAPHeader are the quoted headers; nil: not present, or any.
	DDPHeader, RDMAPHeader []byte
}

func (h TerminateHeader) append(b []byte) []byte {
	b = packet.AppendFields(b, packet.Or(h, TerminateHeader{
		LengthValid: new(h.SegmentLength != nil),
		HasDDP:      new(h.DDPHeader != nil),
		HasRDMAP:    new(h.RDMAPHeader != nil),
	}))
	if h.SegmentLength != nil || h.DDPHeader != nil {
		// The length field is present whenever a header follows.
		b = binary.BigEndian.AppendUint16(b, Val(h.SegmentLength))
	}
	b = append(b, h.DDPHeader...)
	return append(b, h.RDMAPHeader...)
}

// parseTerminate parses the parts that the control bits announce, as far as present.
func parseTerminate(b []byte) (h *TerminateHeader, rest []byte) {
	h, b = packet.ParseAs[TerminateHeader](b)
	if h == nil {
		return nil, b
	}
	if (*h.LengthValid || *h.HasDDP) && len(b) >= 2 {
		h.SegmentLength = new(binary.BigEndian.Uint16(b))
		b = b[2:]
	}
	if *h.HasDDP && len(b) > 0 {
		if n := ddpHeaderLen(b[0]); len(b) >= n {
			h.DDPHeader, b = b[:n:n], b[n:]
		}
	}
	if *h.HasRDMAP && len(b) >= readRequestLen {
		h.RDMAPHeader, b = b[:readRequestLen:readRequestLen], b[readRequestLen:]
	}
	return h, b
}

// ddpHeaderLen returns the length of the header that begins with ctrl.
func ddpHeaderLen(ctrl byte) int {
	if ctrl&bitTagged != 0 {
		return taggedLen
	}
	return untaggedLen
}

func (h *TerminateHeader) diff(d *packet.Differences, got *TerminateHeader) {
	packet.DiffFields(d, "", h, got)
	packet.DiffValue(d, "SegmentLength", "%d", h.SegmentLength, got.SegmentLength)
	packet.DiffBytes(d, "quoted DDP header", h.DDPHeader, got.DDPHeader)
	packet.DiffBytes(d, "quoted RDMAP header", h.RDMAPHeader, got.RDMAPHeader)
}

// QuotedSegment returns the quoted segment; false if none is quoted.
func (h *TerminateHeader) QuotedSegment() (Segment, bool) {
	if h == nil || len(h.DDPHeader) == 0 {
		return Segment{}, false
	}
	s := ParseSegment(append(append([]byte{}, h.DDPHeader...), h.RDMAPHeader...))
	s.Payload = nil
	return s, true
}
