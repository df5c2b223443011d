package engine

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/fabrictest/fabrictest/emu/mono"
)

// sleeper returns a QP with a deadline.
func sleeper(num uint32, at mono.Time) *QP {
	q := &QP{num: num}
	q.timer.Owner, q.timer.TieBreak = q, num
	q.req.timer, q.req.rnrUntil = at, mono.Never
	return q
}

// drainTimers removes all QPs whose deadlines have passed.
func drainTimers(h *qpTimers, now mono.Time) (nums []uint32) {
	for q := h.due(now); q != nil; q = h.due(now) {
		nums = append(nums, q.num)
	}
	return nums
}

// A deadline that moves later keeps its heap entry until it expires and is then
// corrected; a cancelled one is removed.
func TestTimerMovedLaterDoesNotExpireEarly(t *testing.T) {
	var h qpTimers
	later, off := sleeper(1, 10), sleeper(2, 10)
	h.set(later, 10)
	h.set(off, 10)
	later.req.timer, off.req.timer = 50, mono.Never
	h.set(later, 50)
	h.set(off, mono.Never)
	if got := drainTimers(&h, 49); got != nil {
		t.Errorf("due before time: %d", got)
	}
	if got := h.Next(); got != 50 {
		t.Errorf("next is %v", got)
	}
	if got := drainTimers(&h, 50); !slices.Equal(got, []uint32{1}) || h.Next() != mono.Never {
		t.Errorf("got %d, then %v", got, h.Next())
	}
}

// The heap behaves like a linear search under random operations.
func TestTimersAgreeWithAList(t *testing.T) {
	for seed := range uint64(20) {
		rng := rand.New(rand.NewPCG(seed, 1))
		var h qpTimers
		var all []*QP
		for i := range uint32(40) {
			all = append(all, sleeper(i, mono.Never))
		}
		for now := mono.Time(0); now < 2000; now++ {
			for range rng.IntN(4) {
				q := all[rng.IntN(len(all))]
				switch rng.IntN(8) {
				case 0:
					q.req.timer = mono.Never
					h.Stop(&q.timer)
				case 1:
					q.req.timer = mono.Never
					h.set(q, mono.Never)
				default:
					q.req.timer = now + 1 + mono.Time(rng.IntN(100))
					h.set(q, q.deadline())
				}
			}
			var want []uint32
			next := mono.Never
			for _, q := range all {
				if q.req.timer <= now {
					want = append(want, q.num)
				} else {
					next = min(next, q.req.timer)
				}
			}
			got := drainTimers(&h, now)
			slices.Sort(got) // they were due at one time, but stood at others
			if !slices.Equal(got, want) {
				t.Fatalf("seed %d at %v: due %d, want %d", seed, now, got, want)
			}
			if h.Next() > next {
				t.Fatalf("seed %d at %v: next is %v, want %v or earlier", seed, now, h.Next(), next)
			}
			for _, n := range got {
				all[n].req.timer = mono.Never
			}
		}
	}
}

// QPs send in FIFO order, and each is queued at most once.
func TestQPQueueIsFIFOAndHoldsEachQPOnce(t *testing.T) {
	var f qpQueue
	var all []*QP
	for i := range uint32(100) {
		all = append(all, sleeper(i, mono.Never))
	}
	if f.pop() != nil {
		t.Error("an empty line has somebody")
	}
	for i := range 7 { // so that the ring has turned when it grows
		f.push(all[i])
		f.pop()
	}
	for _, q := range all {
		f.push(q)
		f.push(all[0])
	}
	for i, want := range all {
		if got := f.pop(); got != want {
			t.Fatalf("place %d has %v", i, got)
		}
		if i == 50 {
			f.push(all[0]) // again, at the end
		}
	}
	if got := f.pop(); got != all[0] || f.pop() != nil {
		t.Errorf("the last is %v", got)
	}
}
