package rank

import (
	"fmt"
	"time"

	"github.com/fabrictest/fabrictest/launch/internal/control"
)

// mailbox holds what one rank has sent and nobody has received yet.
type mailbox struct {
	queue [][]byte
	gone  bool
}

// Send sends a message to a rank, itself not excluded. It returns when the
// message is on its way, and waits only while too much is on its way already; it
// returns ErrGone if the rank is known to have ended. A message to a rank that
// ends meanwhile is lost.
func (c *Conn) Send(to int, msg []byte) error {
	if to < 0 || to >= c.terms.Size {
		return fmt.Errorf("send to rank %d: there are %d ranks", to, c.terms.Size)
	}
	what := fmt.Sprintf("send to rank %d", to)
	if len(msg) > c.terms.MaxMessage {
		return fmt.Errorf("%s: %w: %d bytes, the launcher's limit is %d", what, ErrTooBig, len(msg), c.terms.MaxMessage)
	}
	c.mu.Lock()
	gone := c.from[to].gone
	c.mu.Unlock()
	if gone {
		return fmt.Errorf("%s: %w", what, ErrRankEnded)
	}
	return c.put(what, control.Frame{Kind: control.Data, Num: uint64(to), Body: msg})
}

// Recv returns the next message from a rank. It waits for timeout at most
// (without end if negative) and then returns ErrTimeout. It returns ErrGone if
// the rank has ended and all that it sent has been received.
func (c *Conn) Recv(from int, timeout time.Duration) ([]byte, error) {
	if from < 0 || from >= c.terms.Size {
		return nil, fmt.Errorf("receive from rank %d: there are %d ranks", from, c.terms.Size)
	}
	var msg []byte
	err := c.await(fmt.Sprintf("a message from rank %d", from), timeout, func() (bool, error) {
		box := &c.from[from]
		switch {
		case len(box.queue) > 0:
			msg = box.queue[0]
			box.queue[0] = nil
			if box.queue = box.queue[1:]; len(box.queue) == 0 {
				box.queue = nil
			}
			c.held -= len(msg) + messageOverhead
			return true, nil
		case box.gone:
			return true, ErrRankEnded
		default:
			return c.over()
		}
	})
	if err != nil {
		return nil, fmt.Errorf("receive from rank %d: %w", from, err)
	}
	return msg, nil
}

// Barrier returns when every rank that has not ended has called it. It waits for
// timeout at most (without end if negative) and then returns ErrTimeout; this
// rank still counts as waiting then, and the next call waits for the same
// barrier.
func (c *Conn) Barrier(timeout time.Duration) error {
	c.mu.Lock()
	n := c.entered
	enter := c.released == c.entered && !c.closing && c.ended == nil
	if enter {
		c.entered++
		n = c.entered
	}
	c.mu.Unlock()
	if enter {
		if err := c.put("barrier", control.Frame{Kind: control.Barrier, Num: n}); err != nil {
			return err
		}
	}
	err := c.await(fmt.Sprintf("the others at barrier %d", n), timeout, func() (bool, error) {
		if c.released >= n && n > 0 {
			return true, nil
		}
		return c.over()
	})
	if err != nil {
		return fmt.Errorf("barrier: %w", err)
	}
	return nil
}

// Gone reports whether a rank is known to have ended, in whatever way. Messages of
// its may still lie here.
func (c *Conn) HasEnded(rank int) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return rank >= 0 && rank < len(c.from) && c.from[rank].gone
}

// over says whether waiting has become pointless. The caller holds the lock.
func (c *Conn) over() (bool, error) {
	switch {
	case c.ended != nil:
		return true, c.ended
	case c.closing:
		return true, ErrClosed
	default:
		return false, nil
	}
}

// deliver puts a message into its sender's mailbox. The caller holds the lock.
func (c *Conn) deliver(from uint64, msg []byte) error {
	if from >= uint64(len(c.from)) {
		return fmt.Errorf("%w: message from rank %d of %d", control.ErrProtocol, from, len(c.from))
	}
	if c.held += len(msg) + messageOverhead; c.held > inboxBytes {
		return fmt.Errorf("%d MiB of messages lie here, and the program receives none of them", inboxBytes>>20)
	}
	box := &c.from[from]
	box.queue = append(box.queue, msg)
	return nil
}

// wait is something that a caller waits for, for the record.
type wait struct {
	what  string
	since time.Time
}

// await calls ready, with the lock held, whenever something has changed, until it
// says true or timeout has passed (never if negative).
func (c *Conn) await(what string, timeout time.Duration, ready func() (bool, error)) error {
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

// wake makes everybody in await look again. The caller holds the lock.
func (c *Conn) wake() {
	close(c.changed)
	c.changed = make(chan struct{})
}
