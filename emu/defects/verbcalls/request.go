package verbcalls

import (
	"slices"

	"github.com/fabrictest/fabrictest/verbs"
)

// change does to a request what defects do before it is posted, and puts sound handles
// into it.
func (p *pair) change(wr *verbs.SendWR) {
	q := &p.d.q
	wr.Bind.MW, wr.Bind.Info.MR = its(wr.Bind.MW), its(wr.Bind.Info.MR)
	wr.UD.AH = p.reachable(wr.UD.AH)
	if q.FenceIgnored {
		wr.Flags &^= verbs.SendFence
	}
	if q.AlwaysFenced {
		wr.Flags |= verbs.SendFence
	}
	if q.SignalsAll {
		wr.Flags |= verbs.SendSignaled
	}
	if q.SGECut {
		wr.SGL = wr.SGL[:min(p.caps.MaxSendSGE, len(wr.SGL))]
	}
	if q.SGEClamped {
		wr.SGL = p.d.clamped(wr.SGL)
	}
	if q.SGEsReversed {
		wr.SGL = slices.Clone(wr.SGL)
		slices.Reverse(wr.SGL)
	}
	if q.InlineCut {
		wr.Inline = wr.Inline[:min(p.caps.MaxInline, len(wr.Inline))]
	}
	if q.UnsignaledErrorsLost || q.RecvErrorIsQPOp {
		p.ask(wr)
	}
	if wr.Opcode == verbs.OpAtomicCmpAndSwp || wr.Opcode == verbs.OpAtomicFetchAdd {
		p.changeAtomic(wr)
	}
}

// changeAtomic does to an atomic what defects do.
func (p *pair) changeAtomic(wr *verbs.SendWR) {
	q := &p.d.q
	if q.AtomicOperandsSwapped && wr.Opcode == verbs.OpAtomicCmpAndSwp {
		wr.Atomic.CompareAdd, wr.Atomic.Swap = wr.Atomic.Swap, wr.Atomic.CompareAdd
	}
	if q.AtomicAddendCut && wr.Opcode == verbs.OpAtomicFetchAdd {
		wr.Atomic.CompareAdd &= 1<<32 - 1
	}
	if q.AtomicAligned {
		wr.Remote.Addr &^= 7
	}
	if q.AtomicSinkCut {
		wr.SGL = firstBytes(wr.SGL, 8)
	}
}

// clamped is a list whose entries do not leave their regions.
func (d *device) clamped(sgl []verbs.SGE) []verbs.SGE {
	sgl = slices.Clone(sgl)
	for i := range sgl {
		e := &sgl[i]
		for _, r := range kept(d, func(r *region) bool { return r.MR.LKey() == e.LKey }) {
			from, to := max(e.Addr, r.Addr()), min(e.Addr+uint64(e.Length), r.Addr()+uint64(r.Len()))
			if from <= to {
				e.Addr, e.Length = from, uint32(to-from)
			}
		}
	}
	return sgl
}

// firstBytes is a list of the first n bytes of what a list names, or of all.
func firstBytes(sgl []verbs.SGE, n uint32) (first []verbs.SGE) {
	for _, e := range sgl {
		if n == 0 {
			break
		}
		e.Length = min(e.Length, n)
		n -= e.Length
		first = append(first, e)
	}
	return first
}

// payload is how many bytes a message has.
func payload(wr *verbs.SendWR) (n int) {
	if wr.Flags&verbs.SendInline != 0 {
		return len(wr.Inline)
	}
	for _, e := range wr.SGL {
		n += int(e.Length)
	}
	return n
}

// ask notes whether a request asks for a completion.
func (p *pair) ask(wr *verbs.SendWR) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.quiet != nil {
		p.quiet[wr.WRID] = !p.signals(wr)
	}
}

// expect notes that receives are posted, or with -1 that they are not after all.
func (p *pair) expect(wrs []verbs.RecvWR, n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for i := range wrs {
		if p.receives != nil {
			p.receives[wrs[i].WRID] += n
		}
	}
}

// completed notes a completion, and reports whether it is one that
// UnsignaledErrorsLost loses. One in error does not say what it was.
func (p *pair) completed(wc *verbs.WC) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	failed := wc.Status != verbs.WCSuccess
	if p.receives[wc.WRID] > 0 && (failed || wc.Opcode&verbs.WCOpRecv != 0) {
		p.receives[wc.WRID]--
		return false
	}
	return p.d.q.UnsignaledErrorsLost && failed && wc.Status != verbs.WCWRFlushErr && p.quiet[wc.WRID]
}

// waits reports whether receives have not completed.
func (p *pair) waits() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, n := range p.receives {
		if n > 0 {
			return true
		}
	}
	return false
}
