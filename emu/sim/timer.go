package sim

import "github.com/fabrictest/fabrictest/emu/mono"

// notQueued is the position of a timer that has no entry in the heap.
const notQueued = -1

// Timer is a deadline that is set again and again, as a NIC's is. Moving it
// later or stopping it costs a few stores: the heap finds out when the old
// deadline comes up. It holds one heap entry at most.
type Timer struct {
	w   *World
	h   Handler
	arg uint64
	due mono.Time // Never when not armed
	seq uint64    // the order that the last Reset gave it among equals
	pos int32
}

// NewTimer returns a stopped timer that will run h with arg.
func (w *World) NewTimer(h Handler, arg uint64) *Timer {
	t := new(Timer)
	t.init(w, h, arg)
	return t
}

func (t *Timer) init(w *World, h Handler, arg uint64) {
	*t = Timer{w: w, h: h, arg: arg, due: mono.Never, pos: notQueued}
}

// Deadline returns when the timer will run; Never if it is stopped.
func (t *Timer) Deadline() mono.Time { return t.due }

// Reset arms the timer for at, in place of any earlier deadline. A time that
// has passed is due at once, after what is due already; Never stops the timer.
// Resetting to the deadline it already has keeps its place among equals.
func (t *Timer) Reset(at mono.Time) {
	if at == mono.Never || t.w.ended { // a program being unwound may still arm one
		t.due = mono.Never
		return
	}
	at = max(at, t.w.now)
	if at == t.due {
		return
	}
	q := &t.w.queue
	t.due, t.seq = at, q.nextSeq()
	if t.pos == notQueued {
		s := q.takeSlot()
		q.slots[s] = slot{timer: t}
		q.insert(entry{at: at, seq: t.seq, slot: s | timerBit})
		return
	}
	e := q.heap[t.pos]
	if at < e.at { // later deadlines wait for the old entry to come up
		e.at, e.seq = at, t.seq
		q.up(int(t.pos), e)
	}
}

// Stop disarms the timer.
func (t *Timer) Stop() { t.due = mono.Never }
