package traffic

import (
	"fmt"

	"github.com/fabrictest/fabrictest/verbs"
)

// ordered is the inbox of a reliable lane: every message exactly once, in
// order, and the memory that the requests make.
type ordered struct {
	lane  *lane
	plan  plan
	msgs  []int // requests that take a receive
	next  int   // the message expected next
	ended bool  // the peer's requests have stopped early
	image []byte
	upTo  int // requests that image includes
	tail  []extent
	want  []byte
	// invalidated counts the windows that the peer has closed.
	invalidated int
	got         Arrivals
}

func newOrdered(l *lane, p plan) *ordered {
	x := &ordered{lane: l, plan: p, image: initialTarget(l.end.w, l.num, l.end.side), want: make([]byte, l.spec.MaxBytes)}
	sizes := make([][]int, max(1, len(l.xrc)))
	for i := range p.ops {
		if o := &p.ops[i]; o.consumes() {
			x.msgs = append(x.msgs, i)
			sizes[o.queue] = append(sizes[o.queue], l.areaLen()+o.room())
		}
	}
	spare := int(derive(p.key, keyPoison) % 4)
	if l.ring != nil {
		l.ring.expect(sizes[0], spare, l.spec.TightReceives)
	}
	for i, r := range l.xrc {
		r.expect(sizes[i], spare, l.spec.TightReceives)
	}
	return x
}

// room is how much of a receive the request fills.
func (o *op) room() int {
	if o.code == verbs.OpRDMAWriteImm {
		return 0
	}
	return o.size
}

func (x *ordered) complete() bool { return x.ended || x.next == len(x.msgs) }

func (x *ordered) end() { x.ended = true }

func (x *ordered) status() string {
	return fmt.Sprintf("%d of %d messages arrived", x.next, len(x.msgs))
}

// tally is exact once verify has run; until then it is what messages told.
func (x *ordered) tally() Arrivals {
	if x.got.Delivered == 0 {
		return Arrivals{Delivered: x.upTo, Bytes: x.moved(x.upTo)}
	}
	return x.got
}

// moved is how many bytes the first n requests carry to the other side or back.
func (x *ordered) moved(n int) (bytes int64) {
	for i := range n {
		if o := &x.plan.ops[i]; !o.local() && o.code != verbs.OpFlush {
			bytes += int64(o.size)
		}
	}
	return bytes
}

func (x *ordered) violation(n int, want, got string) error {
	l := x.lane
	var o *op
	if n >= 0 {
		o = &x.plan.ops[n]
	}
	return &Violation{Where: l.where(l.end.side.Peer(), n, o), Want: want, Got: got}
}

// arrived takes the next message.
func (x *ordered) arrived(wc *verbs.WC, r *ring, s *slot) error {
	if x.next == len(x.msgs) {
		return x.violation(-1, fmt.Sprintf("%d messages", len(x.msgs)), "one more")
	}
	n := x.msgs[x.next]
	x.next++
	o := &x.plan.ops[n]
	x.lane.end.trace("lane %d received %d", x.lane.num, n)
	if err := x.header(wc, n, o); err != nil {
		return err
	}
	if x.lane.xrc != nil && r != x.lane.xrc[o.queue] {
		return x.violation(n, fmt.Sprintf("a receive of shared receive queue %d", o.queue), "one of another queue")
	}
	msg, err := r.message(s, x.lane.areaLen()+o.room(), false)
	if err != nil {
		return x.violation(n, "nothing but the message in the receive", err.Error())
	}
	if x.lane.spec.Service.Datagram() {
		// It begins to arrive before anybody knows how long it is.
		if want, got := x.lane.origin(wc, msg[:verbs.GRHLen], anyLength); want != "" {
			return x.violation(n, want, got)
		}
		msg = msg[verbs.GRHLen:]
	}
	want := x.want[:o.room()]
	x.plan.content(n, want)
	if diff := firstDifference(want, msg); diff != "" {
		return x.violation(n, "the bytes that were sent", diff)
	}
	if o.code == verbs.OpSendInv {
		x.invalidated++
	}
	return x.visible(n)
}

// header checks what the completion says of the message.
func (x *ordered) header(wc *verbs.WC, n int, o *op) error {
	opcode, flags := verbs.WCOpRecv, verbs.WCFlags(0)
	switch o.code {
	case verbs.OpSendImm:
		flags = verbs.WCWithImm
	case verbs.OpSendInv:
		flags = verbs.WCWithInv
	case verbs.OpRDMAWriteImm:
		opcode, flags = verbs.WCOpRecvRDMAWithImm, verbs.WCWithImm
	}
	const shown = verbs.WCWithImm | verbs.WCWithInv
	switch {
	case wc.Opcode != opcode || wc.Flags&shown != flags:
		return x.violation(n, fmt.Sprintf("%v with flags %#x", opcode, flags), fmt.Sprintf("%v with flags %#x", wc.Opcode, wc.Flags))
	case int(wc.ByteLen) != x.lane.areaLen()+o.size:
		return x.violation(n, fmt.Sprintf("%d bytes", x.lane.areaLen()+o.size), fmt.Sprintf("completion with %d bytes", wc.ByteLen))
	case o.withImm() && wc.Imm != o.imm:
		return x.violation(n, fmt.Sprintf("immediate data %#x", o.imm), fmt.Sprintf("%#x", wc.Imm))
	case o.code == verbs.OpSendInv && wc.InvalidatedRKey != x.lane.keys[o.window]:
		return x.violation(n, fmt.Sprintf("key %#x invalidated", x.lane.keys[o.window]), fmt.Sprintf("%#x", wc.InvalidatedRKey))
	}
	return nil
}

// visible checks that what the requests before message n wrote is in memory:
// that is what the arrival of a message means.
func (x *ordered) visible(n int) error {
	x.tail = x.tail[:0]
	first := x.upTo
	for ; x.upTo <= n; x.upTo++ {
		if at, size := x.plan.ops[x.upTo].modifies(); size > 0 {
			x.plan.apply(x.upTo, x.image)
			x.tail = append(x.tail, extent{at, size})
		}
	}
	for _, t := range x.tail {
		if x.late(t, first, n) || x.lane.end.env.Concurrent && x.rewritten(t) {
			continue
		}
		if err := x.plan.explain(x.image, x.lane.bytes, t.at, t.n, x.upTo); err != nil {
			return x.violation(n, "everything written before the message", err.Error())
		}
	}
	return nil
}

// late reports whether an atomic on t, of the requests from first on, need not have
// been carried out when message n arrives, though it was posted before it: see
// Manners.LateAtomics. Atomics are carried out in the order of posting, and writes
// have other memory, so that the outcome is the same however late they are.
func (x *ordered) late(t extent, first, n int) bool {
	if !x.lane.end.w.Traits.LateAtomics {
		return false
	}
	for i := n; i >= first; i-- {
		o := &x.plan.ops[i]
		if at, size := o.modifies(); o.atomic() && size > 0 && t.overlaps(extent{at, size}) {
			return true
		}
		if o.flags&verbs.SendFence != 0 {
			return false // it has left when all before it had been answered
		}
	}
	return false
}

// rewritten reports whether a request still to come changes part of t.
func (x *ordered) rewritten(t extent) bool {
	for i := x.upTo; i < len(x.plan.ops); i++ {
		if at, n := x.plan.ops[i].modifies(); n > 0 && t.overlaps(extent{at, n}) {
			return true
		}
	}
	return false
}

// verify compares all of the memory. If the peer gave up, requests that it saw
// complete must have happened, and later ones may have.
func (x *ordered) verify(peer *laneReport) error {
	done := len(x.plan.ops)
	if peer.Failed {
		done = max(peer.Good, x.upTo)
	} else if x.next != len(x.msgs) {
		return x.violation(-1, fmt.Sprintf("%d messages", len(x.msgs)), fmt.Sprintf("%d", x.next))
	}
	for ; x.upTo < done; x.upTo++ {
		if peer.Failed && x.plan.ops[x.upTo].consumes() {
			return x.violation(x.upTo, "the message: the peer saw it complete", "nothing")
		}
		x.plan.apply(x.upTo, x.image)
	}
	next := len(x.plan.ops)
	if peer.Failed {
		next = x.upTo
	}
	if err := x.plan.explain(x.image, x.lane.bytes, 0, len(x.image), next); err != nil {
		return x.violation(-1, "the memory that the requests in order make", err.Error())
	}
	x.got.Delivered, x.got.Bytes = done, x.moved(done)
	return nil
}
