package wire

// Lengths in octets.
const (
	StartFrameLen = 20 // of a start-up frame, without its private data
	EnhancedLen   = 4  // at the front of the private data, RFC 6581

	ULPDULengthLen = 2
	CRCLen         = 4
	MarkerLen      = 4

	ControlLen  = 2
	TaggedLen   = 12 // after the control octets
	UntaggedLen = 16 // after the control octets

	ReadRequestLen    = 28
	TerminateLen      = 4 // the control field alone: MaxTerminateLen with all that may follow
	AtomicRequestLen  = 52
	AtomicResponseLen = 12
	ImmediateLen      = 8

	// MaxTerminateLen is a Terminate that returns the headers of a Read Request.
	MaxTerminateLen = TerminateLen + segmentLengthLen + ControlLen + UntaggedLen + ReadRequestLen
	// MaxHeaderLen is the longest that any opcode calls for: an Atomic Request's
	// or a Terminate's.
	MaxHeaderLen = ControlLen + UntaggedLen + max(AtomicRequestLen, MaxTerminateLen)

	segmentLengthLen = 2
)

// Limits.
const (
	// MaxPrivateData is what a start-up frame carries at most, the enhanced
	// data included.
	MaxPrivateData = 512
	// MinMULPDU and MaxMULPDU bound what MPA lets DDP put into one FPDU,
	// whatever the segment size of TCP.
	MinMULPDU = 128
	MaxMULPDU = 64768
	// MaxULPDU is what the length field can say. A peer that sends more than
	// MaxMULPDU is wrong, and understood.
	MaxULPDU = 1<<16 - 1

	// MarkerInterval is the distance between the first octets of two markers,
	// which counts markers too.
	MarkerInterval = 512

	// MaxFPDULen is an FPDU of MaxULPDU octets with as many markers as can fall
	// into it and before it.
	MaxFPDULen = ULPDULengthLen + MaxULPDU + 2 + CRCLen + MarkerLen*(2+MaxULPDU/(MarkerInterval-MarkerLen)+1)
)

// PadLen is how many octets follow a ULPDU so that the CRC, counted from the
// ULPDU_Length on, starts on a four-octet boundary.
func PadLen(ulpduLen int) int { return -(ULPDULengthLen + ulpduLen) & 3 }

// FPDULen is the length of an FPDU without markers.
func FPDULen(ulpduLen int) int { return ULPDULengthLen + ulpduLen + PadLen(ulpduLen) + CRCLen }

// MULPDU is the longest ULPDU whose FPDU fits into a TCP segment of emss octets
// (RFC 5044, section 4.5), within what MPA allows.
func MULPDU(emss int, markers bool) int {
	return min(max(RawMULPDU(emss, markers), MinMULPDU), MaxMULPDU)
}

// RawMULPDU is MULPDU without regard to what MPA allows.
func RawMULPDU(emss int, markers bool) int {
	n := emss - (ULPDULengthLen + CRCLen + emss%4)
	if markers {
		n -= MarkerLen * ((emss + MarkerInterval - 1) / MarkerInterval)
	}
	return n
}
