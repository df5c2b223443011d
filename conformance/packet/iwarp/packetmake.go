package iwarp

// AnyPacket matches any packet.
func AnyPacket() Packet { return Packet{} }

// PacketOf returns a packet of a kind, with no other field set.
func PacketOf(kind PacketKind) Packet { return Packet{Header: PacketHeader{Kind: &kind}} }

// UD is an unreliable packet with a segment.
func UD(s Segment) Packet { return PacketOf(KindUD).With(s) }

// RDData is packet seq of a flow, with a segment.
func RDData(epoch, seq uint32, s Segment) Packet {
	p := PacketOf(KindRD).With(s)
	p.Data = &DataBlock{Epoch: &epoch, Seq: &seq}
	return p
}

// RDAck acknowledges all packets before next, without data.
func RDAck(epoch, next uint32) Packet { return PacketOf(KindRD).Acking(epoch, next) }

// Challenge asks the source of a new flow to prove its address.
func Challenge(epoch, incarnation uint32, cookie uint64) Packet {
	p := PacketOf(KindChallenge)
	p.Challenge = &ChallengeBlock{Epoch: &epoch, Incarnation: &incarnation, Cookie: &cookie}
	return p
}

// Refusal rejects a flow.
func Refusal(epoch uint32, reason RefusalReason) Packet {
	p := PacketOf(KindRefusal)
	p.Refusal = &RefusalBlock{Epoch: &epoch, Reason: &reason}
	return p
}

// WriteRecord is an unreliable packet with a whole Write-Record message.
func WriteRecord(msn uint32, at Addr, data []byte, immediate uint32) Packet {
	return writeRecord(msn, at, 0, uint32(len(data)), data, immediate)
}

// WriteRecords returns the packets of a Write-Record message, with at most maxData octets of data
// each.
func WriteRecords(msn uint32, at Addr, data []byte, immediate uint32, maxData int) []Packet {
	var all []Packet
	for mo := 0; mo == 0 || mo < len(data); mo += maxData {
		end := min(mo+maxData, len(data))
		p := writeRecord(msn, at, uint32(mo), uint32(len(data)), data[mo:end], immediate)
		if end < len(data) {
			p = p.EditSegment(func(s Segment) Segment { return s.Last(false) })
		}
		all = append(all, p)
	}
	return all
}

// writeRecord returns the packet with the data at message offset mo of a Write-Record message of
// length octets. at is the address of the message.
func writeRecord(msn uint32, at Addr, mo, length uint32, data []byte, immediate uint32) Packet {
	p := UD(Op(OpExperimental).STag(at.STag).TO(at.TO + uint64(mo)).WithPayload(data))
	p.Record = &RecordHeader{MSN: &msn, MO: &mo, Length: &length, Immediate: &immediate}
	return p
}

// With sets the segment.
func (p Packet) With(s Segment) Packet { p.Segment = &s; return p }

// EditSegment changes the segment.
func (p Packet) EditSegment(edit func(Segment) Segment) Packet { return p.With(edit(Val(p.Segment))) }

// EditRecord changes the header of a Write-Record.
func (p Packet) EditRecord(edit func(*RecordHeader)) Packet {
	p.Record = edited(p.Record, edit)
	return p
}

// ToQP sets the destination QPN.
func (p Packet) ToQP(v uint32) Packet { p.Header.DestQP = &v; return p }

// FromQP sets the source QPN.
func (p Packet) FromQP(v uint32) Packet { p.Header.SourceQP = &v; return p }

// WithKey sets the key.
func (p Packet) WithKey(v uint32) Packet { p.Header.Key = &v; return p }

// Version sets the version.
func (p Packet) Version(v uint8) Packet { p.Header.Version = &v; return p }

// OfKind sets the kind field only.
func (p Packet) OfKind(k PacketKind) Packet { p.Header.Kind = &k; return p }

// AckNow sets the flag that requests an immediate acknowledgement.
func (p Packet) AckNow() Packet { p.Header.AckNow = new(true); return p }

// Marked sets the flag of an acknowledgement that a packet arrived with CE.
func (p Packet) Marked() Packet { p.Header.Marked = new(true); return p }

// Repeats sets the flag of an acknowledgement that a packet was retransmitted unnecessarily.
func (p Packet) Repeats() Packet { p.Header.Repeats = new(true); return p }

// Starting adds a StartBlock to a data packet.
func (p Packet) Starting(proof uint64, incarnation, sourceKey uint32) Packet {
	start := &StartBlock{Proof: &proof, Incarnation: &incarnation, SourceKey: &sourceKey}
	p.Data = edited(p.Data, func(d *DataBlock) { d.Start = start })
	return p
}

// Timestamp sets the timestamp of a data packet.
func (p Packet) Timestamp(v uint32) Packet {
	p.Data = edited(p.Data, func(d *DataBlock) { d.Timestamp = &v })
	return p
}

// Acking adds an acknowledgement.
func (p Packet) Acking(epoch, next uint32) Packet {
	p.Ack = &AckBlock{Epoch: &epoch, Next: &next}
	return p
}

// EditAck changes the acknowledgement.
func (p Packet) EditAck(edit func(*AckBlock)) Packet {
	p.Ack = edited(p.Ack, edit)
	return p
}

// Echo sets the echoed timestamp of the acknowledgement.
func (p Packet) Echo(v uint32) Packet { return p.EditAck(func(a *AckBlock) { a.Echo = &v }) }

// Window sets the receive window in packets; 0 says that the receiver is busy.
func (p Packet) Window(v uint16) Packet { return p.EditAck(func(a *AckBlock) { a.Window = &v }) }

// SACK sets the bitmap of the acknowledgement. An empty one matches only an acknowledgement of no
// packets after a gap.
func (p Packet) SACK(words ...uint32) Packet {
	return p.EditAck(func(a *AckBlock) { a.SACK = append([]uint32{}, words...) })
}

// EditHeader changes the header.
func (p Packet) EditHeader(edit func(*PacketHeader)) Packet { edit(&p.Header); return p }

// Trailing adds trailing octets.
func (p Packet) Trailing(b ...byte) Packet { p.Trailer = append([]byte{}, b...); return p }

// Cut truncates the packet to n octets; a correct CRC follows them.
func (p Packet) Cut(n int) Packet { p.CutAt = &n; return p }

// BadCRC flips one bit of the CRC.
func (p Packet) BadCRC() Packet { p.CRCStatus = new(CRCWrong); return p }
