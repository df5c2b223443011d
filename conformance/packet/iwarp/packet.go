package iwarp

import (
	"encoding/binary"

	"github.com/fabrictest/fabrictest/conformance/packet"
)

// Packet is a packet of datagram-iWARP, the payload of a UDP datagram: see section 2 of
// docs/spec/datagram-iwarp.md. Addresses, ports and ECN are in the headers of package packet.
type Packet struct {
	Header PacketHeader

	// The blocks, in their order in a packet; nil: not present, or any.
	Ack       *AckBlock
	Data      *DataBlock
	Challenge *ChallengeBlock
	Refusal   *RefusalBlock
	// Segment is the ULPDU; nil: none, or any.
	Segment *Segment
	// Record is the header of a Write-Record, between the DDP header and the payload.
	Record *RecordHeader
	// Trailer are trailing octets; nil: none, or any.
	Trailer []byte

	CRC       *uint32   // nil: see CRCStatus
	CRCStatus *CRCState // nil: correct

	// CutAt truncates the packet before the CRC, which is then correct; nil: not
	// truncated.
	CutAt *int
}

// PacketHeader is the common header of all packets.
type PacketHeader struct {
	_       struct{}    `size:"16"`
	Version *uint8      `at:"0.0,4" def:"1"`
	Kind    *PacketKind `at:"0.4,4"`
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

// PacketKind is the kind of a packet.
type PacketKind uint8

// The kinds of packets.
const (
	KindUD        PacketKind = 1
	KindRD        PacketKind = 2
	KindChallenge PacketKind = 3
	KindRefusal   PacketKind = 4
)

// GroupQP as the destination addresses the queue pairs of a multicast group.
const GroupQP uint32 = 0x00ffffff

// PacketPath has the queue pairs and the key of a flow.
type PacketPath struct{ Dest, Source, Key uint32 }

// Over sets the fields of a path that are unset in the packet.
func (p Packet) Over(path PacketPath) Packet {
	p.Header = packet.Or(p.Header, PacketHeader{DestQP: &path.Dest, SourceQP: &path.Source, Key: &path.Key})
	return p
}

// Append appends the packet.
func (p Packet) Append(b []byte) []byte {
	start := len(b)
	b = packet.AppendFields(b, packet.Or(p.Header, PacketHeader{
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
	return binary.LittleEndian.AppendUint32(b, MPA{CRC: p.CRC, CRCStatus: p.CRCStatus}.crc(CRC32c(b[start:]), true))
}

// segment returns the ULPDU, with the header of a Write-Record.
func (p Packet) segment() *Segment {
	if p.Segment == nil || p.Record == nil {
		return p.Segment
	}
	s := *p.Segment
	s.OtherHeader = packet.AppendFields(nil, p.Record)
	return &s
}

// Strict returns the packet with all nil fields set to their defaults. As an expectation it
// compares every bit; the CRC must be correct.
func (p Packet) Strict() Packet {
	s := ParsePacket(p.Append(nil)).Packet
	s.CRC = nil
	return s
}
