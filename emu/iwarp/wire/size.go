package wire

// Lengths in octets.
const (
	StartFrameLen = 20 // without private data
	EnhancedLen   = 4  // at the start of the private data, RFC 6581

	ULPDULengthLen = 2
	CRCLen         = 4
	MarkerLen      = 4

	ControlLen  = 2
	TaggedLen   = 12 // after the control octets
	UntaggedLen = 16 // after the control octets

	ReadRequestLen    = 28
	TerminateLen      = 4 // without the fields that may follow
	AtomicRequestLen  = 52
	AtomicResponseLen = 12
	ImmediateLen      = 8

	// MaxTerminateLen is the length of a Terminate with the headers of a Read Request.
	MaxTerminateLen = TerminateLen + segmentLengthLen + ControlLen + UntaggedLen + ReadRequestLen
	// MaxHeaderLen is the longest header of any opcode: an Atomic Request's or a Terminate's.
	MaxHeaderLen = ControlLen + UntaggedLen + max(AtomicRequestLen, MaxTerminateLen)

	segmentLengthLen = 2
)

// Limits.
const (
	// MaxPrivateData is the longest private data of a start-up frame, with enhanced data.
	MaxPrivateData = 512
	// MinMULPDU and MaxMULPDU are the limits of MPA for the MULPDU.
	MinMULPDU = 128
	MaxMULPDU = 64768
	// MaxULPDU is the largest value of the length field. A ULPDU longer than MaxMULPDU is a
	// violation, but can be parsed.
	MaxULPDU = 1<<16 - 1

	// MarkerInterval is the distance between the first octets of two markers.
	MarkerInterval = 512

	// MaxFPDULen is the length of an FPDU of MaxULPDU octets with all markers.
	MaxFPDULen = ULPDULengthLen + MaxULPDU + 2 + CRCLen + MarkerLen*(2+MaxULPDU/(MarkerInterval-MarkerLen)+1)
)

// PadLen returns the number of pad octets after a ULPDU: the CRC is at a multiple of four octets
// from the start of the ULPDU_Length.
func PadLen(ulpduLen int) int { return -(ULPDULengthLen + ulpduLen) & 3 }

// FPDULen returns the length of the FPDU of a ULPDU, without markers.
func FPDULen(ulpduLen int) int { return ULPDULengthLen + ulpduLen + PadLen(ulpduLen) + CRCLen }

// MULPDU returns the length of the longest ULPDU whose FPDU fits into a TCP segment of emss octets
// (RFC 5044, section 4.5), between MinMULPDU and MaxMULPDU.
func MULPDU(emss int, markers bool) int {
	n := emss - (ULPDULengthLen + CRCLen + emss%4)
	if markers {
		n -= MarkerLen * ((emss + MarkerInterval - 1) / MarkerInterval)
	}
	return min(max(n, MinMULPDU), MaxMULPDU)
}
