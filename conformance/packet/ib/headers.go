package ib

import (
	"fmt"
	"time"
)

// BTH is the base transport header.
type BTH struct {
	_      struct{} `size:"12"`
	Opcode *Opcode  `at:"0,8"`
	// SE requests a solicited event.
	SE     *bool `at:"1.0,1"`
	MigReq *bool `at:"1.1,1"`
	// PadCnt is the number of pad bytes before the ICRC: as many as needed if nil.
	PadCnt *uint8  `at:"1.2,2"`
	TVer   *uint8  `at:"1.4,4"`
	PKey   *uint16 `at:"2,16" def:"0xffff" fmt:"%#04x"`
	// FECN, BECN and Resv6 are in the byte that the ICRC does not cover.
	FECN   *bool   `at:"4.0,1"`
	BECN   *bool   `at:"4.1,1"`
	Resv6  *uint8  `at:"4.2,6" fmt:"%#02x"`
	DestQP *uint32 `at:"5,24" fmt:"%#x"`
	AckReq *bool   `at:"8.0,1"`
	Resv7  *uint8  `at:"8.1,7" fmt:"%#02x"`
	PSN    *PSN    `at:"9,24"`
}

// RETH is the RDMA extended transport header of a WRITE, READ, FLUSH or ATOMIC WRITE.
type RETH struct {
	_    struct{} `size:"16"`
	VA   *uint64  `at:"0,64" fmt:"%#x"`
	RKey *uint32  `at:"8,32" fmt:"%#x"`
	Len  *uint32  `at:"12,32"`
}

// At returns the RETH for n bytes of remote memory at address va, with this R_Key.
func At[A ~uint64 | ~int | ~uintptr, K ~uint32 | ~int](va A, rkey K, n int) RETH {
	return RETH{VA: new(uint64(va)), RKey: new(uint32(rkey)), Len: new(uint32(n))}
}

// Skip returns the RETH for the same memory without its first n bytes.
func (h RETH) Skip(n int) RETH {
	if h.VA != nil {
		h.VA = new(*h.VA + uint64(n))
	}
	if h.Len != nil {
		h.Len = new(*h.Len - uint32(n))
	}
	return h
}

// Sized returns the RETH for n bytes from the same address on.
func (h RETH) Sized(n int) RETH {
	h.Len = new(uint32(n))
	return h
}

// AtomicETH is the extended transport header of an atomic request. Only COMPARE_SWAP uses Compare.
type AtomicETH struct {
	_       struct{} `size:"28"`
	VA      *uint64  `at:"0,64" fmt:"%#x"`
	RKey    *uint32  `at:"8,32" fmt:"%#x"`
	SwapAdd *uint64  `at:"12,64" fmt:"%#x"`
	Compare *uint64  `at:"20,64" fmt:"%#x"`
}

// AtomicAckETH has the original value in the response to an atomic.
type AtomicAckETH struct {
	_        struct{} `size:"8"`
	Original *uint64  `at:"0,64" fmt:"%#x"`
}

// DETH is the datagram extended transport header.
type DETH struct {
	_     struct{} `size:"8"`
	QKey  *uint32  `at:"0,32" fmt:"%#x"`
	Resv  *uint8   `at:"4,8" fmt:"%#02x"`
	SrcQP *uint32  `at:"5,24" fmt:"%#x"`
}

// ImmDt is immediate data.
type ImmDt struct {
	_    struct{} `size:"4"`
	Data *uint32  `at:"0,32" fmt:"%#x"`
}

// IETH has the R_Key to invalidate.
type IETH struct {
	_    struct{} `size:"4"`
	RKey *uint32  `at:"0,32" fmt:"%#x"`
}

// XRCETH has the shared receive queue of an XRC request.
type XRCETH struct {
	_    struct{} `size:"4"`
	Resv *uint8   `at:"0,8" fmt:"%#02x"`
	SRQ  *uint32  `at:"1,24" fmt:"%#x"`
}

// RDETH has the end-to-end context of RD.
type RDETH struct {
	_    struct{} `size:"4"`
	Resv *uint8   `at:"0,8" fmt:"%#02x"`
	EE   *uint32  `at:"1,24" fmt:"%#x"`
}

// FETH has the type of a FLUSH (annex A19).
type FETH struct {
	_    struct{} `size:"4"`
	Resv *uint32  `at:"0,26" fmt:"%#x"`
	// Selectivity: FlushRange is the range of the RETH, 1 the whole memory region.
	Selectivity *uint8 `at:"3.2,2"`
	// Placement is a bit mask: FlushGlobal is globally visible, 2 persistent after a power loss.
	Placement *uint8 `at:"3.4,4"`
}

// Selectivity and placement of a FLUSH.
const (
	FlushRange  = 0
	FlushGlobal = 1
)

// AETH is the ACK extended transport header.
type AETH struct {
	_ struct{} `size:"4"`
	// Kind is the type in the syndrome, with its reserved first bit: kinds from 4 on are invalid.
	Kind *AckKind `at:"0,3"`
	// Value is the rest of the syndrome: credits, RNR timer or NAK code. The default of
	// an ACK is NoCreditCount.
	Value *uint8 `at:"0.3,5"`
	// MSN is the number of messages that the responder has completed.
	MSN *uint32 `at:"1,24"`
}

// Syndrome returns the first byte of the AETH, with defaults for nil fields.
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
	names := []string{"ACK", "RNR_NAK", "reserved ACK", "NAK"}
	if int(k) < len(names) {
		return names[k]
	}
	return fmt.Sprintf("reserved ACK %d", uint8(k))
}

// defaultValue returns the value to send in a syndrome of this kind if none is set. For an ACK it
// says that there is no credit count.
func (k AckKind) defaultValue() uint8 {
	if k == AckPositive {
		return NoCreditCount
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

// NoCreditCount is the credit code of a responder without end-to-end credits.
const NoCreditCount = 31

// Credits returns the number of receives that a credit code of an AETH stands for. valid is
// false for NoCreditCount, the code without a number.
func Credits(code uint8) (n int, valid bool) {
	code &= 31
	switch {
	case code == NoCreditCount:
		return 0, false
	case code < 4:
		return int(code), true
	}
	// From code 4 on every second code doubles the number: 4, 6, 8, 12, 16, 24 and so on.
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

// AckTimeout returns the time of a local ACK timeout code; 0 if the requester never retransmits.
func AckTimeout(code uint8) time.Duration {
	if code &= 31; code == 0 {
		return 0
	}
	return 4096 * time.Nanosecond << code
}
