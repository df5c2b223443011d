package random

import (
	"bytes"
	"math/rand/v2"
	"time"

	"github.com/fabrictest/fabrictest/verbs"
)

// Messages are stored in pieces with gaps between them. That exercises scatter/gather
// lists, and shows writes outside a message.

// maxGap is the longest gap between pieces.
const maxGap = 7

// slotLen is the memory for a message of n bytes in up to sges pieces.
func slotLen(n, sges int) int { return (n + sges*maxGap + 7) &^ 7 }

// piece is a part of a slot.
type piece struct{ off, n int }

// split divides n bytes into up to most pieces, with random seed k, and appends them to
// into. Zero bytes have no piece.
func split(into []piece, k uint64, n, most int) []piece {
	rng := rand.New(rand.NewPCG(k, k))
	off := 0
	for left, parts := n, 1+rng.IntN(most); left > 0; parts-- {
		size := left
		if parts > 1 {
			size = 1 + rng.IntN(left)
		}
		off += rng.IntN(maxGap + 1)
		into = append(into, piece{off, size})
		off += size
		left -= size
	}
	return into
}

// sgl appends the SGEs of the pieces of the slot at base.
func sgl(into []verbs.SGE, mr verbs.MR, base int, pieces []piece) []verbs.SGE {
	for _, p := range pieces {
		into = append(into, verbs.SGEOf(mr, base+p.off, p.n))
	}
	return into
}

// scatter copies msg into the pieces of a slot, gather copies it out.
func scatter(slot, msg []byte, pieces []piece) {
	for _, p := range pieces {
		n := copy(slot[p.off:p.off+p.n], msg)
		msg = msg[n:]
	}
}

func gather(msg, slot []byte, pieces []piece) {
	for _, p := range pieces {
		n := copy(msg, slot[p.off:p.off+p.n])
		msg = msg[n:]
	}
}

// poisonByte is the value of bytes that were not written.
const poisonByte = 0xa5

var poison = bytes.Repeat([]byte{poisonByte}, 1<<12)

func poisonSlot(b []byte) {
	for len(b) > 0 {
		b = b[copy(b, poison):]
	}
}

func poisoned(b []byte) bool {
	for len(b) > 0 {
		n := min(len(b), len(poison))
		if !bytes.Equal(b[:n], poison[:n]) {
			return false
		}
		b = b[n:]
	}
	return true
}

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

// allowed returns how many of room requests may be posted now.
func (m *pacer) allowed(now time.Duration, room int) int {
	if now < m.next || room <= 0 {
		return 0
	}
	if m.pacing.Pause > 0 {
		m.next = now + time.Duration(m.rng.Int64N(int64(m.pacing.Pause)))
	}
	if m.pacing.Batch > 0 {
		return min(room, 1+m.rng.IntN(m.pacing.Batch))
	}
	return room
}
