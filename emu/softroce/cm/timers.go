package cm

import "github.com/fabrictest/fabrictest/emu/mono"

// timers is a heap of connections ordered by deadline, then by the order of arming.
type timers struct {
	heap []*conn
	seq  uint64
}

// timer is the timer of a connection.
type timer struct {
	at  mono.Time
	seq uint64
	pos int // index in the heap plus 1; 0 when not armed
}

func (t *timers) next() mono.Time {
	if len(t.heap) == 0 {
		return mono.Never
	}
	return t.heap[0].timer.at
}

func (t *timers) arm(c *conn, at mono.Time) {
	t.seq++
	c.timer.at, c.timer.seq = at, t.seq
	if c.timer.pos == 0 {
		t.heap = append(t.heap, c)
		c.timer.pos = len(t.heap)
	}
	t.down(t.up(c.timer.pos - 1))
}

func (t *timers) stop(c *conn) {
	i := c.timer.pos - 1
	if i < 0 {
		return
	}
	last := len(t.heap) - 1
	t.swap(i, last)
	t.heap[last] = nil
	t.heap = t.heap[:last]
	c.timer.pos = 0
	if i < last {
		t.down(t.up(i))
	}
}

func (t *timers) less(i, j int) bool {
	a, b := &t.heap[i].timer, &t.heap[j].timer
	return a.at < b.at || a.at == b.at && a.seq < b.seq
}

func (t *timers) swap(i, j int) {
	t.heap[i], t.heap[j] = t.heap[j], t.heap[i]
	t.heap[i].timer.pos, t.heap[j].timer.pos = i+1, j+1
}

func (t *timers) up(i int) int {
	for i > 0 && t.less(i, (i-1)/2) {
		t.swap(i, (i-1)/2)
		i = (i - 1) / 2
	}
	return i
}

func (t *timers) down(i int) {
	for {
		least := i
		for child := 2*i + 1; child <= 2*i+2 && child < len(t.heap); child++ {
			if t.less(child, least) {
				least = child
			}
		}
		if least == i {
			return
		}
		t.swap(i, least)
		i = least
	}
}
