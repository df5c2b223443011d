package wire

import "encoding/binary"

// Enhanced is what RFC 6581 puts in front of the private data of a start-up
// frame: how many reads each side takes, and, in the peer-to-peer model, with
// which message the initiator may say that it is ready to receive (RTR).
//
//	0-1 A(1) B(1) IRD(14) | 2-3 C(1) D(1) ORD(14)
type Enhanced struct {
	PeerToPeer bool   // A
	RTRSend    bool   // B: a Send of no octets may be the RTR
	RTRWrite   bool   // C: an RDMA Write of no octets may be
	RTRRead    bool   // D: an RDMA Read of no octets may be
	IRD        uint16 // 14 bits: reads that the sender of this takes at a time
	ORD        uint16 // 14 bits: reads that it wants to have under way
}

// DepthNotNegotiated as IRD or ORD leaves that depth to the applications.
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

// Parse decodes e from the front of b and returns the octets that follow: the
// application's own private data.
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

// Split returns the enhanced data of f and the private data after it. ok is
// false if there is none: no S flag, a revision that does not know it, or fewer
// octets than it takes, as some peer may send.
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
