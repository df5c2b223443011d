package sim

import "github.com/fabrictest/fabrictest/emu/mono"

// notQueued is the position of a timer that has no entry in the heap.
const notQueued = -1

// Timer is a deadline that is reset often, as a retransmission timer is.
// Postponing or stopping it does not touch the heap until the old deadline
// comes up. It has at most one heap entry.
type Timer struct {
	w   *World
	h   Handler
	arg uint64
	due mono.Time // Never when not armed
	seq uint64    // order among timers with the same deadline, set by Reset
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

// Deadline returns when the timer fires; Never if it is stopped.
func (t *Timer) Deadline() mono.Time { return t.due }

// Reset arms the timer for at, replacing any earlier deadline. A time in the
// past means now, after the events already due; Never stops the timer.
// Resetting to the current deadline keeps the order among events of the same
// time.
func (t *Timer) Reset(at mono.Time) {
	if at == mono.Never || t.w.ended { // a program that is unwinding may still arm it
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
	if at < e.at { // for a later deadline, peek moves the entry when it is due
		e.at, e.seq = at, t.seq
		q.up(int(t.pos), e)
	}
}

// Stop disarms the timer.
func (t *Timer) Stop() { t.due = mono.Never }
