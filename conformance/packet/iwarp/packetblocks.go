package iwarp

import (
	"encoding/binary"
	"fmt"
	"slices"

	"github.com/fabrictest/fabrictest/conformance/packet"
)

// AckBlock acknowledges packets of a flow.
type AckBlock struct {
	_        struct{} `size:"16"`
	Epoch    *uint32  `at:"0,32" fmt:"%#x"`
	Next     *uint32  `at:"4,32"`
	Echo     *uint32  `at:"8,32"`
	Window   *uint16  `at:"12,16" def:"256"`
	Words    *uint8   `at:"14,8"` // nil: the length of SACK
	Reserved *uint8   `at:"15,8" fmt:"%#x"`
	// SACK is the selective acknowledgement bitmap; nil: none, or any.
	SACK []uint32
}

// maxWords is the maximum length of SACK in words.
const maxWords = 8

func (a AckBlock) append(b []byte) []byte {
	b = packet.AppendFields(b, packet.Or(a, AckBlock{Words: new(uint8(len(a.SACK)))}))
	for _, w := range a.SACK {
		b = binary.BigEndian.AppendUint32(b, w)
	}
	return b
}

func parseAck(b []byte) (a *AckBlock, rest []byte, ok bool) {
	a = new(AckBlock)
	b, err := packet.ParseFields(b, a)
	if err != nil {
		return nil, b, false
	}
	n := int(*a.Words)
	if len(b) < 4*n {
		return a, b, false
	}
	a.SACK = make([]uint32, n)
	for i := range a.SACK {
		a.SACK[i] = binary.BigEndian.Uint32(b[4*i:])
	}
	return a, b[4*n:], true
}

func (a *AckBlock) diff(d *packet.Differences, got *AckBlock) {
	packet.DiffFields(d, "Ack.", a, got)
	if a.SACK != nil && !slices.Equal(a.SACK, got.SACK) {
		d.Add("Ack.SACK", fmt.Sprintf("%08x", a.SACK), fmt.Sprintf("%08x", got.SACK))
	}
}

// Arrived reports whether the block acknowledges packet seq.
func (a *AckBlock) Arrived(seq uint32) bool {
	behind := int32(seq - Val(a.Next))
	if behind < 0 {
		return true
	}
	w, bit := (behind-1)/32, uint(behind-1)%32
	return behind > 0 && int(w) < len(a.SACK) && a.SACK[w]>>bit&1 != 0
}

// SACKOf returns the bitmap that acknowledges the given packets, all of them after next.
func SACKOf(next uint32, arrived ...uint32) []uint32 {
	var words []uint32
	for _, seq := range arrived {
		at := seq - next - 1
		for uint32(len(words)) <= at/32 && len(words) < maxWords {
			words = append(words, 0)
		}
		words[at/32] |= 1 << (at % 32)
	}
	return words
}

// DataBlock has the sequence number of a packet in its flow.
type DataBlock struct {
	_         struct{} `size:"12"`
	Epoch     *uint32  `at:"0,32" fmt:"%#x"`
	Seq       *uint32  `at:"4,32"`
	Timestamp *uint32  `at:"8,32"`
	// Start is present until a packet of the flow has been acknowledged.
	Start *StartBlock
}

// StartBlock opens a flow.
type StartBlock struct {
	_           struct{} `size:"16"`
	Proof       *uint64  `at:"0,64" fmt:"%#x"`
	Incarnation *uint32  `at:"8,32" fmt:"%#x"`
	SourceKey   *uint32  `at:"12,32" fmt:"%#x"`
}

func (d DataBlock) append(b []byte) []byte {
	b = packet.AppendFields(b, d)
	if d.Start != nil {
		b = packet.AppendFields(b, d.Start)
	}
	return b
}

func (d *DataBlock) diff(to *packet.Differences, got *DataBlock) {
	packet.DiffFields(to, "Data.", d, got)
	packet.DiffHeader(to, "Start", "Start.", d.Start, got.Start)
}

// ChallengeBlock is the stateless response of a receiver to the start of a flow.
type ChallengeBlock struct {
	_           struct{} `size:"16"`
	Epoch       *uint32  `at:"0,32" fmt:"%#x"`
	Incarnation *uint32  `at:"4,32" fmt:"%#x"`
	Cookie      *uint64  `at:"8,64" fmt:"%#x"`
}

// RefusalBlock is the response of a receiver that rejects a flow.
type RefusalBlock struct {
	_        struct{}       `size:"8"`
	Epoch    *uint32        `at:"0,32" fmt:"%#x"`
	Reason   *RefusalReason `at:"4,8"`
	Reserved *uint32        `at:"5,24" fmt:"%#x"`
}

// RefusalReason is the reason of a refusal.
type RefusalReason uint8

// Reasons of refusals.
const (
	ReasonUnknownFlow RefusalReason = 1
	ReasonNoQP        RefusalReason = 2
	ReasonNotReady    RefusalReason = 3
	ReasonNoRoom      RefusalReason = 4
)

// RecordHeader is the header of an RDMA Write-Record.
type RecordHeader struct {
	_         struct{} `size:"16"`
	MSN       *uint32  `at:"0,32"`
	MO        *uint32  `at:"4,32"`
	Length    *uint32  `at:"8,32"` // message length
	Immediate *uint32  `at:"12,32" fmt:"%#x"`
}
