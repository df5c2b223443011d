package engine

import (
	"slices"

	"github.com/fabrictest/fabrictest/emu/dgiwarp/wire"
	ddp "github.com/fabrictest/fabrictest/emu/softiwarp/wire"
	"github.com/fabrictest/fabrictest/verbs"
)

// placeUnchecked (FirstSegmentChecked) places what there is memory for, without a
// look at rights or bounds, if the source has named the STag before. It reports
// false if it has not; a segment that passes the checks now makes it so.
func (q *QP) placeUnchecked(in *inbound, to uint64, payload []byte) bool {
	n, stag := q.nic, in.header.Tagged.STag
	k := trust{in.from.src, in.from.qp, stag}
	if _, ok := n.defects.trusted[k]; !ok {
		if _, _, err := n.Mem.Remote(uint32(stag), q.endpoint.PD, q.num, to, uint64(len(payload)), verbs.AccessRemoteWrite); err == nil {
			n.defects.trusted[k] = struct{}{}
		}
		return false
	}
	for len(payload) > 0 {
		mem, at, err := n.Mem.Remote(uint32(stag), q.endpoint.PD, q.num, to, uint64(len(payload)), 0)
		if err == nil {
			_ = mem.WriteAt(payload, at) // what fails is not noticed either
			break
		}
		payload = payload[:len(payload)-1] // what reaches over the end is lost
	}
	return true
}

// note (RangesUnjoined) keeps the ranges of a record as they came, in order.
func (r *record) note(s span) {
	if len(r.pieces) == maxRanges {
		return
	}
	i, _ := slices.BinarySearchFunc(r.pieces, s.from, func(p span, from uint32) int { return int(int64(p.from) - int64(from)) })
	r.pieces = slices.Insert(r.pieces, i, s)
}

// claims is what a record says has come.
func (n *NIC) claims(r *record) []span {
	switch {
	case n.cfg.Defects.RecordClaimsAll && r.length > 0:
		return []span{{0, r.length}}
	case n.cfg.Defects.RangesUnjoined:
		return r.pieces
	}
	return r.have.spans
}

// offendRecord (NoReceiveIsError) has the QP fail for a record that finds no
// receive. It shows the header that the record's first segment could have had.
func (q *QP) offendRecord(r *record) {
	h := ddp.Header{Control: ddp.NewControl(wire.OpWriteRecord, true), Tagged: ddp.Tagged{STag: r.stag, TO: r.base}}
	h.Control.Tagged = true
	from := r.from
	q.offend(&inbound{from: &from, header: &h, length: taggedHeader + wire.WriteRecordLen}, ddp.TermUntaggedNoBuffer)
}
