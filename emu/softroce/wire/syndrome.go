package wire

import (
	"fmt"
	"time"
)

// Syndrome is the first byte of an AETH: a kind, and a five-bit value of that kind.
//
//	7 reserved, 0 | 6-5 kind: 00 ACK, 01 RNR NAK, 11 NAK | 4-0 value
type Syndrome uint8

// SyndromeKind is the kind of a syndrome.
type SyndromeKind uint8

// The kinds of syndrome.
const (
	SyndromeAck      SyndromeKind = iota // value: credit code
	SyndromeRNR                          // value: timer code of "receiver not ready"
	SyndromeNak                          // value: NakCode
	SyndromeReserved                     // a combination that is never sent
)

// NakCode is the reason of a NAK. Codes from 5 to 31 are reserved.
type NakCode uint8

// The reasons of a NAK.
const (
	NakPSNSequence NakCode = iota
	NakInvalidRequest
	NakRemoteAccess
	NakRemoteOperational
	NakInvalidRD
)

const (
	syndromeValueMask = 0x1F
	syndromeRNRBits   = 0x20
	syndromeNakBits   = 0x60
)

// Ack returns the syndrome of an ACK with a credit code, see CreditCode and CreditUnlimited.
func Ack(credit uint8) Syndrome { return Syndrome(credit & syndromeValueMask) }

// RNRNak returns the syndrome of an RNR NAK with a timer code.
func RNRNak(timer uint8) Syndrome { return syndromeRNRBits | Syndrome(timer&syndromeValueMask) }

// Nak returns the syndrome of a negative acknowledgement.
func Nak(code NakCode) Syndrome { return syndromeNakBits | Syndrome(code&syndromeValueMask) }

// Kind returns the kind of s.
func (s Syndrome) Kind() SyndromeKind {
	switch s &^ syndromeValueMask {
	case 0:
		return SyndromeAck
	case syndromeRNRBits:
		return SyndromeRNR
	case syndromeNakBits:
		return SyndromeNak
	}
	return SyndromeReserved
}

// Value returns the five-bit value: credit code, timer code or NakCode.
func (s Syndrome) Value() uint8 { return uint8(s & syndromeValueMask) }

// String prints kind and value, as in "ACK credit 31" or "NAK remote access error".
func (s Syndrome) String() string {
	switch s.Kind() {
	case SyndromeAck:
		return fmt.Sprintf("ACK credit %d", s.Value())
	case SyndromeRNR:
		return fmt.Sprintf("RNR NAK %v", RNRDelay(s.Value()))
	case SyndromeNak:
		return "NAK " + NakCode(s.Value()).String()
	}
	return fmt.Sprintf("reserved syndrome 0x%02x", uint8(s))
}

var nakNames = [...]string{
	NakPSNSequence:       "PSN sequence error",
	NakInvalidRequest:    "invalid request",
	NakRemoteAccess:      "remote access error",
	NakRemoteOperational: "remote operational error",
	NakInvalidRD:         "invalid RD request",
}

// String prints the reason in words.
func (c NakCode) String() string {
	if int(c) < len(nakNames) {
		return nakNames[c]
	}
	return fmt.Sprintf("reserved code %d", uint8(c))
}

// rnrDelays10us are the delays of RNR timer codes in units of 10 µs. Code 0 is the longest.
var rnrDelays10us = [32]uint32{
	65536, 1, 2, 3, 4, 6, 8, 12,
	16, 24, 32, 48, 64, 96, 128, 192,
	256, 384, 512, 768, 1024, 1536, 2048, 3072,
	4096, 6144, 8192, 12288, 16384, 24576, 32768, 49152,
}

// RNRDelay returns how long a requester waits after an RNR NAK with the given timer code, of
// which the low five bits are used.
func RNRDelay(code uint8) time.Duration {
	return time.Duration(rnrDelays10us[code&syndromeValueMask]) * 10 * time.Microsecond
}

// AckTimeout returns the time of a five-bit local ACK timeout code: 4.096 µs times 2^code. It
// returns 0 for code 0, which disables the timer.
func AckTimeout(code uint8) time.Duration {
	code &= 0x1F
	if code == 0 {
		return 0
	}
	return 4096 * time.Nanosecond << code
}
