package random

import (
	"bytes"
	"fmt"

	"github.com/fabrictest/fabrictest/traffic"
	"github.com/fabrictest/fabrictest/verbs"
)

// unreliableChecker checks the messages of an unreliable lane: they may be lost, and
// duplicated or reordered if the network does that, but must be intact.
type unreliableChecker struct {
	incoming
	arrivalCounts []int // by message
	highest       int
}

func newUnreliableChecker(l *lane, p plan) *unreliableChecker {
	return &unreliableChecker{incoming: incoming{lane: l, plan: p, want: make([]byte, l.spec.MaxBytes)}, arrivalCounts: make([]int, len(p.ops)), highest: -1}
}

// complete is always true: only the peer knows whether more messages follow.
func (x *unreliableChecker) complete() bool   { return true }
func (x *unreliableChecker) peerStopped()     {}
func (x *unreliableChecker) status() string   { return "" }
func (x *unreliableChecker) counts() Arrivals { return x.arrivals }

// receive identifies and checks a message.
func (x *unreliableChecker) receive(wc *verbs.WC, r *recvRing, slot int) error {
	inReceive := int(wc.ByteLen)
	if wc.Opcode == verbs.WCOpRecvRDMAWithImm {
		inReceive = 0
	}
	// UC reuses the receive of a dropped message.
	msg, err := r.message(slot, inReceive, x.lane.spec.Service == UC)
	if err != nil {
		return x.violation(-1, "nothing but the message in the receive", err.Error()).as(traffic.Contents)
	}
	area := []byte(nil)
	if x.lane.spec.Service == UD {
		if len(msg) < verbs.GRHLen {
			return x.violation(-1, fmt.Sprintf("at least %d bytes", verbs.GRHLen), fmt.Sprintf("datagram of %d", len(msg)))
		}
		area, msg = msg[:verbs.GRHLen], msg[verbs.GRHLen:]
	}
	n, err := x.identify(wc, msg)
	if err != nil {
		return err
	}
	x.lane.end.trace("lane %d received %d", x.lane.index, n)
	if area != nil {
		o := &x.plan.ops[n]
		if want, got := x.lane.checkSource(wc, area, ipPayloadLen(&x.lane.end.w.Traits, o)); want != "" {
			return x.violation(n, want, got)
		}
	}
	if err := x.checkMessage(wc, msg, n); err != nil {
		return err
	}
	return x.countArrival(n)
}

// identify returns the number of a message, from its immediate data or its stamp.
func (x *unreliableChecker) identify(wc *verbs.WC, msg []byte) (int, error) {
	var n uint64
	switch {
	case wc.Flags&verbs.WCWithImm != 0:
		n = uint64(wc.Imm)
	case len(msg) >= traffic.StampLen:
		n = stampOf(msg, x.plan.key)
	default:
		return 0, x.violation(-1, "a message of the plan", fmt.Sprintf("%d bytes without immediate data", len(msg)))
	}
	if n >= uint64(len(x.plan.ops)) {
		return 0, x.violation(-1, fmt.Sprintf("one of %d messages", len(x.plan.ops)), fmt.Sprintf("a message that says it is number %d", n))
	}
	return int(n), nil
}

// checkMessage compares the completion and every byte of message n.
func (x *unreliableChecker) checkMessage(wc *verbs.WC, msg []byte, n int) error {
	o := &x.plan.ops[n]
	want := x.want[:o.size]
	x.plan.fillPayload(n, want)
	opcode := verbs.WCOpRecv
	if o.code == verbs.OpRDMAWriteImm {
		opcode = verbs.WCOpRecvRDMAWithImm
		msg = x.lane.bytes[o.at : o.at+o.size]
		if int(wc.ByteLen) != o.size {
			return x.violation(n, fmt.Sprintf("%d bytes", o.size), fmt.Sprintf("completion with %d bytes", wc.ByteLen))
		}
	} else {
		stamp(want, x.plan.key, n)
	}
	if wc.Opcode != opcode || wc.Flags&verbs.WCWithImm != 0 != o.withImm() || !o.takesReceive() {
		return x.violation(n, fmt.Sprintf("%v, immediate data: %v", opcode, o.withImm()), fmt.Sprintf("%v with flags %#x", wc.Opcode, wc.Flags))
	}
	if diff := traffic.FirstDifference(want, msg); diff != "" {
		return x.violation(n, "the bytes that were sent", diff).as(traffic.Contents)
	}
	return nil
}

// countArrival counts an arrival, and checks for duplicates and reordering.
func (x *unreliableChecker) countArrival(n int) error {
	x.arrivalCounts[n]++
	allowed := x.lane.end.w.Network
	if x.arrivalCounts[n] > 1 {
		if x.arrivals.Duplicated++; !allowed.Duplicates {
			return x.violation(n, "each message at most once", fmt.Sprintf("arrival number %d", x.arrivalCounts[n])).as(traffic.Delivery)
		}
		return nil
	}
	x.deliver(n)
	if n < x.highest {
		// A late duplicate may arrive before the original.
		if x.arrivals.Reordered++; !allowed.Reorders && !allowed.Duplicates {
			return x.violation(n, "messages in order", fmt.Sprintf("it came after message %d", x.highest)).as(traffic.Delivery)
		}
	}
	x.highest = max(x.highest, n)
	return nil
}

func (x *unreliableChecker) deliver(n int) {
	x.arrivals.Delivered++
	x.arrivals.Bytes += int64(x.plan.ops[n].size)
}

// verify checks writes without immediate data, unwritten memory, and loss.
func (x *unreliableChecker) verify(*laneReport) error {
	initial := initialTarget(x.lane.end.w, x.lane.index, x.lane.end.side)
	for n := range x.plan.ops {
		o := &x.plan.ops[n]
		switch {
		case o.code == verbs.OpRDMAWrite:
			if err := x.checkWrite(n, initial); err != nil {
				return err
			}
		case o.code == verbs.OpRDMAWriteImm && x.arrivalCounts[n] == 0:
			if err := x.checkWriteBytes(n, initial); err != nil {
				return err
			}
		}
		if o.takesReceive() && x.arrivalCounts[n] == 0 {
			x.arrivals.Lost++
		}
	}
	if x.arrivals.Lost > 0 && !x.lane.end.w.Network.Loses && x.enoughReceives() {
		return x.violation(-1, "all messages: the network loses none", fmt.Sprintf("%d lost", x.arrivals.Lost)).as(traffic.Delivery)
	}
	return nil
}

// enoughReceives reports whether every message had a receive.
func (x *unreliableChecker) enoughReceives() bool {
	l := x.lane
	return l.ring != nil && l.ring.depth >= len(x.plan.ops) && l.spec.RecvPacing == (Pacing{})
}

// checkWrite checks a write without immediate data, which may have arrived in whole, in
// part or not at all.
func (x *unreliableChecker) checkWrite(n int, initial []byte) error {
	o := &x.plan.ops[n]
	want := x.want[:o.size]
	x.plan.fillPayload(n, want)
	switch got := x.lane.bytes[o.at : o.at+o.size]; {
	case bytes.Equal(got, want):
		x.deliver(n)
		return nil
	case !bytes.Equal(got, initial[o.at:o.at+o.size]):
		x.arrivals.Partial++
	}
	x.arrivals.Lost++
	return x.checkWriteBytes(n, initial)
}

// checkWriteBytes checks that each byte of a write has its new or its initial value.
func (x *unreliableChecker) checkWriteBytes(n int, initial []byte) error {
	o := &x.plan.ops[n]
	want := x.want[:o.size]
	x.plan.fillPayload(n, want)
	for i := range want {
		if got := x.lane.bytes[o.at+i]; got != want[i] && got != initial[o.at+i] {
			return x.violation(n, "only bytes of this write in its place", fmt.Sprintf("byte %d is %#02x", i, got)).as(traffic.Contents)
		}
	}
	return nil
}
