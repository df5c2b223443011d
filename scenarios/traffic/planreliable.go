package traffic

import (
	"math/rand/v2"

	"github.com/fabrictest/fabrictest/verbs"
)

// The target of a reliable lane is an area for writes and reads, then words
// for the lane's own atomics. Windows are parts of the area.
const privateWords = 8

func areaLen(l *Lane) int       { return max(4*l.MaxBytes, 4096) &^ 7 }
func targetLen(l *Lane) int     { return areaLen(l) + 8*privateWords }
func wordAt(l *Lane, i int) int { return areaLen(l) + 8*i }

// windowExtent is the part of the area that window i opens. Windows overlap.
func windowExtent(l *Lane, i int) (at, n int) {
	at = (i * areaLen(l) / 8) % (areaLen(l) / 2)
	return at, min(areaLen(l)-at, l.MaxBytes+512)
}

// extent is a range of the target.
type extent struct{ at, n int }

func (e extent) overlaps(f extent) bool { return e.at < f.at+f.n && f.at < e.at+e.n }

// openRead is a read that no fence has ended yet.
type openRead struct {
	extent
	window int8
}

// planner makes the plan of one reliable stream.
type planner struct {
	w     *Workload
	l     *Lane
	rng   *rand.Rand
	words [privateWords]uint64 // as the plan has left them
	live  []bool               // windows not yet invalidated
	read  []bool               // windows that were read through
	reads []openRead
	bound bool // the poster's spare window
	wrote bool // a plain write was the last that the peer's program could notice
	quiet int
}

// planReliable makes the requests of an RC or XRC stream. Where a later request
// would change what an earlier read may still have to fetch again, the later
// one is fenced: without a fence the outcome would be nobody's fault.
func planReliable(w *Workload, lane int, s Side, rng *rand.Rand) []op {
	l := &w.Lanes[lane]
	p := planner{w: w, l: l, rng: rng, live: make([]bool, l.Windows), read: make([]bool, l.Windows)}
	p.wrote = true // what opens a connection may be a write of nothing
	for i := range p.live {
		p.live[i] = true
	}
	target := initialTarget(w, lane, s.Peer())
	for i := range p.words {
		p.words[i] = word(target[wordAt(l, i):])
	}
	ops := make([]op, 0, l.Messages[s])
	for len(ops) < cap(ops) {
		last := len(ops)+1 == cap(ops)
		o := p.draw(last)
		o.flags |= drawFlags(rng, l, &p.quiet, last)
		if p.needsFence(&o) || rng.IntN(16) == 0 {
			o.flags |= verbs.SendFence
			p.reads = p.reads[:0]
		}
		if o.code == verbs.OpRDMARead {
			p.reads = append(p.reads, openRead{extent{o.at, o.size}, o.window})
		}
		ops = append(ops, o)
	}
	return ops
}

// draw makes the next request. Where only an answer proves that anything has
// arrived, the last is one that is answered.
func (p *planner) draw(last bool) op {
	o := op{code: p.l.Mix[p.rng.IntN(len(p.l.Mix))], imm: p.rng.Uint32(), window: noWindow}
	if last && p.w.Traits.CompletesEarly {
		o.code = verbs.OpRDMARead
	}
	if p.l.XRCQueues > 0 {
		o.queue = uint8(p.rng.IntN(p.l.XRCQueues))
	}
	switch o.code {
	case verbs.OpSendInv:
		if o.window = p.pickWindow(); o.window == noWindow || !p.mayInvalidate(o.window) {
			o.code, o.window = verbs.OpSend, noWindow
		} else {
			p.live[o.window] = false
		}
		o.size = drawSize(p.rng, p.l, p.l.MaxBytes)
	case verbs.OpSend, verbs.OpSendImm:
		o.size = drawSize(p.rng, p.l, p.l.MaxBytes)
		switch bare := o.code == verbs.OpSendImm && p.w.Traits.SeparateImm; {
		case bare && p.wrote:
			o.code = verbs.OpSend
		case bare:
			o.size = 0
		}
	case verbs.OpAtomicCmpAndSwp, verbs.OpAtomicFetchAdd, verbs.OpAtomicWrite:
		p.drawAtomic(&o)
	case verbs.OpBindMW:
		if p.bound {
			o.code = verbs.OpLocalInv
		}
		p.bound = !p.bound
	default:
		p.drawRange(&o)
	}
	p.wrote = o.code == verbs.OpRDMAWrite || p.wrote && !o.consumes()
	return o
}

func (p *planner) pickWindow() int8 {
	if len(p.live) == 0 {
		return noWindow
	}
	if i := p.rng.IntN(len(p.live)); p.live[i] {
		return int8(i)
	}
	return noWindow
}

// mayInvalidate reports whether a window can be closed without doubt. The copies of a
// READ that its requester sends, even after a timeout that was too early, leave before a
// SEND_INV whose fence has waited for the READ, and a network that keeps order delivers
// them before it: they are answered. A network that duplicates or reorders may deliver a
// copy when the window is closed, which is then refused and ends the connection.
func (p *planner) mayInvalidate(window int8) bool {
	late := p.w.Network.Duplicates || p.w.Network.Reorders
	return !late || !p.read[window]
}

// drawRange places a write, read or flush.
func (p *planner) drawRange(o *op) {
	at, n := 0, areaLen(p.l)
	if o.code != verbs.OpFlush && p.rng.IntN(3) == 0 { // a window grants no flush
		if o.window = p.pickWindow(); o.window != noWindow {
			at, n = windowExtent(p.l, int(o.window))
		}
	}
	if o.code == verbs.OpRDMARead && o.window != noWindow {
		p.read[o.window] = true
	}
	o.size = drawSize(p.rng, p.l, n)
	o.at = at + p.rng.IntN(n-o.size+1)
}

func (p *planner) drawAtomic(o *op) {
	o.size = 8
	if o.code != verbs.OpAtomicWrite && p.w.SharedWords > 0 && p.rng.IntN(2) == 0 {
		o.shared = true
		o.at = p.rng.IntN(p.w.SharedWords)
		o.operand, o.swap = p.rng.Uint64()|1, p.rng.Uint64() // a swap's comparand is chosen when it is posted
		return
	}
	i := p.rng.IntN(privateWords)
	o.at = wordAt(p.l, i)
	o.operand, o.swap = p.rng.Uint64(), p.rng.Uint64()
	switch {
	case o.code == verbs.OpAtomicFetchAdd:
		p.words[i] += o.operand
	case o.code == verbs.OpAtomicWrite:
		p.words[i] = o.swap
	case p.rng.IntN(2) == 0: // a swap that finds what it looks for
		o.operand = p.words[i]
		p.words[i] = o.swap
	default:
		if o.operand == p.words[i] {
			o.operand++
		}
	}
}

// needsFence reports whether a read before o could see what o does.
func (p *planner) needsFence(o *op) bool {
	at, n := o.modifies()
	for _, r := range p.reads {
		if o.code == verbs.OpSendInv && r.window == o.window || n > 0 && r.overlaps(extent{at, n}) {
			return true
		}
	}
	return false
}
