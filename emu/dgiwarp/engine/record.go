package engine

import (
	"encoding/binary"
	"slices"

	"github.com/fabrictest/fabrictest/emu/dgiwarp/wire"
	ddp "github.com/fabrictest/fabrictest/emu/iwarp/wire"
	"github.com/fabrictest/fabrictest/verbs"
)

// record is the received part of a Write-Record.
type record struct {
	partial
	from   source
	stag   ddp.STag
	base   uint64 // TO of its first octet
	length uint32
	imm    uint32
}

// takeWriteRecord places a segment of a Write-Record in memory, and records its range. A
// Write-Record is an unreliable Write; the completion of a receive at its target lists the ranges
// that arrived. The last missing segment completes the record. takeWriteRecord refuses an invalid
// segment, and drops one that contradicts earlier segments, or for which there is no room: there
// are too many records, or too many ranges in the record.
func (q *QP) takeWriteRecord(in *inbound) {
	n := q.nic
	var h wire.WriteRecord
	payload, err := h.Parse(in.body)
	t := &in.header.Tagged
	if err != nil || uint64(h.MO)+uint64(len(payload)) > uint64(h.Length) || len(payload) == 0 && h.Length > 0 {
		q.refuseSegment(in, ddp.TermOpUnspecified)
		return
	}
	k := messageKey{src: in.from.src, srcQP: in.from.qp, msn: h.MSN, qp: q}
	r := n.records.find(&k)
	if r != nil && (r.stag != t.STag || r.base != t.TO-uint64(h.MO) || r.length != h.Length) {
		n.Count.DropSegment++
		return
	}
	if r == nil {
		if len(n.records.open) >= n.records.limit {
			n.Count.DropRecord++
			return
		}
		if r = n.records.reuse(); r == nil {
			r = new(record)
		}
		*r = record{
			partial: partial{k, n.clock.Add(n.cfg.RecordTime), ranges{r.have.spans[:0]}}, from: *in.from,
			stag: t.STag, base: t.TO - uint64(h.MO), length: h.Length, imm: h.Imm,
		}
		n.records.open = append(n.records.open, r)
	}
	s := span{h.MO, h.MO + uint32(len(payload))}
	if !r.have.fits(s) {
		n.Count.DropRecord++
		return
	}
	if !q.place(in, t.TO, payload) {
		if len(r.have.spans) == 0 {
			n.records.remove(r)
		}
		return
	}
	r.have.add(s)
	if r.have.whole(r.length) {
		n.finishRecord(slices.Index(n.records.open, r))
	}
}

// Lengths of the header of a record in a receive's memory, and of each range that follows.
const (
	recordHead  = 20
	recordRange = 8
)

// finishRecord closes open record i, and completes a receive: its buffer gets the sender's address
// in place of a GRH, then the record with the received ranges, as many as fit. Without a receive,
// or if the next one is too short, the record is lost.
func (n *NIC) finishRecord(i int) {
	r := n.records.open[i]
	q := r.key.qp
	n.records.drop(i) // r is not reused before another record begins
	n.Count.Records++
	if !r.have.whole(r.length) {
		n.Count.RecordsPart++
	}
	w, pd := q.PeekReceive()
	if w == nil || w.Length < verbs.GRHLen+recordHead {
		n.Count.DropNoReceive++
		return
	}
	spans := r.have.spans
	count := min(len(spans), int(w.Length-verbs.GRHLen-recordHead)/recordRange)
	var buf [recordHead + maxRanges*recordRange]byte
	b := binary.BigEndian.AppendUint32(buf[:0], uint32(r.stag))
	b = binary.BigEndian.AppendUint64(b, r.base)
	b = binary.BigEndian.AppendUint32(b, r.length)
	b = binary.BigEndian.AppendUint32(b, uint32(count))
	for _, s := range spans[:count] {
		b = binary.BigEndian.AppendUint32(b, s.from)
		b = binary.BigEndian.AppendUint32(b, s.to-s.from)
	}
	r.from.fillGRH(&n.grh, len(b))
	wc := verbs.WC{
		WRID: w.WRID, Opcode: verbs.WCOpRecvRDMAWithImm, ByteLen: uint32(verbs.GRHLen + len(b)), Imm: r.imm,
		Flags: verbs.WCWithGRH | verbs.WCWithImm, SrcQP: verbs.QPN(r.from.qp),
	}
	err := n.Scatter(w.SGL, pd, 0, n.grh[:])
	if err == nil {
		err = n.Scatter(w.SGL, pd, verbs.GRHLen, b)
	}
	q.TakeReceive()
	if err != nil {
		wc = verbs.WC{WRID: w.WRID, Status: verbs.WCLocProtErr, Opcode: verbs.WCOpRecvRDMAWithImm}
	}
	q.push(q.RecvCQ, &wc, notSolicited)
	if err != nil {
		q.fail()
	}
}

// Record is the content of a receive for a Write-Record, after the GRH.
type Record struct {
	STag   uint32
	TO     uint64
	Length uint32
	Ranges []Range
}

// Range is a range of received octets of a Write-Record.
type Range struct{ Offset, Length uint32 }

// ParseRecord parses the record that finishRecord wrote to a receive. b begins after the GRH. ok is
// false if b is too short for the record.
func ParseRecord(b []byte) (r Record, ok bool) {
	if len(b) < recordHead {
		return r, false
	}
	r = Record{STag: binary.BigEndian.Uint32(b), TO: binary.BigEndian.Uint64(b[4:]), Length: binary.BigEndian.Uint32(b[12:])}
	count := binary.BigEndian.Uint32(b[16:])
	b = b[recordHead:]
	if uint64(count)*recordRange > uint64(len(b)) {
		return r, false
	}
	for range count {
		r.Ranges = append(r.Ranges, Range{binary.BigEndian.Uint32(b), binary.BigEndian.Uint32(b[4:])})
		b = b[recordRange:]
	}
	return r, true
}
