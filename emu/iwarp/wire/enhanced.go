package wire

import "encoding/binary"

// Enhanced is the enhanced data of RFC 6581 before the private data of a start-up frame:
// IRD and ORD, and in the peer-to-peer model the kinds of RTR (ready to receive) message.
//
//	0-1 A(1) B(1) IRD(14) | 2-3 C(1) D(1) ORD(14)
type Enhanced struct {
	PeerToPeer bool   // A
	RTRSend    bool   // B: the RTR may be a zero-length Send
	RTRWrite   bool   // C: the RTR may be a zero-length RDMA Write
	RTRRead    bool   // D: the RTR may be a zero-length RDMA Read
	IRD        uint16 // 14 bits: inbound read queue depth of the sender
	ORD        uint16 // 14 bits: outbound read queue depth of the sender
}

// DepthNotNegotiated is the IRD or ORD of a depth that is not negotiated.
const DepthNotNegotiated uint16 = depthMask

const (
	enhancedHigh = 0x8000 // A and C
	enhancedLow  = 0x4000 // B and D
	depthMask    = 0x3FFF
)

var errShortEnhanced = shortError("enhanced MPA data", EnhancedLen)

// Append appends e in wire order and returns the extended slice.
func (e Enhanced) Append(b []byte) []byte {
	b = binary.BigEndian.AppendUint16(b, enhancedWord(e.PeerToPeer, e.RTRSend, e.IRD))
	return binary.BigEndian.AppendUint16(b, enhancedWord(e.RTRWrite, e.RTRRead, e.ORD))
}

// Parse decodes e from the front of b and returns the rest: the application's private data.
func (e *Enhanced) Parse(b []byte) (rest []byte, err error) {
	if len(b) < EnhancedLen {
		return nil, errShortEnhanced
	}
	first, second := binary.BigEndian.Uint16(b), binary.BigEndian.Uint16(b[2:])
	*e = Enhanced{
		PeerToPeer: first&enhancedHigh != 0,
		RTRSend:    first&enhancedLow != 0,
		RTRWrite:   second&enhancedHigh != 0,
		RTRRead:    second&enhancedLow != 0,
		IRD:        first & depthMask,
		ORD:        second & depthMask,
	}
	return b[EnhancedLen:], nil
}

// enhancedWord encodes one of the two 16-bit words of the enhanced data: the flags high and low in
// its two upper bits, and depth, the IRD in the first word and the ORD in the second.
func enhancedWord(high, low bool, depth uint16) uint16 {
	w := depth & depthMask
	if high {
		w |= enhancedHigh
	}
	if low {
		w |= enhancedLow
	}
	return w
}

// Split returns f's enhanced data and the application's private data after it. Without enhanced
// data (no S flag, older revision, too few octets) ok is false, and private is all private data.
func (f *StartFrame) Split() (e Enhanced, private []byte, ok bool) {
	if !f.Enhanced || f.Revision < RevisionEnhanced {
		return e, f.PrivateData, false
	}
	private, err := e.Parse(f.PrivateData)
	if err != nil {
		return Enhanced{}, f.PrivateData, false
	}
	return e, private, true
}
