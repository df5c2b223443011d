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

	// CutAt truncates the packet before the CRC, which is correct; nil: not truncated.
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
	Marked        *bool   `at:"1.4,1"` // a packet arrived with CE
	Repeats       *bool   `at:"1.5,1"` // a packet was retransmitted unnecessarily
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

// Over returns a copy with the queue pairs and the key of path in the fields that are unset.
func (p Packet) Over(path PacketPath) Packet {
	p.Header = packet.Or(p.Header, PacketHeader{DestQP: &path.Dest, SourceQP: &path.Source, Key: &path.Key})
	return p
}

// Append appends a packet of datagram-iWARP: the header, the blocks of its kind, segment and
// trailer, cut at CutAt, and then the CRC. Nil fields get their defaults.
func (p Packet) Append(b []byte) []byte {
	start := len(b)
	b = packet.AppendFields(b, packet.Or(p.Header, PacketHeader{
		HasData: new(p.Data != nil),
		HasAck:  new(p.Ack != nil),
		Start:   new(p.Data != nil && p.Data.Start != nil),
	}))
	if a := p.Ack; a != nil {
		b = packet.AppendFields(b, packet.Or(*a, AckBlock{Words: new(uint8(len(a.SACK)))}))
		for _, w := range a.SACK {
			b = binary.BigEndian.AppendUint32(b, w)
		}
	}
	if p.Data != nil {
		b = packet.AppendFields(b, p.Data)
		if p.Data.Start != nil {
			b = packet.AppendFields(b, p.Data.Start)
		}
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
	const crcInUse = true // always, in datagrams
	return binary.LittleEndian.AppendUint32(b, MPA{CRC: p.CRC, CRCStatus: p.CRCStatus}.crc(CRC32c(b[start:]), crcInUse))
}

// segment returns the ULPDU, with p.Record as its header if it is a Write-Record.
func (p Packet) segment() *Segment {
	if p.Segment == nil || p.Record == nil {
		return p.Segment
	}
	s := *p.Segment
	s.OtherHeader = packet.AppendFields(nil, p.Record)
	return &s
}

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

// parseAck parses the Ack block of b. If b is too short, ok is false, and a is nil or has no SACK.
func parseAck(b []byte) (a *AckBlock, rest []byte, ok bool) {
	a, b = packet.ParseAs[AckBlock](b)
	if a == nil || len(b) < 4*int(*a.Words) {
		return a, b, false
	}
	a.SACK = make([]uint32, *a.Words)
	for i := range a.SACK {
		a.SACK[i], b = binary.BigEndian.Uint32(b), b[4:]
	}
	return a, b, true
}

// Arrived reports whether the block acknowledges packet seq: it is before Next or in SACK.
func (a *AckBlock) Arrived(seq uint32) bool {
	distance := int32(seq - Val(a.Next))
	if distance <= 0 {
		return distance < 0
	}
	bit := int(distance - 1) // bit 0 of the first word stands for packet Next+1
	return bit/32 < len(a.SACK) && a.SACK[bit/32]>>(bit%32)&1 != 0
}

// SACKOf returns the bitmap that acknowledges the arrived packets: bit 0 of its first word stands
// for packet next+1. It panics unless they are among the 32*maxWords packets after next.
func SACKOf(next uint32, arrived ...uint32) []uint32 {
	var words []uint32
	for _, seq := range arrived {
		bit := seq - next - 1
		for uint32(len(words)) <= bit/32 && len(words) < maxWords {
			words = append(words, 0)
		}
		words[bit/32] |= 1 << (bit % 32)
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

// StartBlock starts a flow, the packets from one datagram-iWARP peer to another. It is in every
// packet until one is acknowledged.
type StartBlock struct {
	_           struct{} `size:"16"`
	Proof       *uint64  `at:"0,64" fmt:"%#x"`
	Incarnation *uint32  `at:"8,32" fmt:"%#x"`
	SourceKey   *uint32  `at:"12,32" fmt:"%#x"`
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

// AnyPacket matches any packet.
func AnyPacket() Packet { return Packet{} }

// PacketOf returns a packet of this kind, with no other field set.
func PacketOf(kind PacketKind) Packet { return Packet{Header: PacketHeader{Kind: &kind}} }

// UD is an unreliable packet with a segment.
func UD(s Segment) Packet { return PacketOf(KindUD).With(s) }

// RDData is packet seq of a flow of reliable datagrams, with a segment. epoch identifies the flow.
func RDData(epoch, seq uint32, s Segment) Packet {
	p := PacketOf(KindRD).With(s)
	p.Data = &DataBlock{Epoch: &epoch, Seq: &seq}
	return p
}

// RDAck acknowledges all packets before next, without data.
func RDAck(epoch, next uint32) Packet { return PacketOf(KindRD).Acking(epoch, next) }

// Challenge asks the source of a new flow of reliable datagrams to prove its address: to start the
// flow again with cookie as the proof. incarnation is that of the challenger's QP, another one each
// time the QP is created.
func Challenge(epoch, incarnation uint32, cookie uint64) Packet {
	p := PacketOf(KindChallenge)
	p.Challenge = &ChallengeBlock{Epoch: &epoch, Incarnation: &incarnation, Cookie: &cookie}
	return p
}

// Refusal rejects a flow of reliable datagrams, which epoch identifies.
func Refusal(epoch uint32, reason RefusalReason) Packet {
	p := PacketOf(KindRefusal)
	p.Refusal = &RefusalBlock{Epoch: &epoch, Reason: &reason}
	return p
}

// WriteRecord is an unreliable packet with a whole Write-Record message.
func WriteRecord(msn uint32, at Addr, data []byte, immediate uint32) Packet {
	maxData := max(len(data), 1) // all data in one packet
	return WriteRecords(msn, at, data, immediate, maxData)[0]
}

// WriteRecords returns the packets of a Write-Record message, at least one, with up to maxData
// octets of data each. Write-Record is the RDMA Write of datagram-iWARP, which reports to the target
// what arrived. It has the opcode that is reserved for experiments.
func WriteRecords(msn uint32, at Addr, data []byte, immediate uint32, maxData int) (all []Packet) {
	for mo := 0; mo == 0 || mo < len(data); mo += maxData {
		end := min(mo+maxData, len(data))
		s := Op(OpExperimental).STag(at.STag).TO(at.TO + uint64(mo)).WithPayload(data[mo:end])
		if end < len(data) {
			s = s.Last(false)
		}
		p := UD(s)
		p.Record = &RecordHeader{MSN: &msn, MO: new(uint32(mo)), Length: new(uint32(len(data))), Immediate: &immediate}
		all = append(all, p)
	}
	return all
}

// With returns a copy with this segment.
func (p Packet) With(s Segment) Packet { p.Segment = &s; return p }

// EditSegment returns a copy with the segment that edit returns for its own.
func (p Packet) EditSegment(edit func(Segment) Segment) Packet { return p.With(edit(Val(p.Segment))) }

// EditRecord returns a copy with the header of its Write-Record changed by edit.
func (p Packet) EditRecord(edit func(*RecordHeader)) Packet {
	p.Record = edited(p.Record, edit)
	return p
}

// ToQP returns a copy with this destination QPN.
func (p Packet) ToQP(v uint32) Packet { p.Header.DestQP = &v; return p }

// FromQP returns a copy with this source QPN.
func (p Packet) FromQP(v uint32) Packet { p.Header.SourceQP = &v; return p }

// WithKey returns a copy with this key.
func (p Packet) WithKey(v uint32) Packet { p.Header.Key = &v; return p }

// AckNow returns a copy with the flag that requests an immediate acknowledgement.
func (p Packet) AckNow() Packet { p.Header.AckNow = new(true); return p }

// Starting returns a copy of a data packet of datagram-iWARP with a StartBlock, as the first
// packets of a flow have. proof is the cookie of a Challenge, 0 before one. incarnation (new for
// each QP that is created) and sourceKey are those of the sender's QP.
func (p Packet) Starting(proof uint64, incarnation, sourceKey uint32) Packet {
	start := &StartBlock{Proof: &proof, Incarnation: &incarnation, SourceKey: &sourceKey}
	p.Data = edited(p.Data, func(d *DataBlock) { d.Start = start })
	return p
}

// Timestamp returns a copy of a data packet with this timestamp.
func (p Packet) Timestamp(v uint32) Packet {
	p.Data = edited(p.Data, func(d *DataBlock) { d.Timestamp = &v })
	return p
}

// Acking returns a copy with an acknowledgement of all packets of the flow's epoch before next.
func (p Packet) Acking(epoch, next uint32) Packet {
	p.Ack = &AckBlock{Epoch: &epoch, Next: &next}
	return p
}

// EditAck returns a copy with its acknowledgement changed by edit.
func (p Packet) EditAck(edit func(*AckBlock)) Packet {
	p.Ack = edited(p.Ack, edit)
	return p
}

// Echo returns a copy with this echoed timestamp in the acknowledgement.
func (p Packet) Echo(v uint32) Packet { return p.EditAck(func(a *AckBlock) { a.Echo = &v }) }

// Window returns a copy with this receive window in packets; 0 says that the receiver is busy.
func (p Packet) Window(v uint16) Packet { return p.EditAck(func(a *AckBlock) { a.Window = &v }) }

// SACK returns a copy with this bitmap in the acknowledgement; without words it matches only an
// empty bitmap.
func (p Packet) SACK(words ...uint32) Packet {
	return p.EditAck(func(a *AckBlock) { a.SACK = append([]uint32{}, words...) })
}

// EditHeader returns a copy with the header changed by edit.
func (p Packet) EditHeader(edit func(*PacketHeader)) Packet { edit(&p.Header); return p }

// Trailing returns a copy with these octets after the segment.
func (p Packet) Trailing(b ...byte) Packet { p.Trailer = append([]byte{}, b...); return p }

// Cut returns a copy that is truncated to n octets; a correct CRC follows them.
func (p Packet) Cut(n int) Packet { p.CutAt = &n; return p }

// BadCRC returns a copy with one bit of the CRC flipped.
func (p Packet) BadCRC() Packet { p.CRCStatus = new(CRCWrong); return p }
