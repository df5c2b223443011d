package wire

import (
	"fmt"
	"time"
)

// Syndrome is the first byte of an AETH: what kind of answer it is, and a
// five-bit value whose meaning depends on the kind.
//
//	7 reserved, 0 | 6-5 kind: 00 ACK, 01 RNR NAK, 11 NAK | 4-0 value
type Syndrome uint8

// SyndromeKind says how to read a syndrome's value.
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

// Ack returns the syndrome of a positive acknowledgement that grants credit, a
// code of CreditCode's or CreditUnlimited.
func Ack(credit uint8) Syndrome { return Syndrome(credit & syndromeValueMask) }

// RNRNak returns the syndrome "receiver not ready": try again after
// RNRDelay(timer).
func RNRNak(timer uint8) Syndrome { return syndromeRNRBits | Syndrome(timer&syndromeValueMask) }

// Nak returns the syndrome of a negative acknowledgement.
func Nak(code NakCode) Syndrome { return syndromeNakBits | Syndrome(code&syndromeValueMask) }

// Kind says what kind of answer s is.
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

// String prints kind and value, as in "ACK credit 31" or "NAK remote access
// error".
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

// rnrDelays10us holds, in units of 10 µs, what each RNR timer code stands for.
// From code 2 on they climb by factors of 3/2 and 4/3 in turn; code 0 is the
// longest of all.
var rnrDelays10us = [32]uint32{
	65536, 1, 2, 3, 4, 6, 8, 12,
	16, 24, 32, 48, 64, 96, 128, 192,
	256, 384, 512, 768, 1024, 1536, 2048, 3072,
	4096, 6144, 8192, 12288, 16384, 24576, 32768, 49152,
}

// RNRDelay returns how long a requester must wait after an RNR NAK with the
// given timer code, of which the low five bits count.
func RNRDelay(code uint8) time.Duration {
	return time.Duration(rnrDelays10us[code&syndromeValueMask]) * 10 * time.Microsecond
}

// AckTimeout returns how long a requester waits for an acknowledgement, by the
// five-bit code of a QP's local ACK timeout: 4.096 µs times 2^code. Code 0
// turns the timer off; AckTimeout then returns 0.
func AckTimeout(code uint8) time.Duration {
	code &= 0x1F
	if code == 0 {
		return 0
	}
	return 4096 * time.Nanosecond << code
}
