package ib

import (
	"fmt"
	"time"
)

// AETH is the ACK extended transport header.
type AETH struct {
	_ struct{} `size:"4"`
	// Kind is the type in the syndrome, with its reserved first bit: kinds from 4 on are
	// invalid.
	Kind *AckKind `at:"0,3"`
	// Value is the rest of the syndrome: credits, RNR timer or NAK code. The default of
	// an ACK is NoCredits.
	Value *uint8 `at:"0.3,5"`
	// MSN is the number of messages that the responder has completed.
	MSN *uint32 `at:"1,24"`
}

// Syndrome is the first byte of the AETH.
func (h AETH) Syndrome() uint8 {
	kind := value(h.Kind, AckPositive)
	return uint8(kind)<<5 | value(h.Value, kind.defaultValue())
}

// AckKind is the first three bits of a syndrome.
type AckKind uint8

// Kinds of acknowledgements.
const (
	AckPositive AckKind = 0
	AckRNR      AckKind = 1
	AckReserved AckKind = 2
	AckNegative AckKind = 3
)

// String is the name of the kind.
func (k AckKind) String() string {
	switch k {
	case AckPositive:
		return "ACK"
	case AckRNR:
		return "RNR_NAK"
	case AckReserved:
		return "reserved ACK"
	case AckNegative:
		return "NAK"
	}
	return fmt.Sprintf("reserved ACK %d", uint8(k))
}

func (k AckKind) defaultValue() uint8 {
	if k == AckPositive {
		return NoCredits
	}
	return 0
}

// NakCode is the reason of a NAK.
type NakCode uint8

// NAK codes; those above are reserved.
const (
	NakSequence       NakCode = 0
	NakInvalidRequest NakCode = 1
	NakRemoteAccess   NakCode = 2
	NakRemoteOp       NakCode = 3
	NakInvalidRD      NakCode = 4
)

// String is the name of the code.
func (c NakCode) String() string {
	names := []string{"sequence", "invalid request", "remote access", "remote operational", "invalid RD request"}
	if int(c) < len(names) {
		return names[c]
	}
	return fmt.Sprintf("code %d", uint8(c))
}

// NoCredits is the credit code of a responder without end-to-end credits.
const NoCredits = 31

// Credits returns the number of receives of a credit code; told is false for NoCredits.
func Credits(code uint8) (n int, told bool) {
	code &= 31
	switch {
	case code == NoCredits:
		return 0, false
	case code < 4:
		return int(code), true
	}
	// From there on every second code doubles it: 4, 6, 8, 12, 16, 24 and so on.
	n = 4 << ((code - 4) / 2)
	if code%2 == 1 {
		n += n / 2
	}
	return n, true
}

// rnrTimers are the times of the RNR timer codes, in units of 10 µs.
var rnrTimers = [32]time.Duration{
	65536, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192,
	256, 384, 512, 768, 1024, 1536, 2048, 3072, 4096, 6144, 8192, 12288, 16384, 24576, 32768, 49152,
}

// RNRTimer returns the time of an RNR timer code.
func RNRTimer(code uint8) time.Duration { return rnrTimers[code&31] * 10 * time.Microsecond }

// AckTimeout returns the time of a local ACK timeout code; 0 means that the requester
// never retransmits.
func AckTimeout(code uint8) time.Duration {
	if code &= 31; code == 0 {
		return 0
	}
	return 4096 * time.Nanosecond << code
}
