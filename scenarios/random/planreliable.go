package random

import (
	"math/rand/v2"
	"slices"

	"github.com/fabrictest/fabrictest/verbs"
)

// The target of a reliable connection is an area for writes and reads, followed by connWords words
// for atomics that only this connection changes. Windows are parts of the area.
const connWords = 8

// rwAreaLen is the length of the area for writes and reads, the first of a connection's target.
func rwAreaLen(c *Conn) int { return max(4*c.MaxBytes, 4096) &^ 7 }

// connWordAt is the offset in the target of word i of the connWords words for atomics.
func connWordAt(c *Conn, i int) int { return rwAreaLen(c) + 8*i }

// windowExtent is the part of the read-write area that window i covers. Windows overlap.
func windowExtent(c *Conn, i int) (at, n int) {
	at = (i * rwAreaLen(c) / 8) % (rwAreaLen(c) / 2)
	return at, min(rwAreaLen(c)-at, c.MaxBytes+512)
}

// extent is a range of the target.
type extent struct{ at, n int }

func (e extent) overlaps(f extent) bool { return e.at < f.at+f.n && f.at < e.at+e.n }

// unfencedRead is a read that no fence follows yet.
type unfencedRead struct {
	extent
	window int8
}

// planner generates the requests of one side of a reliable connection.
type planner struct {
	w             *Workload
	conn          *Conn
	rng           *rand.Rand
	words         [connWords]uint64 // values after the requests so far
	validWindows  []bool            // not yet invalidated
	readWindows   []bool            // used by reads
	unfencedReads []unfencedRead
	spareBound    bool // the spare window of the poster
	afterWrite    bool // no request that consumes a receive has followed the last plain write
	sinceSignal   int
}

// planReliable returns the requests of one side of a reliable connection. A request that changes
// memory which an earlier request reads is fenced: otherwise the responder could execute a
// retransmitted read after the change. Some others are fenced at random.
func planReliable(w *Workload, conn int, s Side, rng *rand.Rand) []op {
	c := &w.Conns[conn]
	p := planner{w: w, conn: c, rng: rng, validWindows: slices.Repeat([]bool{true}, c.Windows), readWindows: make([]bool, c.Windows)}
	p.afterWrite = true // iWARP may begin with an empty write (the RTR), to which immediate data would belong
	target := initialTarget(w, conn, s.Peer())
	for i := range p.words { // the values that atomics will find
		p.words[i] = word(target[connWordAt(c, i):])
	}
	ops := make([]op, 0, c.Messages[s])
	for len(ops) < cap(ops) {
		last := len(ops)+1 == cap(ops)
		o := p.draw(last)
		o.flags |= drawFlags(rng, c, &p.sinceSignal, last)
		if p.needsFence(&o) || rng.IntN(16) == 0 {
			o.flags |= verbs.SendFence
			p.unfencedReads = p.unfencedReads[:0]
		}
		if o.code == verbs.OpRDMARead {
			p.unfencedReads = append(p.unfencedReads, unfencedRead{extent{o.at, o.size}, o.window})
		}
		ops = append(ops, o)
	}
	return ops
}

// draw draws the next request. If completions do not mean delivery, the last request is a read,
// whose response shows that the requests before it were executed. BIND_MW and LOCAL_INV use a spare
// window that no other request uses.
func (p *planner) draw(last bool) op {
	o := op{code: p.conn.Mix[p.rng.IntN(len(p.conn.Mix))], imm: p.rng.Uint32(), window: noWindow}
	if last && p.w.Traits.CompletesEarly {
		o.code = verbs.OpRDMARead
	}
	if p.conn.XRCQueues > 0 {
		o.queue = uint8(p.rng.IntN(p.conn.XRCQueues))
	}
	switch o.code {
	case verbs.OpSendInv:
		// The SEND_INV is fenced: it waits for the responses of READs, so these are retransmitted
		// before it. But a READ that the network duplicated or reordered could arrive after the
		// invalidation and end the connection.
		readsMayBeLate := p.w.Network.Duplicates || p.w.Network.Reorders
		if o.window = p.pickWindow(); o.window == noWindow || readsMayBeLate && p.readWindows[o.window] {
			o.code, o.window = verbs.OpSend, noWindow
		} else {
			p.validWindows[o.window] = false
		}
		o.size = drawSize(p.rng, p.conn, p.conn.MaxBytes)
	case verbs.OpSend, verbs.OpSendImm:
		o.size = drawSize(p.rng, p.conn, p.conn.MaxBytes)
		if o.code == verbs.OpSendImm && p.w.Traits.SeparateImm { // immediate data travels alone
			if p.afterWrite { // immediate data would look like that of the write before it
				o.code = verbs.OpSend
			} else {
				o.size = 0
			}
		}
	case verbs.OpAtomicCmpAndSwp, verbs.OpAtomicFetchAdd, verbs.OpAtomicWrite:
		p.drawAtomic(&o)
	case verbs.OpBindMW:
		if p.spareBound { // bind and invalidate the spare window in turn
			o.code = verbs.OpLocalInv
		}
		p.spareBound = !p.spareBound
	default:
		p.drawRange(&o)
	}
	p.afterWrite = o.code == verbs.OpRDMAWrite || p.afterWrite && !o.takesReceive()
	return o
}

// pickWindow draws a window, and returns noWindow if it was invalidated before.
func (p *planner) pickWindow() int8 {
	if len(p.validWindows) == 0 {
		return noWindow
	}
	if i := p.rng.IntN(len(p.validWindows)); p.validWindows[i] {
		return int8(i)
	}
	return noWindow
}

// drawRange draws the range of a write, read or flush.
func (p *planner) drawRange(o *op) {
	at, n := 0, rwAreaLen(p.conn)
	if o.code != verbs.OpFlush && p.rng.IntN(3) == 0 { // windows do not permit flush
		if o.window = p.pickWindow(); o.window != noWindow {
			at, n = windowExtent(p.conn, int(o.window))
		}
	}
	if o.code == verbs.OpRDMARead && o.window != noWindow {
		p.readWindows[o.window] = true
	}
	o.size = drawSize(p.rng, p.conn, n)
	o.at = at + p.rng.IntN(n-o.size+1)
}

// drawAtomic draws word and operands of an atomic; half of the swaps and adds use a shared word.
func (p *planner) drawAtomic(o *op) {
	o.size = 8
	if o.code != verbs.OpAtomicWrite && p.w.SharedWords > 0 && p.rng.IntN(2) == 0 {
		o.shared = true
		o.at = p.rng.IntN(p.w.SharedWords)
		// An add of 0 would look like a swap without effect, hence |1. The comparand of a swap is
		// set when the swap is posted.
		o.operand, o.swap = p.rng.Uint64()|1, p.rng.Uint64()
		return
	}
	i := p.rng.IntN(connWords)
	o.at = connWordAt(p.conn, i)
	o.operand, o.swap = p.rng.Uint64(), p.rng.Uint64()
	switch {
	case o.code == verbs.OpAtomicFetchAdd:
		p.words[i] += o.operand
	case o.code == verbs.OpAtomicWrite:
		p.words[i] = o.swap
	case p.rng.IntN(2) == 0: // a swap that succeeds
		o.operand = p.words[i]
		p.words[i] = o.swap
	case o.operand == p.words[i]: // the other swaps must fail
		o.operand++
	}
}

// needsFence reports whether o changes memory, or invalidates the window, of an unfenced read.
func (p *planner) needsFence(o *op) bool {
	at, n := o.modifies()
	return slices.ContainsFunc(p.unfencedReads, func(r unfencedRead) bool {
		return o.code == verbs.OpSendInv && r.window == o.window || n > 0 && r.overlaps(extent{at, n})
	})
}
