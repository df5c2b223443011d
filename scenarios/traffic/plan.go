package traffic

import (
	"fmt"
	"math/rand/v2"

	"github.com/fabrictest/fabrictest/verbs"
)

// op is one work request of a plan.
type op struct {
	code  verbs.WROpcode
	flags verbs.SendFlags // but inline, which changes nothing for the peer
	size  int             // bytes of payload, or of the range it works on
	at    int             // where in the peer's target, or which shared word
	// operand is what to add or to compare with, swap what to swap in.
	operand, swap uint64
	imm           uint32
	window        int8 // the window it goes through or invalidates; noWindow if none
	queue         uint8
	shared        bool // an atomic on a shared word
}

const noWindow = -1

// consumes reports whether the request takes a receive.
func (o *op) consumes() bool {
	switch o.code {
	case verbs.OpSend, verbs.OpSendImm, verbs.OpSendInv, verbs.OpRDMAWriteImm:
		return true
	}
	return false
}

// local reports whether the request concerns the poster's side only.
func (o *op) local() bool { return o.code == verbs.OpBindMW || o.code == verbs.OpLocalInv }

// fetches reports whether the request brings something back.
func (o *op) fetches() bool {
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

// payload is how many bytes the request carries to the peer.
func (o *op) payload() int {
	if o.fetches() || o.local() || o.code == verbs.OpFlush {
		return 0
	}
	return o.size
}

// String describes the request for reports.
func (o *op) String() string {
	s := fmt.Sprintf("%v, %d bytes", o.code, o.size)
	if o.flags&verbs.SendFence != 0 {
		s += ", fenced"
	}
	return s
}

// plan is all that one side posts on one lane.
type plan struct {
	ops []op
	key uint64 // of the stream; what else is random derives from it
}

// payloadKey is the key of the bytes of request n.
func (p *plan) payloadKey(n int) uint64 { return derive(derive(p.key, keyPayload), uint64(n)) }

// newPlan makes the plan of side s's requests on lane i. Both sides make it, and
// get the same.
func newPlan(w *Workload, i int, s Side) plan {
	p := plan{key: derive(derive(w.Seed, uint64(i)), uint64(s))}
	l := &w.Lanes[i]
	rng := source(derive(p.key, keyPlan))
	if l.Service.Reliable() {
		p.ops = planReliable(w, i, s, rng)
	} else {
		p.ops = planUnreliable(l, l.Messages[s], rng, w.Traits.SeparateImm)
	}
	return p
}

// drawSize favours the sizes at which things change: nothing, one byte, whole
// packets, and one byte more or less than those.
func drawSize(rng *rand.Rand, l *Lane, limit int) int {
	n := l.MinBytes + rng.IntN(l.MaxBytes-l.MinBytes+1)
	switch rng.IntN(8) {
	case 0:
		n = rng.IntN(2)
	case 1:
		n = l.MTU.Bytes() * (1 + rng.IntN(4))
	case 2:
		n = l.MTU.Bytes()*(1+rng.IntN(3)) - 1 + 2*rng.IntN(2)
	case 3:
		n = rng.IntN(65)
	}
	return min(max(n, l.MinBytes), l.MaxBytes, limit)
}

// drawFlags chooses what is asked of a request besides its operation. The last
// one is signaled and solicited, so that nobody waits for it in vain.
func drawFlags(rng *rand.Rand, l *Lane, quiet *int, last bool) (f verbs.SendFlags) {
	// A completion at least every half queue keeps slots coming back.
	if *quiet++; last || rng.IntN(l.SignalEvery) == 0 || *quiet >= l.SendDepth/2 {
		f |= verbs.SendSignaled
		*quiet = 0
	}
	if last || rng.IntN(4) == 0 {
		f |= verbs.SendSolicited
	}
	return f
}

// planUnreliable makes the requests of a UC or UD lane. Each write has a place
// of its own in the peer's target, and a message too short for a stamp carries
// its number as immediate data, alone if it cannot come with a message.
func planUnreliable(l *Lane, n int, rng *rand.Rand, bareImm bool) []op {
	ops := make([]op, n)
	at, quiet := 0, 0
	for i := range ops {
		o := &ops[i]
		*o = op{code: l.Mix[rng.IntN(len(l.Mix))], size: drawSize(rng, l, l.MaxBytes), imm: uint32(i), window: noWindow}
		o.flags = drawFlags(rng, l, &quiet, i == n-1)
		switch o.code {
		case verbs.OpRDMAWrite, verbs.OpRDMAWriteImm:
			o.at = at
			at += o.size
		case verbs.OpSend:
			if o.size < stampLen {
				o.code = verbs.OpSendImm
			}
		}
		if o.code == verbs.OpSendImm && bareImm {
			o.size = 0
		}
	}
	return ops
}
