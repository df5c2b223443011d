package rocewire

import (
	"slices"

	"github.com/fabrictest/fabrictest/emu/softroce/wire"
)

// write is a WRITE of several packets that has begun to leave.
type write struct {
	first wire.PSN
	wire.RETH
	segment int // bytes in each packet but the last
}

// rethInEach (RETHPerPacket) says in every packet of a WRITE where its own bytes
// go.
func rethInEach(e *Edge, p *packet) bool {
	if !p.class().Has(wire.Request | wire.Write) {
		return true
	}
	t, n := e.talkOut(p), len(p.data())
	if r, ok := p.reth(); ok {
		if p.class().Has(wire.First) {
			t.writes = remember(t.writes, write{p.psn(), r, n})
		}
		r.DMALen = uint32(n)
		r.Append(p.header(wire.HasRETH)[:0])
		p.changed = true
		return true
	}
	for _, w := range slices.Backward(t.writes) {
		if at := p.psn().Sub(w.first); at > 0 {
			own := wire.RETH{VA: w.VA + uint64(at)*uint64(w.segment), RKey: w.RKey, DMALen: uint32(n)}
			p.insert(wire.BTHLen+(p.info().Headers&(wire.HasRETH-1)).Len(), own.Append(nil))
			break
		}
	}
	return true
}

// interleave (Interleaves) swaps the LAST packet of a message with a message of
// one packet that follows it; each takes the other's PSN.
func (e *Edge) interleave() {
	for i := 1; i < len(e.queue); i++ {
		last, only := &e.queue[i-1], &e.queue[i]
		psn := last.psn()
		if !last.dataOf(wire.Last) || !only.dataOf(wire.Only) || last.Dst != only.Dst || last.destQP() != only.destQP() || only.psn() != psn.Next() {
			continue
		}
		last.setPSN(psn.Next())
		only.setPSN(psn)
		*last, *only = *only, *last
		i++ // what was moved back stays there
	}
}

// dataOf reports whether the packet is such a one of a SEND or WRITE.
func (p *packet) dataOf(place wire.Class) bool {
	return p.reliable() && p.class().Has(place) && p.class()&(wire.Send|wire.Write) != 0
}

// shrinkPSN (ReadTakesOnePSN) counts a READ as one packet in the PSNs of all
// requests behind it; stretchPSN undoes that in what answers them.
func shrinkPSN(e *Edge, p *packet) bool {
	q, ok := e.sentFrom(p)
	if !ok || !p.reliable() || !p.class().Has(wire.Request) {
		return true
	}
	t, psn := e.talkOut(p), p.psn()
	known := func(s span) bool { return s.has(psn) }
	if r, isRead := p.reth(); isRead && p.is(wire.OpReadRequest) && !slices.ContainsFunc(t.reads, known) {
		t.reads = remember(t.reads, span{psn, psn.Add(q.packets(r.DMALen) - 1)})
	}
	if by := t.shift(psn); by > 0 {
		p.setPSN(psn.Add(-by))
	}
	return true
}

// shift is by how much a request's PSN is too low.
func (t *talk) shift(psn wire.PSN) (by int32) {
	for _, r := range t.reads {
		if behind := psn.Sub(r.first); behind > 0 {
			by += min(behind, r.count()-1)
		}
	}
	return by
}

func stretchPSN(e *Edge, p *packet) bool {
	t, _, ok := e.talkIn(p)
	if !ok || !p.reliable() || !p.class().Has(wire.Response) {
		return true
	}
	psn, by := p.psn(), int32(0)
	for _, r := range t.reads {
		behind := psn.Sub(r.first.Add(-by))
		if behind <= 0 || p.class().Has(wire.Read) && behind < r.count() {
			break
		}
		by += r.count() - 1
	}
	if by > 0 {
		p.setPSN(psn.Add(by))
	}
	return true
}
