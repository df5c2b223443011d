package random

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/fabrictest/fabrictest/traffic"
	"github.com/fabrictest/fabrictest/verbs"
)

// The memory model: the bytes of a target after the requests of a plan, in order.

func word(b []byte) uint64       { return binary.LittleEndian.Uint64(b) }
func putWord(b []byte, v uint64) { binary.LittleEndian.PutUint64(b, v) }

// initialTarget returns the initial contents of a connection's target on side s: the memory that
// the peer's requests access. On an unreliable connection it ends with the last byte they write.
func initialTarget(w *Workload, conn int, s Side) []byte {
	c := &w.Conns[conn]
	n := connWordAt(c, connWords) // the end of the last word
	if !c.Service.Reliable() {
		n = 8 // the target may be empty, but a region may not
		p := newPlan(w, conn, s.Peer())
		for i := range p.ops {
			if at, size := p.ops[i].modifies(); size > 0 {
				n = max(n, at+size)
			}
		}
	}
	b := make([]byte, n)
	traffic.Fill(b, traffic.Derive(w.Seed, uint64(conn), uint64(s), keyTarget))
	return b
}

// modifies returns the part of the target that the request changes; n is 0 if it changes none.
// Shared words are not part of the target.
func (o *op) modifies() (at, n int) {
	switch o.code {
	case verbs.OpRDMAWrite, verbs.OpRDMAWriteImm:
		return o.at, o.size
	case verbs.OpAtomicCmpAndSwp, verbs.OpAtomicFetchAdd, verbs.OpAtomicWrite:
		if !o.shared {
			return o.at, 8
		}
	}
	return 0, 0
}

// apply executes request n on image, the expected contents of the target.
func (p *plan) apply(n int, image []byte) {
	o := &p.ops[n]
	at, size := o.modifies()
	if size == 0 {
		return
	}
	b := image[at : at+size]
	switch o.code {
	case verbs.OpAtomicFetchAdd:
		putWord(b, word(b)+o.operand)
	case verbs.OpAtomicCmpAndSwp:
		if word(b) == o.operand {
			putWord(b, o.swap)
		}
	default:
		p.fillPayload(n, b)
	}
}

// fillPayload fills b with the payload of request n, which follows from the key of the plan.
func (p *plan) fillPayload(n int, b []byte) {
	if o := &p.ops[n]; o.code == verbs.OpAtomicWrite {
		putWord(b, o.swap)
	} else {
		traffic.Fill(b, traffic.Derive(p.key, keyPayload, uint64(n)))
	}
}

// checkMemory compares bytes [at, at+n) of a target with image, the contents after all requests
// before the one with number next. Later requests may have been executed in whole or in part: a
// byte that differs must have the value that one of them writes.
func (p *plan) checkMemory(image, target []byte, at, n, next int) error {
	want, got := image[at:at+n], target[at:at+n]
	diff := traffic.FirstDifference(want, got)
	if diff == "" {
		return nil
	}
	explained, unexplained := make([]bool, n), 0
	for i := range want {
		if explained[i] = want[i] == got[i]; !explained[i] {
			unexplained++
		}
	}
	future := slices.Clone(image)
	for k := next; k < len(p.ops) && unexplained > 0; k++ {
		from, size := p.ops[k].modifies()
		if size == 0 || !(extent{from, size}).overlaps(extent{at, n}) {
			continue
		}
		p.apply(k, future)
		for i := max(from, at); i < min(from+size, at+n); i++ {
			if !explained[i-at] && future[i] == target[i] {
				explained[i-at] = true
				unexplained--
			}
		}
	}
	if unexplained == 0 {
		return nil
	}
	return fmt.Errorf("memory at %d: %s, and no later request explains it", at, diff)
}

// Messages are stored in pieces with gaps between them. That exercises scatter/gather
// lists, and shows writes outside a message.

// maxGap is the longest gap between pieces.
const maxGap = 7

// slotLen is the memory for a message of n bytes in up to sges pieces, with a gap before each.
func slotLen(n, sges int) int { return (n + sges*maxGap + 7) &^ 7 }

// piece is a part of a slot.
type piece struct{ off, n int }

// split divides n bytes into up to maxPieces pieces of random sizes, with random gaps before them,
// and appends them to pieces. Zero bytes have no piece.
func split(pieces []piece, seed uint64, n, maxPieces int) []piece {
	rng := rand.New(rand.NewPCG(seed, seed))
	off := 0
	for left, parts := n, 1+rng.IntN(maxPieces); left > 0; parts-- {
		size := left
		if parts > 1 {
			size = 1 + rng.IntN(left)
		}
		off += rng.IntN(maxGap + 1)
		pieces = append(pieces, piece{off, size})
		off += size
		left -= size
	}
	return pieces
}

// sgl appends to list an SGE for each piece of a slot, which begins at offset base of mr.
func sgl(list []verbs.SGE, mr verbs.MR, base int, pieces []piece) []verbs.SGE {
	for _, p := range pieces {
		list = append(list, verbs.SGEOf(mr, base+p.off, p.n))
	}
	return list
}

// scatter copies msg into the pieces of a slot.
func scatter(slot, msg []byte, pieces []piece) {
	for _, p := range pieces {
		n := copy(slot[p.off:p.off+p.n], msg)
		msg = msg[n:]
	}
}

// gather copies the pieces of a slot into msg.
func gather(msg, slot []byte, pieces []piece) {
	for _, p := range pieces {
		n := copy(msg, slot[p.off:p.off+p.n])
		msg = msg[n:]
	}
}

// poisonByte is the value of bytes that were not written.
const poisonByte = 0xa5

var poison = bytes.Repeat([]byte{poisonByte}, 1<<12)

// poisonSlot fills memory with poisonByte, so that later writes show.
func poisonSlot(b []byte) {
	for len(b) > 0 {
		b = b[copy(b, poison):]
	}
}

// poisoned reports whether all bytes are as poisonSlot left them.
func poisoned(b []byte) bool { return bytes.Count(b, poison[:1]) == len(b) }

// untouched reports whether a slot is unchanged except for the first n bytes of its pieces.
func untouched(slot []byte, pieces []piece, n int) bool {
	at := 0
	for _, p := range pieces {
		filled := min(n, p.n)
		n -= filled
		if !poisoned(slot[at:p.off]) {
			return false
		}
		at = p.off + filled
	}
	return poisoned(slot[at:])
}

// pacer limits posting to a Pacing.
type pacer struct {
	pacing Pacing
	rng    *rand.Rand
	next   time.Duration
}

// allowed returns how many requests may be posted now, at most room. If it allows any, it draws the
// time before which no more may be posted.
func (p *pacer) allowed(now time.Duration, room int) int {
	if now < p.next || room <= 0 {
		return 0
	}
	if p.pacing.Pause > 0 {
		p.next = now + time.Duration(p.rng.Int64N(int64(p.pacing.Pause)))
	}
	if p.pacing.Batch > 0 {
		return min(room, 1+p.rng.IntN(p.pacing.Batch))
	}
	return room
}

// nextTime is the time of the next post.
func (p *pacer) nextTime() time.Duration { return p.next }

// newRand returns a random generator with seed k.
func newRand(k uint64) *rand.Rand { return rand.New(rand.NewPCG(k, traffic.Mix(k))) }

// Purposes of derived keys.
const (
	keyPlan uint64 = iota
	keyPayload
	keyTarget
	keyPieces
	keyPacing
	keyWords
	keySpare
)

// stamp writes n, the number of an unreliable message, over its first bytes, mixed with k, the key
// of the plan. A message that is too short stays as it is.
func stamp(b []byte, k uint64, n int) {
	if len(b) >= traffic.StampLen {
		putWord(b, traffic.Mix(k)^uint64(n))
	}
}
