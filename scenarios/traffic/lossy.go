package traffic

import (
	"bytes"
	"fmt"

	"github.com/fabrictest/fabrictest/verbs"
)

// lossy is the inbox of an unreliable lane: messages may be missing, and come
// twice or out of order where the network does such things, but each that comes
// is whole.
type lossy struct {
	lane   *lane
	plan   plan
	times  []int // how often each message has come
	latest int
	got    Arrivals
	want   []byte
}

func newLossy(l *lane, p plan) *lossy {
	return &lossy{lane: l, plan: p, times: make([]int, len(p.ops)), latest: -1, want: make([]byte, l.spec.MaxBytes)}
}

// complete is always true: whether more will come, only the peer knows.
func (x *lossy) complete() bool  { return true }
func (x *lossy) end()            {}
func (x *lossy) status() string  { return "" }
func (x *lossy) tally() Arrivals { return x.got }

func (x *lossy) violation(n int, want, got string) error {
	l := x.lane
	var o *op
	if n >= 0 {
		o = &x.plan.ops[n]
	}
	return &Violation{Where: l.where(l.end.side.Peer(), n, o), Want: want, Got: got}
}

// arrived takes a message and finds out which it is.
func (x *lossy) arrived(wc *verbs.WC, r *ring, s *slot) error {
	inReceive := int(wc.ByteLen)
	if wc.Opcode == verbs.WCOpRecvRDMAWithImm {
		inReceive = 0
	}
	// UC gives the receive of a message that it drops to the next one.
	msg, err := r.message(s, inReceive, x.lane.spec.Service == UC)
	if err != nil {
		return x.violation(-1, "nothing but the message in the receive", err.Error())
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
	x.lane.end.trace("lane %d received %d", x.lane.num, n)
	if area != nil {
		o := &x.plan.ops[n]
		if want, got := x.lane.origin(wc, area, x.lane.end.w.Traits.carried(o)); want != "" {
			return x.violation(n, want, got)
		}
	}
	if err := x.whole(wc, msg, n); err != nil {
		return err
	}
	return x.count(n)
}

// identify finds the number of a message: in its immediate data, or in front of
// its payload.
func (x *lossy) identify(wc *verbs.WC, msg []byte) (int, error) {
	var n uint64
	switch {
	case wc.Flags&verbs.WCWithImm != 0:
		n = uint64(wc.Imm)
	case len(msg) >= stampLen:
		n = stampOf(msg, x.plan.key)
	default:
		return 0, x.violation(-1, "a message of the plan", fmt.Sprintf("%d bytes without immediate data", len(msg)))
	}
	if n >= uint64(len(x.plan.ops)) {
		return 0, x.violation(-1, fmt.Sprintf("one of %d messages", len(x.plan.ops)), fmt.Sprintf("a message that says it is number %d", n))
	}
	return int(n), nil
}

// whole checks that the message is the one it says it is, in every byte.
func (x *lossy) whole(wc *verbs.WC, msg []byte, n int) error {
	o := &x.plan.ops[n]
	want := x.want[:o.size]
	x.plan.content(n, want)
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
	if wc.Opcode != opcode || wc.Flags&verbs.WCWithImm != 0 != o.withImm() || !o.consumes() {
		return x.violation(n, fmt.Sprintf("%v, immediate data: %v", opcode, o.withImm()), fmt.Sprintf("%v with flags %#x", wc.Opcode, wc.Flags))
	}
	if diff := firstDifference(want, msg); diff != "" {
		return x.violation(n, "the bytes that were sent", diff)
	}
	return nil
}

// count notes an arrival, and what the network must answer for.
func (x *lossy) count(n int) error {
	x.times[n]++
	allowed := x.lane.end.w.Network
	if x.times[n] > 1 {
		if x.got.Duplicated++; !allowed.Duplicates {
			return x.violation(n, "each message at most once", fmt.Sprintf("arrival number %d", x.times[n]))
		}
		return nil
	}
	x.deliver(n)
	if n < x.latest {
		// A copy that comes late may be the first to come.
		if x.got.Reordered++; !allowed.Reorders && !allowed.Duplicates {
			return x.violation(n, "messages in order", fmt.Sprintf("it came after message %d", x.latest))
		}
	}
	x.latest = max(x.latest, n)
	return nil
}

func (x *lossy) deliver(n int) {
	x.got.Delivered++
	x.got.Bytes += int64(x.plan.ops[n].size)
}

// verify looks at writes that told nobody, and at memory that nobody may have
// written.
func (x *lossy) verify(*laneReport) error {
	initial := initialTarget(x.lane.end.w, x.lane.num, x.lane.end.side)
	for n := range x.plan.ops {
		o := &x.plan.ops[n]
		switch {
		case o.code == verbs.OpRDMAWrite:
			if err := x.written(n, initial); err != nil {
				return err
			}
		case o.code == verbs.OpRDMAWriteImm && x.times[n] == 0:
			if err := x.fragments(n, initial); err != nil {
				return err
			}
		}
		if o.consumes() && x.times[n] == 0 {
			x.got.Lost++
		}
	}
	if x.got.Lost > 0 && !x.lane.end.w.Network.Loses && x.enoughReceives() {
		return x.violation(-1, "all messages: the network loses none", fmt.Sprintf("%d lost", x.got.Lost))
	}
	return nil
}

// enoughReceives reports whether no message can have come without a receive to
// take it.
func (x *lossy) enoughReceives() bool {
	l := x.lane
	return l.ring != nil && l.ring.depth >= len(x.plan.ops) && l.spec.RecvPacing == (Pacing{})
}

// written checks a write without notice: it has come whole, or in part, or not
// at all.
func (x *lossy) written(n int, initial []byte) error {
	o := &x.plan.ops[n]
	want := x.want[:o.size]
	x.plan.content(n, want)
	switch got := x.lane.bytes[o.at : o.at+o.size]; {
	case bytes.Equal(got, want):
		x.deliver(n)
		return nil
	case !bytes.Equal(got, initial[o.at:o.at+o.size]):
		x.got.Partial++
	}
	x.got.Lost++
	return x.fragments(n, initial)
}

// fragments checks that each byte of a write's place is the write's own or was
// never written.
func (x *lossy) fragments(n int, initial []byte) error {
	o := &x.plan.ops[n]
	want := x.want[:o.size]
	x.plan.content(n, want)
	for i := range want {
		if got := x.lane.bytes[o.at+i]; got != want[i] && got != initial[o.at+i] {
			return x.violation(n, "only bytes of this write in its place", fmt.Sprintf("byte %d is %#02x", i, got))
		}
	}
	return nil
}
