package wire

import "encoding/binary"

// Terminate is a Terminate message: the error, and the headers of the failed segment.
//
//	0 layer(4) type(4) | 1 code | 2-3 M D R resv(13)
//	DDP Segment Length(2), if M or D | terminated DDP header, if D
//	terminated RDMAP header, if R
//
// The RDMAP header is that of a Read Request. If R is set and the DDP header is that of
// another message, none follows: Linux soft-iWARP does that.
type Terminate struct {
	Error TermError
	// HasLength, HasDDP and HasRDMAP are M, D and R: SegmentLength is valid, the
	// DDP header is there (after SegmentLength, valid or not), the RDMAP header is there.
	HasLength, HasDDP, HasRDMAP bool

	Reserved uint16 // 13 bits
	Order    TerminateOrder

	SegmentLength uint16 // of the DDP segment that failed, header included
	DDP           Header
	Read          ReadRequest
}

// TerminateOrder is the bit order of the first and third octet of a Terminate.
type TerminateOrder uint8

// The orders. Linux soft-iWARP on a little-endian machine swaps the halves of
// the first octet, and has M, D and R as 0x01, 0x02 and 0x04.
const (
	OrderRFC TerminateOrder = iota
	OrderSiw
)

// String prints "siw" or "RFC".
func (o TerminateOrder) String() string {
	if o == OrderSiw {
		return "siw"
	}
	return "RFC"
}

const (
	termLength, termDDP, termRDMAP          = 0x80, 0x40, 0x20
	siwTermLength, siwTermDDP, siwTermRDMAP = 0x01, 0x02, 0x04

	termBits    = termLength | termDDP | termRDMAP
	siwTermBits = siwTermLength | siwTermDDP | siwTermRDMAP
)

var (
	errShortTerminate     = shortError("Terminate", TerminateLen)
	errShortSegmentLength = shortError("DDP Segment Length of a Terminate", segmentLengthLen)
)

// hasRead reports whether the header of a Read Request follows the DDP header: R is set, and the
// DDP header, if there is one, is that of a Read Request.
func (t *Terminate) hasRead() bool {
	return t.HasRDMAP && (!t.HasDDP || !t.DDP.Control.Tagged && t.DDP.Control.Opcode == OpReadRequest)
}

// Append appends the encoded Terminate to b, in the bit order t.Order, and returns the extended
// slice. Values are truncated to the width of their fields. The segment length is there if
// t.HasLength (M) is set, and also before every DDP header.
func (t *Terminate) Append(b []byte) []byte {
	layer, kind := uint8(t.Error.Layer)&0x0F, t.Error.Type&0x0F
	if t.Order == OrderSiw {
		b = append(b, kind<<4|layer, t.Error.Code,
			bit(t.HasLength, siwTermLength)|bit(t.HasDDP, siwTermDDP)|bit(t.HasRDMAP, siwTermRDMAP)|
				uint8(t.Reserved>>8)&0x1F<<3, uint8(t.Reserved))
	} else {
		b = append(b, layer<<4|kind, t.Error.Code,
			bit(t.HasLength, termLength)|bit(t.HasDDP, termDDP)|bit(t.HasRDMAP, termRDMAP)|
				uint8(t.Reserved>>8)&0x1F, uint8(t.Reserved))
	}
	if t.HasLength || t.HasDDP {
		b = binary.BigEndian.AppendUint16(b, t.SegmentLength)
	}
	if t.HasDDP {
		b = t.DDP.Append(b)
	}
	if t.hasRead() {
		b = t.Read.Append(b)
	}
	return b
}

// Parse decodes t from the front of b and returns the octets that follow. It guesses the bit order
// with GuessTerminateOrder, for a stream after start-up.
func (t *Terminate) Parse(b []byte) (rest []byte, err error) {
	const inOperation = true
	return t.ParseWithOrder(b, GuessTerminateOrder(b, inOperation))
}

// ParseWithOrder decodes t, in a known bit order, from the front of b and returns the octets that
// follow. The segment length is there if M is set, and also before every DDP header.
func (t *Terminate) ParseWithOrder(b []byte, order TerminateOrder) (rest []byte, err error) {
	if len(b) < TerminateLen {
		return nil, errShortTerminate
	}
	*t = Terminate{Order: order, Error: TermError{Layer: Layer(b[0] >> 4), Type: b[0] & 0x0F, Code: b[1]}}
	if order == OrderSiw {
		t.Error.Layer, t.Error.Type = Layer(b[0]&0x0F), b[0]>>4
		t.HasLength, t.HasDDP, t.HasRDMAP = b[2]&siwTermLength != 0, b[2]&siwTermDDP != 0, b[2]&siwTermRDMAP != 0
		t.Reserved = uint16(b[2]>>3)<<8 | uint16(b[3])
	} else {
		t.HasLength, t.HasDDP, t.HasRDMAP = b[2]&termLength != 0, b[2]&termDDP != 0, b[2]&termRDMAP != 0
		t.Reserved = uint16(b[2]&0x1F)<<8 | uint16(b[3])
	}
	b = b[TerminateLen:]
	if t.HasLength || t.HasDDP {
		if len(b) < segmentLengthLen {
			return nil, errShortSegmentLength
		}
		t.SegmentLength, b = binary.BigEndian.Uint16(b), b[segmentLengthLen:]
	}
	if t.HasDDP {
		if b, err = t.DDP.Parse(b); err != nil {
			return nil, err
		}
	}
	if t.hasRead() {
		if b, err = t.Read.Parse(b); err != nil {
			return nil, err
		}
	}
	return b, nil
}

// GuessTerminateOrder guesses the bit order of a Terminate, of the RFC or of the Linux driver siw:
// by the position of M, D or R if one is set, else by which order gives a defined error. Some
// octets are an MPA error of the start-up in one order ("insufficient IRD", "no matching RTR"), and
// an RDMAP error in the other: inOperation, set after the start-up, decides between them.
func GuessTerminateOrder(b []byte, inOperation bool) TerminateOrder {
	if len(b) < TerminateLen {
		return OrderRFC
	}
	switch {
	case b[2]&termBits != 0:
		return OrderRFC
	case b[2]&siwTermBits != 0:
		return OrderSiw
	}
	code := b[1]
	startup := code == codeMPAInsufficientIRD || code == codeMPANoMatchingRTR
	siw := false
	switch b[0] {
	case 0x21: // MPA (layer 2) has no errors of type 1, and DDP (layer 1) has some of type 2
		siw = true
	case 0x02: // in RFC order a remote operation error of RDMAP, in siw's order an MPA error
		siw = code >= codeMPACRC && code <= codeMPAFrame || startup && !inOperation
	case 0x20: // in RFC order an MPA error, in siw's order a remote operation error of RDMAP
		siw = (code == codeRDMAPVersion || code == codeRDMAPOpcode) && inOperation
	}
	if siw {
		return OrderSiw
	}
	return OrderRFC
}
