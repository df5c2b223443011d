package verbcalls

import (
	"slices"

	"github.com/fabrictest/fabrictest/verbs"
)

// Poll moves completions into the slice: those that we keep first, then the
// device's, then those that the device knows nothing of.
func (c *queue) Poll(into []verbs.WC) (n int, err error) {
	q := &c.d.q
	c.passOn()
	all := q.FlushReversed || q.PollDiscards
	if all {
		err = c.fill()
	}
	if n = c.kept(into); n == 0 && !all {
		n, err = c.fresh(into)
	}
	if n == 0 && err == nil {
		n = c.madeUp(into)
	}
	switch {
	case q.PollDiscards:
		c.discard()
	case q.PollReversed:
		slices.Reverse(into[:n])
	case q.PollEmptyFails && n == 0 && err == nil:
		return 0, refused("poll_cq", verbs.ErrNotFound, "no completion")
	}
	if n > 0 {
		return n, nil // an error comes again
	}
	return 0, c.answers(err)
}

// kept polls what was taken from the device before, or is to come again.
func (c *queue) kept(into []verbs.WC) int {
	c.mu.Lock()
	n := copy(into, c.again)
	c.again = c.again[n:]
	m := copy(into[n:], c.ready)
	c.ready = c.ready[m:]
	c.mu.Unlock()
	return n + c.sift(into[n:n+m])
}

// fresh polls the device, on and on while all that it has is lost on the way.
func (c *queue) fresh(into []verbs.WC) (int, error) {
	for {
		n, err := c.CQ.Poll(into)
		left := c.sift(into[:n])
		if left > 0 || n < len(into) || n == 0 {
			return left, err
		}
	}
}

// madeUp polls completions of requests that the device has not seen.
func (c *queue) madeUp(into []verbs.WC) int {
	c.mu.Lock()
	n := copy(into, c.late)
	c.late = c.late[n:]
	c.mu.Unlock()
	return c.sift(into[:n])
}

// fill takes all that the device has. FlushReversed turns the errors of each queue
// pair round, now that it sees whole what failed together: the last to be flushed
// comes first, and what tells the cause last.
func (c *queue) fill() error {
	var all []verbs.WC
	var some [64]verbs.WC
	n, err := c.CQ.Poll(some[:])
	for ; n > 0; n, err = c.CQ.Poll(some[:]) {
		if all = append(all, some[:n]...); n < len(some) {
			break
		}
	}
	for i := 0; i < len(all) && c.d.q.FlushReversed; {
		end := i + 1
		for end < len(all) && failedWith(&all[end], &all[i]) {
			end++
		}
		slices.Reverse(all[i:end])
		i = end
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ready = append(c.ready, all...)
	return err
}

// failedWith reports whether two completions are errors of one queue pair.
func failedWith(a, b *verbs.WC) bool {
	return a.Status != verbs.WCSuccess && b.Status != verbs.WCSuccess && a.QPN == b.QPN
}

// discard loses what was taken from the device and not polled.
func (c *queue) discard() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ready = nil
}

// invent adds a completion that the device knows nothing of.
func (c *queue) invent(wc verbs.WC) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.late = append(c.late, wc)
}

// sift does to completions what defects do, in place, and returns how many are left.
func (c *queue) sift(wcs []verbs.WC) (n int) {
	for _, wc := range wcs {
		if c.loses(&wc) {
			continue
		}
		c.d.rewrite(&wc)
		c.mu.Lock()
		c.seen++
		fourth := c.seen%4 == 0
		if fourth && c.d.q.WCDoubled {
			c.again = append(c.again, wc)
		}
		c.mu.Unlock()
		if fourth && c.d.q.WCLost {
			continue
		}
		wcs[n] = wc
		n++
	}
	return n
}
