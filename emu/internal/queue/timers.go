package queue

import "github.com/fabrictest/fabrictest/emu/mono"

// Timer is the deadline of its Owner, a queue pair or connection. It is a field of the
// owner, so setting it allocates nothing. It must not be copied while it is set.
type Timer[T any] struct {
	Owner *T
	at    mono.Time
	// Rank breaks ties, the lowest first, so that what happens at one time happens
	// in an order that somebody has decided.
	TieBreak uint32
	place    int32 // in the heap, plus 1; 0 if it is not set
}

// IsSet reports whether the timer is in a heap.
func (t *Timer[T]) IsSet() bool { return t.place > 0 }

// TimerHeap orders the timers that are set.
type TimerHeap[T any] struct{ timers []*Timer[T] }

// Len is how many timers are set.
func (h *TimerHeap[T]) Len() int { return len(h.timers) }

// Next is the earliest time for which a timer is set; mono.Never if none is.
func (h *TimerHeap[T]) Next() mono.Time {
	if len(h.timers) == 0 {
		return mono.Never
	}
	return h.timers[0].at
}

// Due returns the owner of a timer whose time has come, which is then no longer
// set; nil if there is none.
func (h *TimerHeap[T]) PopExpired(now mono.Time) *T {
	if len(h.timers) == 0 || h.timers[0].at > now {
		return nil
	}
	t := h.timers[0]
	h.Stop(t)
	return t.Owner
}

// Set sets t, whether or not it is set already. Never takes it out.
func (h *TimerHeap[T]) Set(t *Timer[T], at mono.Time) {
	if at == mono.Never {
		h.Stop(t)
		return
	}
	t.at = at
	if t.place == 0 {
		h.timers = append(h.timers, t)
		t.place = int32(len(h.timers))
	}
	h.up(int(t.place) - 1)
	h.down(int(t.place) - 1)
}

// SetIfEarlier is Set for those whose deadlines mostly move later, and often: a timer
// that is set for an earlier time stays as it is. Its owner, woken too early, has
// to look whether its time has come.
func (h *TimerHeap[T]) SetIfEarlier(t *Timer[T], at mono.Time) {
	if at != mono.Never && (t.place == 0 || at < t.at) {
		h.Set(t, at)
	}
}

// Stop takes t out. It need not be set.
func (h *TimerHeap[T]) Stop(t *Timer[T]) {
	i, last := int(t.place)-1, len(h.timers)-1
	if i < 0 {
		return
	}
	h.swap(i, last)
	h.timers[last] = nil
	h.timers = h.timers[:last]
	t.place = 0
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
	h.timers[i].place, h.timers[j].place = int32(i)+1, int32(j)+1
}

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
