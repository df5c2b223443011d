package launch

import (
	"fmt"
	"time"

	"github.com/fabrictest/fabrictest/control"
)

// mailbox holds the messages of one rank that have not been received yet.
type mailbox struct {
	queue [][]byte
	ended bool
}

// Send sends a message to a rank, which may be this one. It blocks only while the send
// queue is full. It returns ErrEnded if the rank is known to have ended; a message
// to a rank that ends later is lost.
func (c *Conn) Send(to int, msg []byte) error {
	if to < 0 || to >= c.welcome.Size {
		return fmt.Errorf("send to rank %d: there are %d ranks", to, c.welcome.Size)
	}
	what := fmt.Sprintf("send to rank %d", to)
	if len(msg) > c.welcome.MaxMessage {
		return fmt.Errorf("%s: %w: %d bytes, the launcher's limit is %d", what, ErrTooBig, len(msg), c.welcome.MaxMessage)
	}
	c.mu.Lock()
	ended := c.mailboxes[to].ended
	c.mu.Unlock()
	if ended {
		return fmt.Errorf("%s: %w", what, ErrEnded)
	}
	return c.put(what, control.Frame{Kind: kindData, Num: uint64(to), Body: msg})
}

// Recv returns the next message from a rank. After timeout (never if negative) it
// returns ErrTimeout. It returns ErrEnded if the rank has ended and all its
// messages have been received.
func (c *Conn) Recv(from int, timeout time.Duration) ([]byte, error) {
	if from < 0 || from >= c.welcome.Size {
		return nil, fmt.Errorf("receive from rank %d: there are %d ranks", from, c.welcome.Size)
	}
	var msg []byte
	err := c.waitUntil(fmt.Sprintf("a message from rank %d", from), timeout, func() (bool, error) {
		box := &c.mailboxes[from]
		switch {
		case len(box.queue) > 0:
			msg = box.queue[0]
			box.queue[0] = nil
			if box.queue = box.queue[1:]; len(box.queue) == 0 {
				box.queue = nil
			}
			c.queuedBytes -= len(msg) + messageOverhead
			return true, nil
		case box.ended:
			return true, ErrEnded
		default:
			return c.endErr()
		}
	})
	if err != nil {
		return nil, fmt.Errorf("receive from rank %d: %w", from, err)
	}
	return msg, nil
}

// Barrier waits until every rank that has not ended has called it. After timeout
// (never if negative) it returns ErrTimeout; the rank has entered the barrier all the
// same, and the next call waits for the same barrier.
func (c *Conn) Barrier(timeout time.Duration) error {
	c.mu.Lock()
	n := c.barriersEntered
	enter := c.barriersPassed == c.barriersEntered && !c.closing && c.disconnectErr == nil
	if enter {
		c.barriersEntered++
		n = c.barriersEntered
	}
	c.mu.Unlock()
	if enter {
		if err := c.put("barrier", control.Frame{Kind: kindBarrier, Num: n}); err != nil {
			return err
		}
	}
	err := c.waitUntil(fmt.Sprintf("other ranks at barrier %d", n), timeout, func() (bool, error) {
		if c.barriersDone >= n && n > 0 {
			c.barriersPassed = max(c.barriersPassed, n)
			return true, nil
		}
		return c.endErr()
	})
	if err != nil {
		return fmt.Errorf("barrier: %w", err)
	}
	return nil
}

// HasEnded reports whether a rank is known to have ended. Its last messages may still
// be in the queue.
func (c *Conn) HasEnded(rank int) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return rank >= 0 && rank < len(c.mailboxes) && c.mailboxes[rank].ended
}

// endErr reports whether the connection has ended, and why. The caller holds the lock.
func (c *Conn) endErr() (bool, error) {
	switch {
	case c.disconnectErr != nil:
		return true, c.disconnectErr
	case c.closing:
		return true, ErrClosed
	default:
		return false, nil
	}
}

// deliver queues a received message. The caller holds the lock.
func (c *Conn) deliver(from uint64, msg []byte) error {
	if from >= uint64(len(c.mailboxes)) {
		return fmt.Errorf("%w: message from rank %d of %d", control.ErrProtocol, from, len(c.mailboxes))
	}
	if c.queuedBytes += len(msg) + messageOverhead; c.queuedBytes > maxQueuedBytes {
		return fmt.Errorf("%d MiB of messages are queued, and the program does not receive them", maxQueuedBytes>>20)
	}
	box := &c.mailboxes[from]
	box.queue = append(box.queue, msg)
	return nil
}

// wait describes a blocked call, for state dumps.
type wait struct {
	what  string
	since time.Time
}

// waitUntil calls ready, with the lock held, after every change until it returns true
// or timeout has expired (never if negative). State dumps show what is awaited.
func (c *Conn) waitUntil(what string, timeout time.Duration, ready func() (bool, error)) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if ok, err := ready(); ok {
		return err
	}
	if timeout == 0 {
		return ErrTimeout
	}
	w := &wait{what, time.Now()}
	c.waits[w] = struct{}{}
	defer delete(c.waits, w)
	var expired <-chan time.Time
	if timeout > 0 {
		t := time.NewTimer(timeout)
		defer t.Stop()
		expired = t.C
	}
	for late := false; ; {
		changed := c.changed
		c.mu.Unlock()
		select {
		case <-changed:
		case <-expired:
			late = true
		}
		c.mu.Lock()
		if ok, err := ready(); ok {
			return err
		}
		if late {
			return ErrTimeout
		}
	}
}

// notifyWaiters makes all waitUntil calls check again. The caller holds the lock.
func (c *Conn) notifyWaiters() {
	close(c.changed)
	c.changed = make(chan struct{})
}
