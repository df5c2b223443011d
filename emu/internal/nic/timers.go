package nic

import "github.com/fabrictest/fabrictest/emu/mono"

// Timer is the deadline of its Owner, a queue pair or connection. It is a field of the
// owner, so setting it allocates nothing. It must not be copied while it is set.
type Timer[T any] struct {
	Owner *T
	at    mono.Time
	// TieBreak orders timers with the same deadline, lowest first, to make runs deterministic.
	TieBreak uint32
	position int32 // index in the heap plus 1; 0 if the timer is not set
}

// IsSet reports whether the timer is in a heap.
func (t *Timer[T]) IsSet() bool { return t.position > 0 }

// TimerHeap holds the timers that are set, the earliest first.
type TimerHeap[T any] struct{ timers []*Timer[T] }

// Len is the number of timers that are set.
func (h *TimerHeap[T]) Len() int { return len(h.timers) }

// Next is the earliest deadline; mono.Never if no timer is set.
func (h *TimerHeap[T]) Next() mono.Time {
	if len(h.timers) == 0 {
		return mono.Never
	}
	return h.timers[0].at
}

// First returns the owner of the timer with the earliest deadline; nil if no timer is set.
func (h *TimerHeap[T]) First() *T {
	if len(h.timers) == 0 {
		return nil
	}
	return h.timers[0].Owner
}

// Clip frees memory of the heap that is not in use.
func (h *TimerHeap[T]) Clip() { h.timers = append(make([]*Timer[T], 0, len(h.timers)), h.timers...) }

// PopExpired stops the first timer that has expired by now and returns its owner; nil if none has.
func (h *TimerHeap[T]) PopExpired(now mono.Time) *T {
	if len(h.timers) == 0 || h.timers[0].at > now {
		return nil
	}
	t := h.timers[0]
	h.Stop(t)
	return t.Owner
}

// Set sets t to expire at the given time, whether or not it is set. mono.Never stops it.
func (h *TimerHeap[T]) Set(t *Timer[T], at mono.Time) {
	if at == mono.Never {
		h.Stop(t)
		return
	}
	t.at = at
	if t.position == 0 {
		h.timers = append(h.timers, t)
		t.position = int32(len(h.timers))
	}
	h.up(int(t.position) - 1) // may change t.position
	h.down(int(t.position) - 1)
}

// SetIfEarlier sets t, unless t is set to an earlier time already, or the new time is mono.Never.
// It is cheaper than Set for deadlines that mostly move later; an owner whose timer expires early
// has to check its deadline.
func (h *TimerHeap[T]) SetIfEarlier(t *Timer[T], at mono.Time) {
	if at != mono.Never && (t.position == 0 || at < t.at) {
		h.Set(t, at)
	}
}

// Stop removes t, which need not be set.
func (h *TimerHeap[T]) Stop(t *Timer[T]) {
	i, last := int(t.position)-1, len(h.timers)-1
	if i < 0 {
		return
	}
	h.swap(i, last)
	h.timers[last] = nil
	h.timers = h.timers[:last]
	t.position = 0
	if i < last {
		h.up(i)
		h.down(i)
	}
}

func (h *TimerHeap[T]) less(i, j int) bool {
	a, b := h.timers[i], h.timers[j]
	return a.at < b.at || a.at == b.at && a.TieBreak < b.TieBreak
}

func (h *TimerHeap[T]) swap(i, j int) {
	h.timers[i], h.timers[j] = h.timers[j], h.timers[i]
	h.timers[i].position, h.timers[j].position = int32(i)+1, int32(j)+1
}

// up moves the timer at index i towards the root until its parent is not later.
func (h *TimerHeap[T]) up(i int) {
	for i > 0 {
		parent := (i - 1) / 2
		if !h.less(i, parent) {
			return
		}
		h.swap(i, parent)
		i = parent
	}
}

// down moves the timer at index i away from the root until no child is earlier.
func (h *TimerHeap[T]) down(i int) {
	for {
		least := i
		for child := 2*i + 1; child <= 2*i+2 && child < len(h.timers); child++ {
			if h.less(child, least) {
				least = child
			}
		}
		if least == i {
			return
		}
		h.swap(i, least)
		i = least
	}
}
