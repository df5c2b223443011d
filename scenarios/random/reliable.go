package random

import (
	"fmt"
	"slices"

	"github.com/fabrictest/fabrictest/traffic"
	"github.com/fabrictest/fabrictest/verbs"
)

// reliableChecker checks the messages of a reliable connection: each exactly once, in order, and
// the resulting memory.
type reliableChecker struct {
	incoming
	msgs    []int // requests that take a receive
	next    int   // index of the next message
	stopped bool  // the peer's requests have failed
	image   []byte
	applied int // requests that are applied to image
	changed []extent
	// invalidated counts the windows that the peer has invalidated.
	invalidated int
}

// newReliableChecker returns the checker of the peer's plan p, and sets the messages that the
// receive rings expect.
func newReliableChecker(c *conn, p plan) *reliableChecker {
	x := &reliableChecker{incoming: newIncoming(c, p), image: initialTarget(c.end.w, c.index, c.end.side)}
	sizes := make([][]int, max(1, len(c.xrc)))
	for i := range p.ops {
		if o := &p.ops[i]; o.takesReceive() {
			x.msgs = append(x.msgs, i)
			sizes[o.queue] = append(sizes[o.queue], c.grhLen()+o.recvLen())
		}
	}
	spare := int(traffic.Derive(p.key, keySpare) % 4) // receives that no message fills
	if c.ring != nil {
		c.ring.expect(sizes[0], spare, c.spec.TightReceives)
	}
	for i, r := range c.xrc {
		r.expect(sizes[i], spare, c.spec.TightReceives)
	}
	return x
}

// recvLen is how much of a receive the request fills.
func (o *op) recvLen() int {
	if o.code == verbs.OpRDMAWriteImm {
		return 0
	}
	return o.size
}

// complete reports whether all messages have arrived, or the peer has stopped.
func (x *reliableChecker) complete() bool { return x.stopped || x.next == len(x.msgs) }

func (x *reliableChecker) peerStopped() { x.stopped = true }

func (x *reliableChecker) status() string {
	return fmt.Sprintf("%d of %d messages arrived", x.next, len(x.msgs))
}

// counts returns how many requests of the peer were executed. Before verify, which sets arrivals,
// it counts those up to the last message received: requests are executed in order.
func (x *reliableChecker) counts() Arrivals {
	if x.arrivals.Delivered == 0 {
		return Arrivals{Delivered: x.applied, Bytes: x.bytesMoved(x.applied)}
	}
	return x.arrivals
}

// bytesMoved is the number of bytes that the first n requests transfer in either direction.
func (x *reliableChecker) bytesMoved(n int) (bytes int64) {
	for i := range n {
		if o := &x.plan.ops[i]; !o.local() && o.code != verbs.OpFlush {
			bytes += int64(o.size)
		}
	}
	return bytes
}

// receive checks a completed receive against the next message that the connection expects:
// completion, queue, source and payload. It counts an invalidated window, and then checks that the
// memory has the writes that were posted before the message.
func (x *reliableChecker) receive(wc *verbs.WC, r *recvRing, slot int) error {
	if x.next == len(x.msgs) {
		return x.violation(noRequest, fmt.Sprintf("%d messages", len(x.msgs)), "one more")
	}
	n := x.msgs[x.next]
	x.next++
	o := &x.plan.ops[n]
	x.conn.end.trace("connection %d received %d", x.conn.index, n)
	if err := x.checkCompletion(wc, n, o); err != nil {
		return err
	}
	if x.conn.xrc != nil && r != x.conn.xrc[o.queue] {
		return x.violation(n, fmt.Sprintf("a receive of shared receive queue %d", o.queue), "one of another queue")
	}
	const reused = false // no receive has parts of a dropped message
	msg, err := r.message(slot, x.conn.grhLen()+o.recvLen(), reused)
	if err != nil {
		return x.violation(n, "nothing but the message in the receive", err.Error()).as(traffic.Contents)
	}
	if x.conn.spec.Service.Datagram() {
		// The device writes the GRH with the first packet, which does not have the message length.
		if want, got := x.conn.checkHeaderArea(wc, msg[:verbs.GRHLen], anyLength); want != "" {
			return x.violation(n, want, got)
		}
		msg = msg[verbs.GRHLen:]
	}
	want := x.want[:o.recvLen()]
	x.plan.fillPayload(n, want)
	if diff := traffic.FirstDifference(want, msg); diff != "" {
		return x.violation(n, "the bytes that were sent", diff).as(traffic.Contents)
	}
	if o.code == verbs.OpSendInv {
		x.invalidated++
	}
	return x.checkVisible(n)
}

// checkCompletion checks the fields of the completion of a receive, which message n has used.
func (x *reliableChecker) checkCompletion(wc *verbs.WC, n int, o *op) error {
	opcode, flags := verbs.WCOpRecv, verbs.WCFlags(0)
	switch o.code {
	case verbs.OpSendImm:
		flags = verbs.WCWithImm
	case verbs.OpSendInv:
		flags = verbs.WCWithInv
	case verbs.OpRDMAWriteImm:
		opcode, flags = verbs.WCOpRecvRDMAWithImm, verbs.WCWithImm
	}
	const checkedFlags = verbs.WCWithImm | verbs.WCWithInv
	switch {
	case wc.Opcode != opcode || wc.Flags&checkedFlags != flags:
		return x.violation(n, fmt.Sprintf("%v with flags %#x", opcode, flags), fmt.Sprintf("%v with flags %#x", wc.Opcode, wc.Flags))
	case int(wc.ByteLen) != x.conn.grhLen()+o.size:
		return x.violation(n, fmt.Sprintf("%d bytes", x.conn.grhLen()+o.size), fmt.Sprintf("completion with %d bytes", wc.ByteLen))
	case o.withImm() && wc.Imm != o.imm:
		return x.violation(n, fmt.Sprintf("immediate data %#x", o.imm), fmt.Sprintf("%#x", wc.Imm))
	case o.code == verbs.OpSendInv && wc.InvalidatedRKey != x.conn.keys[o.window]:
		return x.violation(n, fmt.Sprintf("key %#x invalidated", x.conn.keys[o.window]), fmt.Sprintf("%#x", wc.InvalidatedRKey))
	}
	return nil
}

// checkVisible checks that the memory contains the writes before message n, as its arrival
// guarantees: it applies them to image, the expected contents. Memory that the device may be
// changing at the same time is checked at the end only.
func (x *reliableChecker) checkVisible(n int) error {
	x.changed = x.changed[:0]
	first := x.applied
	for ; x.applied <= n; x.applied++ {
		if at, size := x.plan.ops[x.applied].modifies(); size > 0 {
			x.plan.apply(x.applied, x.image)
			x.changed = append(x.changed, extent{at, size})
		}
	}
	for _, t := range x.changed {
		changesAgain := func(o op) bool { // a later request changes part of t
			at, size := o.modifies()
			return size > 0 && t.overlaps(extent{at, size})
		}
		if x.mayBeLate(t, first, n) || x.conn.end.env.Concurrent && slices.ContainsFunc(x.plan.ops[x.applied:], changesAgain) {
			continue
		}
		if err := x.plan.checkMemory(x.image, x.conn.bytes, t.at, t.n, x.applied); err != nil {
			return x.violation(n, "everything written before the message", err.Error()).as(traffic.Contents)
		}
	}
	return nil
}

// mayBeLate reports whether an atomic on t, of the requests first to n, may still be outstanding
// when message n arrives. Some transports execute atomics after later writes
// (AtomicsAfterLaterWrites). Atomics execute in order and writes use other memory, therefore the
// final memory is the same.
func (x *reliableChecker) mayBeLate(t extent, first, n int) bool {
	if !x.conn.end.w.Traits.AtomicsAfterLaterWrites {
		return false
	}
	for i := n; i >= first; i-- {
		o := &x.plan.ops[i]
		if at, size := o.modifies(); o.atomic() && size > 0 && t.overlaps(extent{at, size}) {
			return true
		}
		if o.flags&verbs.SendFence != 0 {
			return false // a fenced request was sent after all responses to earlier ones
		}
	}
	return false
}

// verify compares the whole target with the peer's plan. If a request of the peer failed, all
// requests that completed before must have been executed, and later ones may have been.
func (x *reliableChecker) verify(peer *connReport) error {
	executed := len(x.plan.ops)
	if peer.Failed {
		executed = max(peer.Good, x.applied)
	} else if x.next != len(x.msgs) {
		return x.violation(noRequest, fmt.Sprintf("%d messages", len(x.msgs)), fmt.Sprintf("%d", x.next))
	}
	for ; x.applied < executed; x.applied++ {
		if peer.Failed && x.plan.ops[x.applied].takesReceive() {
			return x.violation(x.applied, "the message: the peer saw it complete", "nothing").as(traffic.Delivery)
		}
		x.plan.apply(x.applied, x.image)
	}
	if err := x.plan.checkMemory(x.image, x.conn.bytes, 0, len(x.image), executed); err != nil {
		return x.violation(noRequest, "the memory that the requests in order make", err.Error()).as(traffic.Contents)
	}
	x.arrivals.Delivered, x.arrivals.Bytes = executed, x.bytesMoved(executed)
	return nil
}
