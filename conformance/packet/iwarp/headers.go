package iwarp

import (
	"encoding/binary"
	"fmt"

	"github.com/fabrictest/fabrictest/conformance/packet"
)

// ReadRequestHeader is the header of an RDMA Read Request (RFC 5040 section 4.4).
type ReadRequestHeader struct {
	_        struct{} `size:"28"`
	SinkSTag *uint32  `at:"0,32" fmt:"%#x"`
	SinkTO   *uint64  `at:"4,64" fmt:"%#x"`
	Size     *uint32  `at:"12,32"`
	SrcSTag  *uint32  `at:"16,32" fmt:"%#x"`
	SrcTO    *uint64  `at:"20,64" fmt:"%#x"`
}

// The atomic operations (RFC 7306 section 5.1).
const (
	AtomicFetchAdd    uint8 = 0
	AtomicCompareSwap uint8 = 2
)

// AtomicRequestHeader is the header of an Atomic Request (RFC 7306 section 5.2.1).
type AtomicRequestHeader struct {
	_           struct{} `size:"52"`
	Reserved    *uint32  `at:"0,28" fmt:"%#x"`
	Operation   *uint8   `at:"3.4,4"`
	ID          *uint32  `at:"4,32" fmt:"%#x"`
	STag        *uint32  `at:"8,32" fmt:"%#x"`
	TO          *uint64  `at:"12,64" fmt:"%#x"`
	Data        *uint64  `at:"20,64" fmt:"%#x"` // add or swap operand
	Mask        *uint64  `at:"28,64" fmt:"%#x"` // nil: all ones for a swap, else 0
	Compare     *uint64  `at:"36,64" fmt:"%#x"`
	CompareMask *uint64  `at:"44,64" fmt:"%#x" def:"-1"` // nil: all ones
}

// AtomicResponseHeader is the header of an Atomic Response (RFC 7306 section 5.2.2). The
// RFC has two lengths for it; this is the length in the figure.
type AtomicResponseHeader struct {
	_        struct{} `size:"12"`
	ID       *uint32  `at:"0,32" fmt:"%#x"`
	Original *uint64  `at:"4,64" fmt:"%#x"`
}

// ImmediateHeader is the header of an Immediate Data message (RFC 7306 section 6.1).
type ImmediateHeader struct {
	_     struct{} `size:"8"`
	Value *uint64  `at:"0,64" fmt:"%#x"`
}

// bitTagged is the T bit in the first octet of a segment.
const bitTagged = 0x80

// Lengths of headers.
const (
	controlLen     = 2
	taggedLen      = 14
	untaggedLen    = 18
	readRequestLen = 28
	terminateLen   = 4 // without quoted headers
)

// DDP queue numbers (Sends use 0), and the first MSN of each queue.
const (
	queueRequest        = 1
	queueTerminate      = 2
	queueAtomicResponse = 3
	firstMSN            = 1
)

// version is the version of DDP and of RDMAP.
const version = 1

// Val returns *p, or the zero value if p is nil.
func Val[T any](p *T) T {
	if p == nil {
		var zero T
		return zero
	}
	return *p
}

// TerminateHeader is the header of a Terminate message (RFC 5040 section 4.8).
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

// append appends the Terminate header with the headers that it quotes. A bit that is nil in h is
// sent as 1 if the part that it announces is not nil.
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

// parseTerminate parses the control word, and the parts that its bits announce if they are
// complete. It returns the octets after them. h is nil if the control word is incomplete.
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
	if *h.HasRDMAP && len(b) >= readRequestLen { // only the header of a Read Request is quoted
		h.RDMAPHeader, b = b[:readRequestLen:readRequestLen], b[readRequestLen:]
	}
	return h, b
}

// ContentLen returns the length of the fields after the control word, by the flags.
func (h *TerminateHeader) ContentLen() int {
	n := 0
	if Val(h.LengthValid) || Val(h.HasDDP) {
		n += 2 // the segment length: before a DDP header it is present even if it is not valid
	}
	if Val(h.HasDDP) {
		n += len(h.DDPHeader)
	}
	if Val(h.HasRDMAP) {
		n += readRequestLen
	}
	return n
}

// TerminateControl returns the control word of a Terminate, and the octets after it.
func (g ReceivedFPDU) TerminateControl() (word, rest []byte) {
	at := min(len(g.ULPDU), untaggedLen)
	end := min(len(g.ULPDU), untaggedLen+terminateLen)
	return g.ULPDU[at:end], g.ULPDU[end:]
}

// ddpHeaderLen returns the length of a DDP header whose first octet is ctrl.
func ddpHeaderLen(ctrl byte) int {
	if ctrl&bitTagged != 0 {
		return taggedLen
	}
	return untaggedLen
}

// QuotedSegment returns the headers of the quoted segment; false if none is quoted.
func (h *TerminateHeader) QuotedSegment() (Segment, bool) {
	if h == nil || len(h.DDPHeader) == 0 {
		return Segment{}, false
	}
	s := ParseSegment(append(append([]byte{}, h.DDPHeader...), h.RDMAPHeader...))
	s.Payload = nil
	return s, true
}

// InSiwBitOrder parses a Terminate in the bit order of siw on little-endian hosts, which
// exchanges layer and type and puts the three header bits at the low end, reversed. It returns false
// if the control word is in the order of the RFC.
//
// Some control words are valid in both orders. For these started decides, which is true once MPA
// start-up has finished: some causes occur only before that, some only after.
func (s Segment) InSiwBitOrder(started bool) (Segment, bool) {
	if s.Terminate == nil {
		return Segment{}, false
	}
	b := s.Append(nil)
	at := len(s.appendDDP(nil))
	ctrl := b[at : at+terminateLen]
	if !inSiwOrder(ctrl, started) {
		return Segment{}, false
	}
	ctrl[0] = ctrl[0]<<4 | ctrl[0]>>4
	ctrl[2] = ctrl[2]&0x01<<7 | ctrl[2]&0x02<<5 | ctrl[2]&0x04<<3
	return ParseSegment(b), true
}

// inSiwOrder reports whether the control word of a Terminate (layer, type, code, header bits) is in
// the bit order of Linux's siw, which differs from that of RFC 5040. started says whether the MPA
// startup was complete: MPA error codes 6 and 7 occur only before, remote operation codes 5 and 6
// only after it.
func inSiwOrder(ctrl []byte, started bool) bool {
	code := ctrl[1]
	switch {
	case ctrl[2]&0x07 != 0: // the three header bits
		return true
	case ctrl[2]&0xe0 != 0: // the same in the RFC's order
		return false
	}
	switch ctrl[0] {
	case 0x21: // layer 2 has no type 1
		return true
	case 0x02: // MPA errors in siw's order, remote operation errors in the RFC's
		return code >= 2 && code <= 4 || !started && (code == 6 || code == 7)
	case 0x20: // remote operation errors in siw's order, MPA errors, of codes up to 7, in the RFC's
		return code > 7 || started && (code == 5 || code == 6)
	case 0x10: // protection errors in siw's order; in the RFC's only code 0 is valid
		return code != 0
	default:
		return false // equal in both orders, or valid only in the RFC's
	}
}

// Opcode is an RDMAP opcode, four bits.
type Opcode uint8

// The opcodes of RFC 5040 and RFC 7306.
const (
	OpWrite            Opcode = 0
	OpReadRequest      Opcode = 1
	OpReadResponse     Opcode = 2
	OpSend             Opcode = 3
	OpSendInvalidate   Opcode = 4
	OpSendSE           Opcode = 5
	OpSendSEInvalidate Opcode = 6
	OpTerminate        Opcode = 7
	OpImmediate        Opcode = 8
	OpImmediateSE      Opcode = 9
	OpAtomicRequest    Opcode = 10
	OpAtomicResponse   Opcode = 11
	OpExperimental     Opcode = 15 // reserved for experiments by RFC 6580
)

// form is the layout of a message.
type form struct {
	name string
	// tagged: the message is tagged; untagged ones use queue qn.
	tagged bool
	qn     uint32
	// header is the length of the RDMAP header after the DDP header.
	header int
	// payload: the message has payload.
	payload bool
	// invalidates: the Invalidate STag field is used.
	invalidates bool
}

var forms = [...]form{
	OpWrite:            {name: "WRITE", tagged: true, payload: true},
	OpReadRequest:      {name: "READ REQUEST", qn: queueRequest, header: readRequestLen},
	OpReadResponse:     {name: "READ RESPONSE", tagged: true, payload: true},
	OpSend:             {name: "SEND", payload: true},
	OpSendInvalidate:   {name: "SEND INVALIDATE", payload: true, invalidates: true},
	OpSendSE:           {name: "SEND SE", payload: true},
	OpSendSEInvalidate: {name: "SEND SE INVALIDATE", payload: true, invalidates: true},
	OpTerminate:        {name: "TERMINATE", qn: queueTerminate},
	OpImmediate:        {name: "IMMEDIATE", header: 8},
	OpImmediateSE:      {name: "IMMEDIATE SE", header: 8},
	OpAtomicRequest:    {name: "ATOMIC REQUEST", qn: queueRequest, header: 52},
	OpAtomicResponse:   {name: "ATOMIC RESPONSE", qn: queueAtomicResponse, header: 12},
}

// form returns the layout of o's messages. For an unassigned opcode it returns the layout of an
// untagged message with payload, and false.
func (o Opcode) form() (form, bool) {
	if int(o) >= len(forms) {
		return form{payload: true}, false
	}
	return forms[o], true
}

// Tagged reports whether messages of the opcode are tagged.
func (o Opcode) Tagged() bool { f, _ := o.form(); return f.tagged }

// Queue returns the DDP queue of untagged messages of the opcode.
func (o Opcode) Queue() uint32 { f, _ := o.form(); return f.qn }

// String returns the name, as in a ladder diagram.
func (o Opcode) String() string {
	if f, ok := o.form(); ok {
		return f.name
	}
	return fmt.Sprintf("OPCODE %d", uint8(o))
}

// Cause is the reason of a Terminate: layer, error type and error code, as on the wire.
type Cause uint16

// Layer is the layer that reported the error: 0 RDMAP, 1 DDP, 2 MPA.
func (c Cause) Layer() uint8 { return uint8(c >> 12) }

// Type is the error type within the layer.
func (c Cause) Type() uint8 { return uint8(c>>8) & 0x0f }

// Code is the error code within the type.
func (c Cause) Code() uint8 { return uint8(c) }

// The causes of RFC 5040 (4.8), RFC 5041 (7.2), RFC 5044 (8) and RFC 6581 (8).
const (
	RDMAPCatastrophic           Cause = 0x0000 // any code
	RDMAPInvalidSTag            Cause = 0x0100
	RDMAPBounds                 Cause = 0x0101
	RDMAPAccess                 Cause = 0x0102
	RDMAPSTagNotAssociated      Cause = 0x0103
	RDMAPTOWrap                 Cause = 0x0104
	RDMAPCannotInvalidate       Cause = 0x0109
	RDMAPProtectionUnspecified  Cause = 0x01ff
	RDMAPInvalidVersion         Cause = 0x0205
	RDMAPUnexpectedOpcode       Cause = 0x0206
	RDMAPStreamCatastrophic     Cause = 0x0207
	RDMAPGlobalCatastrophic     Cause = 0x0208
	RDMAPCannotInvalidateRemote Cause = 0x0209 // the same error under the other type
	RDMAPRemoteUnspecified      Cause = 0x02ff
	DDPCatastrophic             Cause = 0x1000
	DDPTaggedInvalidSTag        Cause = 0x1100
	DDPTaggedBounds             Cause = 0x1101
	DDPTaggedSTagNotAssociated  Cause = 0x1102
	DDPTaggedTOWrap             Cause = 0x1103
	DDPTaggedInvalidVersion     Cause = 0x1104
	DDPUntaggedInvalidQN        Cause = 0x1201
	DDPUntaggedNoBuffer         Cause = 0x1202
	DDPUntaggedMSNRange         Cause = 0x1203
	DDPUntaggedInvalidMO        Cause = 0x1204
	DDPUntaggedTooLong          Cause = 0x1205
	DDPUntaggedInvalidVersion   Cause = 0x1206
	MPAConnectionLost           Cause = 0x2001
	MPACRC                      Cause = 0x2002
	MPAMarker                   Cause = 0x2003
	MPAStartupFrame             Cause = 0x2004
	MPAStartupCatastrophic      Cause = 0x2005
	MPAInsufficientIRD          Cause = 0x2006
	MPANoMatchingRTR            Cause = 0x2007
)

var causeNames = map[Cause]string{
	RDMAPInvalidSTag:            "invalid stag",
	RDMAPBounds:                 "base or bounds",
	RDMAPAccess:                 "access rights",
	RDMAPSTagNotAssociated:      "stag not associated with the stream",
	RDMAPTOWrap:                 "to wraps",
	RDMAPCannotInvalidate:       "stag cannot be invalidated",
	RDMAPProtectionUnspecified:  "unspecified",
	RDMAPInvalidVersion:         "invalid version",
	RDMAPUnexpectedOpcode:       "unexpected opcode",
	RDMAPStreamCatastrophic:     "catastrophic for the stream",
	RDMAPGlobalCatastrophic:     "catastrophic for all streams",
	RDMAPCannotInvalidateRemote: "stag cannot be invalidated",
	RDMAPRemoteUnspecified:      "unspecified",
	DDPCatastrophic:             "catastrophic",
	DDPTaggedInvalidSTag:        "invalid stag",
	DDPTaggedBounds:             "base or bounds",
	DDPTaggedSTagNotAssociated:  "stag not associated with the stream",
	DDPTaggedTOWrap:             "to wraps",
	DDPTaggedInvalidVersion:     "invalid version",
	DDPUntaggedInvalidQN:        "invalid qn",
	DDPUntaggedNoBuffer:         "no buffer for the msn",
	DDPUntaggedMSNRange:         "msn out of range",
	DDPUntaggedInvalidMO:        "invalid mo",
	DDPUntaggedTooLong:          "message too long for its buffer",
	DDPUntaggedInvalidVersion:   "invalid version",
	MPAConnectionLost:           "connection lost",
	MPACRC:                      "crc",
	MPAMarker:                   "marker and length disagree",
	MPAStartupFrame:             "invalid start-up frame",
	MPAStartupCatastrophic:      "catastrophic at start-up",
	MPAInsufficientIRD:          "insufficient ird",
	MPANoMatchingRTR:            "no matching rtr",
}

var typeNames = map[uint8]string{
	0x00: "rdmap/local",
	0x01: "rdmap/protection",
	0x02: "rdmap/operation",
	0x10: "ddp/local",
	0x11: "ddp/tagged",
	0x12: "ddp/untagged",
	0x13: "ddp/llp",
	0x20: "mpa",
}

// Listed reports whether an RFC lists the cause. RDMAP local errors and DDP errors of the
// lower layer have no list of codes, and all of them are valid.
func (c Cause) Listed() bool {
	_, ok := causeNames[c]
	layerAndType := uint8(c >> 8)
	return ok || layerAndType == 0x00 || layerAndType == 0x13
}

// String formats layer, type and code: "ddp/tagged invalid stag".
func (c Cause) String() string {
	typ, ok := typeNames[uint8(c>>8)]
	if !ok {
		return fmt.Sprintf("%d/%d/%02x", c.Layer(), c.Type(), c.Code())
	}
	if name, ok := causeNames[c]; ok {
		return typ + " " + name
	}
	if c.Listed() && c.Code() == 0 { // a type without a list of codes
		return typ
	}
	return fmt.Sprintf("%s code 0x%02x", typ, c.Code())
}
