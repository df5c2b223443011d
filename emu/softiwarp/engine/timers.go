package engine

import "github.com/fabrictest/fabrictest/emu/mono"

// timerHeap orders connections by their next deadline. Most have none and are
// not in it.
type timerHeap []*Conn

// next is the earliest deadline.
func (h timerHeap) next() mono.Time {
	if len(h) == 0 {
		return mono.Never
	}
	return h[0].due
}

// due returns a connection whose time has come, out of the heap, or nil.
func (h *timerHeap) due(now mono.Time) *Conn {
	if len(*h) == 0 || now.Before((*h)[0].due) {
		return nil
	}
	c := (*h)[0]
	h.remove(c)
	return c
}

// set puts c where at belongs; mono.Never takes it out.
func (h *timerHeap) set(c *Conn, at mono.Time) {
	switch {
	case c.heapIndex < 0 && at == mono.Never:
	case at == mono.Never:
		h.remove(c)
	case c.heapIndex < 0:
		c.due, c.heapIndex = at, len(*h)
		*h = append(*h, c)
		h.up(c.heapIndex)
	case c.due != at:
		c.due = at
		h.up(c.heapIndex)
		h.down(c.heapIndex)
	}
}

func (h *timerHeap) remove(c *Conn) {
	i, last := c.heapIndex, len(*h)-1
	h.swap(i, last)
	(*h)[last] = nil
	*h = (*h)[:last]
	c.heapIndex = -1
	if i < last {
		h.up(i)
		h.down(i)
	}
}

func (h timerHeap) swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].heapIndex, h[j].heapIndex = i, j
}

func (h timerHeap) up(i int) {
	for i > 0 {
		parent := (i - 1) / 2
		if !h[i].due.Before(h[parent].due) {
			return
		}
		h.swap(i, parent)
		i = parent
	}
}

func (h timerHeap) down(i int) {
	for {
		least := i
		for child := 2*i + 1; child <= 2*i+2 && child < len(h); child++ {
			if h[child].due.Before(h[least].due) {
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
