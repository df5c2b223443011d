package dg

import (
	"encoding/binary"

	"github.com/fabrictest/fabrictest/conformance/packet"
	"github.com/fabrictest/fabrictest/conformance/packet/iwarp"
)

// Packet is the payload of a UDP datagram.
type Packet struct {
	Header Header

	// The blocks, in their order in a packet; nil: not present, or any.
	Ack       *AckBlock
	Data      *DataBlock
	Challenge *ChallengeBlock
	Refusal   *RefusalBlock
	// Segment is the ULPDU; nil: none, or any.
	Segment *iwarp.Segment
	// Record is the header of a Write-Record, between the DDP header and the payload.
	Record *Record
	// Trailer are trailing octets; nil: none, or any.
	Trailer []byte

	CRC       *uint32         // nil: see CRCStatus
	CRCStatus *iwarp.CRCState // nil: correct

	// CutAt truncates the packet before the CRC, which is then correct; nil: not
	// truncated.
	CutAt *int
}

// Header is the common header of all packets.
type Header struct {
	_       struct{} `size:"16"`
	Version *uint8   `at:"0.0,4" def:"1"`
	Kind    *Kind    `at:"0.4,4"`
	// The flags. nil: the first three as the blocks require, the others clear.
	HasData       *bool   `at:"1.0,1"`
	HasAck        *bool   `at:"1.1,1"`
	Start         *bool   `at:"1.2,1"`
	AckNow        *bool   `at:"1.3,1"`
	Marked        *bool   `at:"1.4,1"`
	Repeats       *bool   `at:"1.5,1"`
	FlagsReserved *uint8  `at:"1.6,2" fmt:"%#x"`
	Reserved      *uint16 `at:"2,16" fmt:"%#x"`
	DestQP        *uint32 `at:"4,32" fmt:"%#x"`
	SourceQP      *uint32 `at:"8,32" fmt:"%#x"`
	Key           *uint32 `at:"12,32" fmt:"%#x"`
}

// Kind is the kind of a packet.
type Kind uint8

// The kinds of packets.
const (
	KindUD        Kind = 1
	KindRD        Kind = 2
	KindChallenge Kind = 3
	KindRefusal   Kind = 4
)

// GroupQP as the destination addresses the queue pairs of a multicast group.
const GroupQP uint32 = 0x00ffffff

// Path has the queue pairs and the key of a flow.
type Path struct{ Dest, Source, Key uint32 }

// Over sets the fields of a path that are unset in the packet.
func (p Packet) Over(path Path) Packet {
	p.Header = packet.Or(p.Header, Header{DestQP: &path.Dest, SourceQP: &path.Source, Key: &path.Key})
	return p
}

const crcLen = 4

// Append appends the packet.
func (p Packet) Append(b []byte) []byte {
	start := len(b)
	b = packet.AppendFields(b, packet.Or(p.Header, Header{
		HasData: new(p.Data != nil),
		HasAck:  new(p.Ack != nil),
		Start:   new(p.Data != nil && p.Data.Start != nil),
	}))
	if p.Ack != nil {
		b = p.Ack.append(b)
	}
	if p.Data != nil {
		b = p.Data.append(b)
	}
	if p.Challenge != nil {
		b = packet.AppendFields(b, p.Challenge)
	}
	if p.Refusal != nil {
		b = packet.AppendFields(b, p.Refusal)
	}
	if s := p.segment(); s != nil {
		b = s.Append(b)
	}
	b = append(b, p.Trailer...)
	if n := packet.Get(p.CutAt, len(b)-start); n < len(b)-start {
		b = b[:start+max(n, 0)]
	}
	return binary.LittleEndian.AppendUint32(b, p.crc(iwarp.CRC32c(b[start:])))
}

// segment returns the ULPDU, with the header of a Write-Record.
func (p Packet) segment() *iwarp.Segment {
	if p.Segment == nil || p.Record == nil {
		return p.Segment
	}
	s := *p.Segment
	s.OtherHeader = packet.AppendFields(nil, p.Record)
	return &s
}

func (p Packet) crc(right uint32) uint32 {
	switch state := iwarp.Val(p.CRCStatus); {
	case p.CRC != nil:
		return *p.CRC
	case state == iwarp.CRCRight:
		return right
	case state == iwarp.CRCZero:
		return 0
	default:
		return right ^ 1
	}
}

// Strict returns the packet with all nil fields set to their defaults. As an expectation it
// compares every bit; the CRC must be correct.
func (p Packet) Strict() Packet {
	s := Parse(p.Append(nil)).Packet
	s.CRC = nil
	return s
}
