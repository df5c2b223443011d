package launch

import (
	"fmt"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/fabrictest/fabrictest/control"
)

// onDumpTimeout limits the OnDump function, which may deadlock. After it the reply
// contains the stacks of all goroutines.
const onDumpTimeout = time.Second

// OnDump sets the function that describes the state of this rank. It is called on a
// separate goroutine when the launcher requests a dump. The reply also lists blocked
// calls of this Conn, and all goroutine stacks if no function is set.
func (c *Conn) OnDump(f func() string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.onDump = f
}

// OnCommand sets the function that handles commands of the launcher, one at a time and
// in order, on a separate goroutine. Its error is returned by Group.SendCommand.
func (c *Conn) OnCommand(f func(string) error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.onCommand = f
}

// queueCommand passes a command to runCommands. The caller holds the lock.
func (c *Conn) queueCommand(f control.Frame) error {
	if c.closing {
		return nil
	}
	select {
	case c.commands <- f:
	default:
		full := fmt.Sprintf("%d commands are queued already", maxCommands)
		_ = c.frames.QueueNow(control.Frame{Kind: control.Reply, Num: f.Num, Body: []byte(full)})
	}
	return nil
}

// runCommands runs commands until Close.
func (c *Conn) runCommands() {
	for f := range c.commands {
		command := string(f.Body)
		c.mu.Lock()
		handle := c.onCommand
		c.running = &command
		c.mu.Unlock()
		reply := control.Frame{Kind: control.Reply, Num: f.Num}
		if handle == nil {
			reply.Body = []byte("this rank accepts no commands")
		} else if err := handle(command); err != nil {
			reply.Body = []byte(truncate(err.Error(), maxReason))
			if len(reply.Body) == 0 {
				reply.Body = fmt.Appendf(nil, "%T", err)
			}
		}
		_ = c.frames.Queue(reply)
		c.mu.Lock()
		c.running = nil
		c.notifyWaiters()
		c.mu.Unlock()
	}
}

// replyDump replies to a dump request with the state of this rank.
func (c *Conn) replyDump(id uint64) {
	text := c.describeWaits()
	c.mu.Lock()
	describe := c.onDump
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
	waits := make([]*wait, 0, len(c.waits))
	for w := range c.waits {
		waits = append(waits, w)
	}
	slices.SortFunc(waits, func(a, b *wait) int { return a.since.Compare(b.since) })
	var b strings.Builder
	for _, w := range waits {
		fmt.Fprintf(&b, "waits for %s, for %v\n", w.what, time.Since(w.since).Round(time.Millisecond))
	}
	if c.running != nil {
		fmt.Fprintf(&b, "runs the command %q\n", *c.running)
	}
	return strings.TrimSpace(b.String())
}

func goroutineStacks() string {
	b := make([]byte, maxDump/2)
	return string(b[:runtime.Stack(b, true)])
}
