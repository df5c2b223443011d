package dg

import "github.com/fabrictest/fabrictest/conformance/packet/iwarp"

// Any matches any packet.
func Any() Packet { return Packet{} }

// Of is a packet of a kind.
func Of(kind Kind) Packet { return Packet{Header: Header{Kind: &kind}} }

// UD is an unreliable packet with a segment.
func UD(s iwarp.Segment) Packet { return Of(KindUD).With(s) }

// Data is packet seq of a flow, with a segment.
func Data(epoch, seq uint32, s iwarp.Segment) Packet {
	p := Of(KindRD).With(s)
	p.Data = &DataBlock{Epoch: &epoch, Seq: &seq}
	return p
}

// Ack acknowledges all packets before next, without data.
func Ack(epoch, next uint32) Packet { return Of(KindRD).Acking(epoch, next) }

// Challenge asks the source of a new flow to prove its address.
func Challenge(epoch, incarnation uint32, cookie uint64) Packet {
	p := Of(KindChallenge)
	p.Challenge = &ChallengeBlock{Epoch: &epoch, Incarnation: &incarnation, Cookie: &cookie}
	return p
}

// Refusal rejects a flow.
func Refusal(epoch uint32, reason Reason) Packet {
	p := Of(KindRefusal)
	p.Refusal = &RefusalBlock{Epoch: &epoch, Reason: &reason}
	return p
}

// WriteRecord is an unreliable packet with a whole Write-Record message.
func WriteRecord(msn uint32, at iwarp.Addr, data []byte, immediate uint32) Packet {
	return writeRecord(msn, at, 0, uint32(len(data)), data, immediate)
}

// WriteRecords are the packets of a Write-Record message, with at most room octets of data
// each.
func WriteRecords(msn uint32, at iwarp.Addr, data []byte, immediate uint32, room int) []Packet {
	var all []Packet
	for mo := 0; mo == 0 || mo < len(data); mo += room {
		end := min(mo+room, len(data))
		p := writeRecord(msn, at, uint32(mo), uint32(len(data)), data[mo:end], immediate)
		if end < len(data) {
			p = p.EditSegment(func(s iwarp.Segment) iwarp.Segment { return s.Last(false) })
		}
		all = append(all, p)
	}
	return all
}

func writeRecord(msn uint32, at iwarp.Addr, mo, length uint32, data []byte, immediate uint32) Packet {
	p := UD(iwarp.Op(iwarp.OpExperimental).STag(at.STag).TO(at.TO + uint64(mo)).WithPayload(data))
	p.Record = &Record{MSN: &msn, MO: &mo, Length: &length, Immediate: &immediate}
	return p
}

// With sets the segment.
func (p Packet) With(s iwarp.Segment) Packet { p.Segment = &s; return p }

// EditSegment changes the segment.
func (p Packet) EditSegment(edit func(iwarp.Segment) iwarp.Segment) Packet {
	return p.With(edit(iwarp.Val(p.Segment)))
}

// EditRecord changes the header of a Write-Record.
func (p Packet) EditRecord(edit func(*Record)) Packet {
	r := iwarp.Val(p.Record)
	edit(&r)
	p.Record = &r
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
func (p Packet) OfKind(k Kind) Packet { p.Header.Kind = &k; return p }

// AckNow requests an immediate acknowledgement.
func (p Packet) AckNow() Packet { p.Header.AckNow = new(true); return p }

// Marked reports that a packet arrived with CE.
func (p Packet) Marked() Packet { p.Header.Marked = new(true); return p }

// Repeats reports an unnecessary retransmission.
func (p Packet) Repeats() Packet { p.Header.Repeats = new(true); return p }

// Starting adds a StartBlock to a data packet.
func (p Packet) Starting(proof uint64, incarnation, sourceKey uint32) Packet {
	d := iwarp.Val(p.Data)
	d.Start = &StartBlock{Proof: &proof, Incarnation: &incarnation, SourceKey: &sourceKey}
	p.Data = &d
	return p
}

// Timestamp sets the timestamp of a data packet.
func (p Packet) Timestamp(v uint32) Packet {
	d := iwarp.Val(p.Data)
	d.Timestamp = &v
	p.Data = &d
	return p
}

// Acking adds an acknowledgement.
func (p Packet) Acking(epoch, next uint32) Packet {
	p.Ack = &AckBlock{Epoch: &epoch, Next: &next}
	return p
}

// EditAck changes the acknowledgement.
func (p Packet) EditAck(edit func(*AckBlock)) Packet {
	a := iwarp.Val(p.Ack)
	edit(&a)
	p.Ack = &a
	return p
}

// Echo sets the echoed timestamp of the acknowledgement.
func (p Packet) Echo(v uint32) Packet { return p.EditAck(func(a *AckBlock) { a.Echo = &v }) }

// Window sets the receive window in packets; 0 is busy.
func (p Packet) Window(v uint16) Packet { return p.EditAck(func(a *AckBlock) { a.Window = &v }) }

// SACK sets the bitmap of the acknowledgement. An empty one matches an acknowledgement
// without packets after a gap.
func (p Packet) SACK(words ...uint32) Packet {
	return p.EditAck(func(a *AckBlock) { a.SACK = append([]uint32{}, words...) })
}

// EditHeader changes the header.
func (p Packet) EditHeader(edit func(*Header)) Packet { edit(&p.Header); return p }

// Trailing adds trailing octets.
func (p Packet) Trailing(b ...byte) Packet { p.Trailer = append([]byte{}, b...); return p }

// Cut truncates the packet to n octets, with a correct CRC.
func (p Packet) Cut(n int) Packet { p.CutAt = &n; return p }

// BadCRC flips one bit of the CRC.
func (p Packet) BadCRC() Packet { p.CRCStatus = new(iwarp.CRCWrong); return p }
