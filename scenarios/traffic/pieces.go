package traffic

import (
	"bytes"
	"math/rand/v2"
	"time"

	"github.com/fabrictest/fabrictest/verbs"
)

// Messages lie in memory in pieces with gaps between them, so that scatter and
// gather lists have something to do, and bytes beside a message are seen to
// stay as they were.

// maxGap is the longest gap between pieces.
const maxGap = 7

// slotLen is the memory for a message of n bytes in up to sges pieces.
func slotLen(n, sges int) int { return (n + sges*maxGap + 7) &^ 7 }

// piece is a part of a slot.
type piece struct{ off, n int }

// cut cuts n bytes into up to most pieces, as k says, and appends them to into.
// Nothing is no piece at all.
func cut(into []piece, k uint64, n, most int) []piece {
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

// sgl appends the entries for pieces of the slot at base.
func sgl(into []verbs.SGE, mr verbs.MR, base int, pieces []piece) []verbs.SGE {
	for _, p := range pieces {
		into = append(into, verbs.SGEOf(mr, base+p.off, p.n))
	}
	return into
}

// spread copies msg into the pieces of a slot, gather copies it out.
func spread(slot, msg []byte, pieces []piece) {
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

// poison is what a slot holds where nothing was written.
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

// untouched reports whether everything in slot but the first n bytes of its
// pieces is still poison.
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

// metronome keeps a Rhythm.
type metronome struct {
	rhythm Pacing
	rng    *rand.Rand
	next   time.Duration
}

// beat is how many of room requests may be posted now.
func (m *metronome) beat(now time.Duration, room int) int {
	if now < m.next || room <= 0 {
		return 0
	}
	if m.rhythm.Pause > 0 {
		m.next = now + time.Duration(m.rng.Int64N(int64(m.rhythm.Pause)))
	}
	if m.rhythm.Batch > 0 {
		return min(room, 1+m.rng.IntN(m.rhythm.Batch))
	}
	return room
}
