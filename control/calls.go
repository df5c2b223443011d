package control

import (
	"errors"
	"fmt"
	"sync"
)

// ErrTooManyCalls means that a call exceeds the limit of pending calls.
var ErrTooManyCalls = errors.New("too many calls are pending")

// Calls are the calls of one end that wait for replies, which come in any order. The zero
// value is ready for use.
type Calls struct {
	mu      sync.Mutex
	last    uint64 // number of the newest call
	replies uint64 // number of received replies
	closed  bool
	waiting map[uint64]func(body []byte, ok bool)
}

// Begin registers a call and returns the number for its frame, ErrTooManyCalls if limit calls are
// pending, or ErrClosed after Close. done is called once: by Reply with the body of the reply, or
// by Close with ok false.
func (c *Calls) Begin(limit int, done func(body []byte, ok bool)) (num uint64, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.closed:
		return 0, ErrClosed
	case len(c.waiting) >= limit:
		return 0, fmt.Errorf("%w: %d", ErrTooManyCalls, limit)
	case c.waiting == nil:
		c.waiting = make(map[uint64]func([]byte, bool))
	}
	c.last++
	c.waiting[c.last] = done
	return c.last, nil
}

// Forget drops a pending call: its done is not called, and Reply ignores a later reply.
func (c *Calls) Forget(num uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.waiting, num)
}

// Reply handles a received Reply frame: it ends the call with the number of the frame. It ignores
// the reply to a call that Forget or an earlier reply removed, and returns ErrProtocol if there was
// no call with that number.
func (c *Calls) Reply(f Frame) error {
	c.mu.Lock()
	done := c.waiting[f.Num]
	delete(c.waiting, f.Num)
	unknown := f.Num == 0 || f.Num > c.last
	c.replies++
	c.mu.Unlock()
	if unknown {
		return fmt.Errorf("%w: reply to call %d, which was never made", ErrProtocol, f.Num)
	}
	if done != nil {
		done(f.Body, true)
	}
	return nil
}

// Replies returns the number of replies that Reply has handled.
func (c *Calls) Replies() uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.replies
}

// Close ends all pending calls without a reply. Begin then returns ErrClosed.
func (c *Calls) Close() {
	c.mu.Lock()
	waiting := c.waiting
	c.closed, c.waiting = true, nil
	c.mu.Unlock()
	for _, done := range waiting {
		done(nil, false)
	}
}
