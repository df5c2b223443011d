package verbcalls

import (
	"errors"
	"sync"
	"time"

	"github.com/fabrictest/fabrictest/verbs"
)

// channel is a verbs.CompChannel that tells of our queues.
type channel struct {
	verbs.CompChannel
	handle

	mu     sync.Mutex
	first  *queue   // EventNamesFirst
	events int      // EventsHalved: how many there were
	owed   []*queue // events that the sound channel knows nothing of
}

func (c *channel) sound() verbs.CompChannel { return c.CompChannel }

// CreateCompChannel makes a completion channel.
func (d *device) CreateCompChannel() (verbs.CompChannel, error) {
	c, err := makes(d, "channels", d.Context.CreateCompChannel)
	if err != nil {
		return nil, err
	}
	return &channel{CompChannel: c, handle: handle{d: d}}, nil
}

// Wait returns the next queue that has an event.
func (c *channel) Wait(timeout time.Duration) (verbs.CQ, error) {
	if q := c.due(); q != nil {
		return q, nil
	}
	left := c.d.timeLeft(timeout)
	for {
		sound, err := c.CompChannel.Wait(left())
		if err != nil {
			return nil, c.answers(err)
		}
		if q := c.tell(ours(c.d, sound)); q != nil {
			if err := c.linger(); err != nil {
				return nil, err
			}
			return q, nil
		}
	}
}

// linger waits for a minute by EventsLate.
func (c *channel) linger() error {
	if !c.d.q.EventsLate {
		return nil
	}
	if err := c.d.sleep(time.Minute); !errors.Is(err, verbs.ErrTimeout) {
		return c.answers(err)
	}
	return nil
}

// due takes an event that is owed; nil if there is none.
func (c *channel) due() *queue {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.owed) == 0 {
		return nil
	}
	q := c.owed[0]
	c.owed = c.owed[1:]
	return q
}

// owe adds n events of a queue.
func (c *channel) owe(q *queue, n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for range n {
		c.owed = append(c.owed, q)
	}
}

// tell is what the program hears of an event: of the queue, of another, or nothing.
func (c *channel) tell(cq verbs.CQ) verbs.CQ {
	q := &c.d.q
	if f, ok := cq.(*queue); ok && q.ArmsCount {
		c.owe(f, int(f.arms.Swap(0))-1)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.events++
	switch {
	case q.EventsHalved && c.events%2 == 0:
		return nil
	case q.EventNamesFirst:
		return c.first
	}
	return cq
}

// Close removes the channel.
func (c *channel) Close() error {
	if c.leftOpen() {
		return nil
	}
	return c.close(c.CompChannel)
}
