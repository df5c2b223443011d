package launch

import (
	"errors"
	"fmt"
	"maps"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/fabrictest/fabrictest/control"
)

// inbox holds the messages that have not been received yet.
type inbox struct {
	from  []mailbox // by rank
	bytes int       // of all messages
}

// mailbox holds the messages of one rank.
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
	op := fmt.Sprintf("send to rank %d", to)
	if len(msg) > c.welcome.MaxMessage {
		return fmt.Errorf("%s: %w: %d bytes, the launcher's limit is %d", op, ErrTooBig, len(msg), c.welcome.MaxMessage)
	}
	c.mu.Lock()
	ended := c.inbox.from[to].ended
	c.mu.Unlock()
	if ended {
		return fmt.Errorf("%s: %w", op, ErrEnded)
	}
	return c.put(op, control.Frame{Kind: kindData, Num: uint64(to), Body: msg})
}

// Recv returns the next message from a rank. After timeout (never if negative) it returns
// ErrTimeout. It returns ErrEnded if the rank has ended and all its messages have been received.
func (c *Conn) Recv(from int, timeout time.Duration) ([]byte, error) {
	if from < 0 || from >= c.welcome.Size {
		return nil, fmt.Errorf("receive from rank %d: there are %d ranks", from, c.welcome.Size)
	}
	var msg []byte
	err := c.waitUntil(fmt.Sprintf("a message from rank %d", from), timeout, func() (bool, error) {
		box := &c.inbox.from[from]
		switch {
		case len(box.queue) > 0:
			msg = box.queue[0]
			box.queue[0] = nil // lets the collector free it
			box.queue = box.queue[1:]
			c.inbox.bytes -= len(msg) + messageOverhead
			return true, nil
		case box.ended:
			return true, ErrEnded
		}
		return c.endErr()
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
	b := &c.barriers
	enter := b.passed == b.entered && !c.closing && c.disconnectErr == nil
	if enter {
		b.entered++
	}
	n := b.entered
	c.mu.Unlock()
	if enter {
		if err := c.put("barrier", control.Frame{Kind: kindBarrier, Num: n}); err != nil {
			return err
		}
	}
	err := c.waitUntil(fmt.Sprintf("other ranks at barrier %d", n), timeout, func() (bool, error) {
		if b.released >= n && n > 0 { // n is 0 if the connection ended before the first barrier
			b.passed = max(b.passed, n)
			return true, nil
		}
		return c.endErr()
	})
	if err != nil {
		return fmt.Errorf("barrier: %w", err)
	}
	return nil
}

// HasEnded reports whether a rank is known to have ended. Its last messages may still be queued.
func (c *Conn) HasEnded(rank int) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return rank >= 0 && rank < len(c.inbox.from) && c.inbox.from[rank].ended
}

// endErr reports whether the connection has ended or Close was called, and returns the error. The
// caller holds the lock.
func (c *Conn) endErr() (bool, error) {
	switch {
	case c.disconnectErr != nil:
		return true, c.disconnectErr
	case c.closing:
		return true, ErrClosed
	}
	return false, nil
}

// deliver queues a received message. It fails for an unknown rank, and beyond maxQueuedBytes.
func (b *inbox) deliver(from uint64, msg []byte) error {
	if from >= uint64(len(b.from)) {
		return fmt.Errorf("%w: message from rank %d of %d", control.ErrProtocol, from, len(b.from))
	}
	if b.bytes += len(msg) + messageOverhead; b.bytes > maxQueuedBytes {
		return fmt.Errorf("%d MiB of messages are queued, and the program does not receive them", maxQueuedBytes>>20)
	}
	b.from[from].queue = append(b.from[from].queue, msg)
	return nil
}

// wait describes a blocked call, for state dumps.
type wait struct {
	reason string
	since  time.Time
}

// waitUntil calls ready, with the lock held, after every change until it returns true. It returns
// the error of ready, or ErrTimeout after timeout (never if negative). State dumps show the reason.
func (c *Conn) waitUntil(reason string, timeout time.Duration, ready func() (bool, error)) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if ok, err := ready(); ok {
		return err
	}
	if timeout == 0 {
		return ErrTimeout
	}
	w := &wait{reason, time.Now()}
	c.waits[w] = struct{}{}
	defer delete(c.waits, w)
	var expired <-chan time.Time
	if timeout > 0 {
		t := time.NewTimer(timeout)
		defer t.Stop()
		expired = t.C
	}
	for timedOut := false; ; {
		changed := c.changed
		c.mu.Unlock()
		select {
		case <-changed:
		case <-expired:
			timedOut = true
		}
		c.mu.Lock()
		if ok, err := ready(); ok {
			return err
		}
		if timedOut {
			return ErrTimeout
		}
	}
}

// notifyWaiters makes all waitUntil calls check again. The caller holds the lock.
func (c *Conn) notifyWaiters() {
	close(c.changed)
	c.changed = make(chan struct{})
}

// onDumpTimeout limits the OnDump function, which may deadlock. After it the reply
// contains the stacks of all goroutines.
const onDumpTimeout = time.Second

// OnDump sets the function that describes the state of this rank. It is called on a
// separate goroutine when the launcher requests a dump. The reply also lists blocked
// calls of this Conn, and all goroutine stacks if no function is set.
func (c *Conn) OnDump(f func() string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.requests.onDump = f
}

// OnCommand sets the function that handles commands of the launcher, one at a time and
// in order, on a separate goroutine. Its error is returned by Group.SendCommand.
func (c *Conn) OnCommand(f func(string) error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.requests.onCommand = f
}

// queueCommand queues a command for runCommands, or replies that the queue is full. c.mu is held.
func (c *Conn) queueCommand(f control.Frame) {
	if c.closing {
		return // SendCommand fails when the launcher receives the Close
	}
	select {
	case c.requests.commands <- f:
	default:
		full := fmt.Sprintf("%d commands are queued already", maxCommands)
		_ = c.frames.QueueNow(control.Frame{Kind: control.Reply, Num: f.Num, Body: []byte(full)})
	}
}

// runCommands runs commands until Close. It replies to each with the text of its error, which is
// empty for success.
func (c *Conn) runCommands() {
	for f := range c.requests.commands {
		command := string(f.Body)
		c.mu.Lock()
		handle := c.requests.onCommand
		c.requests.running = &command
		c.mu.Unlock()
		err := errors.New("this rank accepts no commands")
		if handle != nil {
			err = handle(command)
		}
		_ = c.frames.Queue(control.Frame{Kind: control.Reply, Num: f.Num, Body: errorText(err)})
		c.mu.Lock()
		c.requests.running = nil
		c.notifyWaiters()
		c.mu.Unlock()
	}
}

// replyDump replies to a dump request with the state of this rank.
func (c *Conn) replyDump(id uint64) {
	text := c.describeWaits()
	c.mu.Lock()
	describe := c.requests.onDump
	c.mu.Unlock()
	if describe == nil {
		text += "\n" + goroutineStacks()
	} else {
		described := make(chan string, 1)
		go func() { described <- describe() }()
		select {
		case s := <-described:
			text += "\n" + s
		case <-time.After(onDumpTimeout):
			text += fmt.Sprintf("\nOnDump did not return within %v; goroutines:\n%s", onDumpTimeout, goroutineStacks())
		}
	}
	text = truncate(strings.TrimSpace(text), maxDump)
	_ = c.frames.QueueNow(control.Frame{Kind: control.Reply, Num: id, Body: []byte(text)})
}

// describeWaits lists the blocked calls, the longest first, and the running command.
func (c *Conn) describeWaits() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	var b strings.Builder
	for _, w := range slices.SortedFunc(maps.Keys(c.waits), func(a, b *wait) int { return a.since.Compare(b.since) }) {
		fmt.Fprintf(&b, "waits for %s, for %v\n", w.reason, time.Since(w.since).Round(time.Millisecond))
	}
	if c.requests.running != nil {
		fmt.Fprintf(&b, "runs the command %q\n", *c.requests.running)
	}
	return strings.TrimSpace(b.String())
}

func goroutineStacks() string {
	b := make([]byte, maxDump/2)
	return string(b[:runtime.Stack(b, true)])
}
