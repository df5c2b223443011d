package dg

import "github.com/fabrictest/fabrictest/conformance/packet/iwarp"

// Any is any packet.
func Any() Packet { return Packet{} }

// Of is any packet of a kind.
func Of(kind Kind) Packet { return Packet{Header: Header{Kind: &kind}} }

// UD is an unreliable packet with a segment.
func UD(s iwarp.Segment) Packet { return Of(KindUD).With(s) }

// Data is packet seq of a flow, with a segment.
func Data(epoch, seq uint32, s iwarp.Segment) Packet {
	p := Of(KindRD).With(s)
	p.Data = &DataBlock{Epoch: &epoch, Seq: &seq}
	return p
}

// Ack is an acknowledgement of a flow without data: everything before next has arrived.
func Ack(epoch, next uint32) Packet { return Of(KindRD).Acking(epoch, next) }

// Challenge asks the source of a flow that wants to start for proof that it is there.
func Challenge(epoch, incarnation uint32, cookie uint64) Packet {
	p := Of(KindChallenge)
	p.Challenge = &ChallengeBlock{Epoch: &epoch, Incarnation: &incarnation, Cookie: &cookie}
	return p
}

// Refusal refuses a flow.
func Refusal(epoch uint32, reason Reason) Packet {
	p := Of(KindRefusal)
	p.Refusal = &RefusalBlock{Epoch: &epoch, Reason: &reason}
	return p
}

// WriteRecord is an unreliable packet with a Write-Record message of its own.
func WriteRecord(msn uint32, at iwarp.Addr, data []byte, immediate uint32) Packet {
	return writeRecord(msn, at, 0, uint32(len(data)), data, immediate)
}

// WriteRecords are the packets of a Write-Record message with at most room octets of
// data each.
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
	p := UD(iwarp.Of(iwarp.OpExperimental).STag(at.STag).TO(at.TO + uint64(mo)).WithPayload(data))
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

// ToQP sets the destination.
func (p Packet) ToQP(v uint32) Packet { p.Header.DestQP = &v; return p }

// FromQP sets the source.
func (p Packet) FromQP(v uint32) Packet { p.Header.SourceQP = &v; return p }

// WithKey sets the key.
func (p Packet) WithKey(v uint32) Packet { p.Header.Key = &v; return p }

// Version sets the version.
func (p Packet) Version(v uint8) Packet { p.Header.Version = &v; return p }

// OfKind sets the kind, and nothing that would have to go with it.
func (p Packet) OfKind(k Kind) Packet { p.Header.Kind = &k; return p }

// AckNow asks for an acknowledgement at once.
func (p Packet) AckNow() Packet { p.Header.AckNow = new(true); return p }

// Marked says that a packet came with CE.
func (p Packet) Marked() Packet { p.Header.Marked = new(true); return p }

// Repeats says that something was sent again for nothing.
func (p Packet) Repeats() Packet { p.Header.Repeats = new(true); return p }

// Starting adds what lets a flow begin to a packet with data.
func (p Packet) Starting(proof uint64, incarnation, sourceKey uint32) Packet {
	d := iwarp.Val(p.Data)
	d.Start = &StartBlock{Proof: &proof, Incarnation: &incarnation, SourceKey: &sourceKey}
	p.Data = &d
	return p
}

// Timestamp sets that of a packet with data.
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

// Echo sets the timestamp that the acknowledgement answers.
func (p Packet) Echo(v uint32) Packet { return p.EditAck(func(a *AckBlock) { a.Echo = &v }) }

// Window sets how many packets would be taken; 0 is busy.
func (p Packet) Window(v uint16) Packet { return p.EditAck(func(a *AckBlock) { a.Window = &v }) }

// SACK sets the words of the acknowledgement. Where it is expected, no words at all is
// that nothing has arrived behind a gap.
func (p Packet) SACK(words ...uint32) Packet {
	return p.EditAck(func(a *AckBlock) { a.SACK = append([]uint32{}, words...) })
}

// EditHeader changes the header.
func (p Packet) EditHeader(edit func(*Header)) Packet { edit(&p.Header); return p }

// Trailing adds octets where none belong.
func (p Packet) Trailing(b ...byte) Packet { p.Trailer = append([]byte{}, b...); return p }

// Cut leaves the first n octets, with a CRC that is right for them.
func (p Packet) Cut(n int) Packet { p.CutAt = &n; return p }

// BadCRC has one bit of the CRC wrong.
func (p Packet) BadCRC() Packet { p.CRCIs = new(iwarp.CRCWrong); return p }
