package random

import (
	"fmt"
	"math/rand/v2"

	"github.com/fabrictest/fabrictest/traffic"
	"github.com/fabrictest/fabrictest/verbs"
)

// op is one work request of a plan.
type op struct {
	code  verbs.WROpcode
	flags verbs.SendFlags // without inline, which the peer cannot see
	size  int             // of the payload, or of the accessed range
	at    int             // offset in the target, or index of the shared word
	// operand is the addend or comparand, swap the value to swap in.
	operand, swap uint64
	imm           uint32
	window        int8 // the window that it uses or invalidates; noWindow if none
	queue         uint8
	shared        bool // an atomic on a shared word
}

const noWindow = -1

// takesReceive reports whether the request consumes a receive.
func (o *op) takesReceive() bool {
	switch o.code {
	case verbs.OpSend, verbs.OpSendImm, verbs.OpSendInv, verbs.OpRDMAWriteImm:
		return true
	}
	return false
}

// local reports whether the request stays on the poster's side.
func (o *op) local() bool { return o.code == verbs.OpBindMW || o.code == verbs.OpLocalInv }

// returnsData reports whether the response has data.
func (o *op) returnsData() bool {
	switch o.code {
	case verbs.OpRDMARead, verbs.OpAtomicCmpAndSwp, verbs.OpAtomicFetchAdd:
		return true
	}
	return false
}

func (o *op) atomic() bool {
	return o.code == verbs.OpAtomicCmpAndSwp || o.code == verbs.OpAtomicFetchAdd
}

func (o *op) withImm() bool { return o.code == verbs.OpSendImm || o.code == verbs.OpRDMAWriteImm }

// String describes the request in a violation.
func (o *op) String() string {
	s := fmt.Sprintf("%v, %d bytes", o.code, o.size)
	if o.flags&verbs.SendFence != 0 {
		s += ", fenced"
	}
	return s
}

// plan is all requests of one side on one connection.
type plan struct {
	ops []op
	key uint64 // all random values derive from it
}

// newPlan returns the requests of side s on connection i. Both sides compute the same.
func newPlan(w *Workload, i int, s Side) plan {
	p := plan{key: traffic.Derive(w.Seed, uint64(i), uint64(s))}
	c := &w.Conns[i]
	rng := newRand(traffic.Derive(p.key, keyPlan))
	if c.Service.Reliable() {
		p.ops = planReliable(w, i, s, rng)
	} else {
		p.ops = planUnreliable(c, c.Messages[s], rng, w.Traits.SeparateImm)
	}
	return p
}

// drawSize draws a size, often one of at most 64 bytes or a boundary case: zero, one, whole
// packets, one byte more or less.
func drawSize(rng *rand.Rand, c *Conn, limit int) int {
	n := c.MinBytes + rng.IntN(c.MaxBytes-c.MinBytes+1)
	switch rng.IntN(8) {
	case 0:
		n = rng.IntN(2)
	case 1:
		n = c.MTU.Bytes() * (1 + rng.IntN(4))
	case 2:
		n = c.MTU.Bytes()*(1+rng.IntN(3)) - 1 + 2*rng.IntN(2)
	case 3:
		n = rng.IntN(65)
	}
	return min(max(n, c.MinBytes), c.MaxBytes, limit)
}

// drawFlags draws the send flags. The last request is signaled and solicited, so that no end waits
// forever for a completion event. sinceSignal counts the requests since the last signaled one.
func drawFlags(rng *rand.Rand, c *Conn, sinceSignal *int, last bool) (f verbs.SendFlags) {
	// A completion at least every half queue frees slots.
	if *sinceSignal++; last || rng.IntN(c.SignalEvery) == 0 || *sinceSignal >= c.SendDepth/2 {
		f |= verbs.SendSignaled
		*sinceSignal = 0
	}
	if last || rng.IntN(4) == 0 {
		f |= verbs.SendSolicited
	}
	return f
}

// planUnreliable returns the requests of a UC or UD connection. Each write has its own place in the
// peer's memory. A message has its number in its first bytes, the stamp, or as immediate data if it
// is too short. If separateImm is set, sends with immediate data are empty, because the transport sends
// immediate data as a message of its own.
func planUnreliable(c *Conn, n int, rng *rand.Rand, separateImm bool) []op {
	ops := make([]op, n)
	at, sinceSignal := 0, 0
	for i := range ops {
		o := &ops[i]
		*o = op{code: c.Mix[rng.IntN(len(c.Mix))], size: drawSize(rng, c, c.MaxBytes), imm: uint32(i), window: noWindow}
		o.flags = drawFlags(rng, c, &sinceSignal, i == n-1)
		switch o.code {
		case verbs.OpRDMAWrite, verbs.OpRDMAWriteImm:
			o.at = at
			at += o.size
		case verbs.OpSend:
			if o.size < traffic.StampLen {
				o.code = verbs.OpSendImm
			}
		}
		if o.code == verbs.OpSendImm && separateImm {
			o.size = 0
		}
	}
	return ops
}
