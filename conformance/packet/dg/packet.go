package dg

import (
	"encoding/binary"

	"github.com/fabrictest/fabrictest/conformance/packet"
	"github.com/fabrictest/fabrictest/conformance/packet/iwarp"
)

// Packet is the payload of a UDP datagram.
type Packet struct {
	Header Header

	// The blocks, in the order in which they are in a packet that has them; nil: not
	// there, or any.
	Ack       *AckBlock
	Data      *DataBlock
	Challenge *ChallengeBlock
	Refusal   *RefusalBlock
	// Segment is the ULPDU; nil: none, or any.
	Segment *iwarp.Segment
	// Record is the header of a Write-Record, between the DDP header and the payload.
	Record *Record
	// Trailer is what follows where nothing should; nil: nothing, or anything.
	Trailer []byte

	CRC   *uint32         // nil: as CRCIs says
	CRCIs *iwarp.CRCState // nil: right

	// CutAt is how many octets are sent before the CRC, which is right for them; nil:
	// all.
	CutAt *int
}

// Header is what every packet begins with.
type Header struct {
	_       struct{} `size:"16"`
	Version *uint8   `at:"0.0,4" def:"1"`
	Kind    *Kind    `at:"0.4,4"`
	// The flags. nil: the first three as the blocks demand, the others not set.
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

// GroupQP as the number of the destination names the queue pairs of a group.
const GroupQP uint32 = 0x00ffffff

// Path is where packets go and where they come from.
type Path struct{ Dest, Source, Key uint32 }

// Over has a packet that says nothing else go along a path.
func (p Packet) Over(path Path) Packet {
	p.Header = packet.Or(p.Header, Header{DestQP: &path.Dest, SourceQP: &path.Source, Key: &path.Key})
	return p
}

const crcLen = 4

// Append appends the octets of the packet.
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

// segment is the ULPDU, with the header of a Write-Record in it.
func (p Packet) segment() *iwarp.Segment {
	if p.Segment == nil || p.Record == nil {
		return p.Segment
	}
	s := *p.Segment
	s.OtherHeader = packet.AppendFields(nil, p.Record)
	return &s
}

func (p Packet) crc(right uint32) uint32 {
	switch state := iwarp.Val(p.CRCIs); {
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

// Strict returns the packet with every field that was nil at its ordinary value: as an
// expectation, one of every bit but those of the CRC, which has to be right.
func (p Packet) Strict() Packet {
	s := Parse(p.Append(nil)).Packet
	s.CRC = nil
	return s
}
