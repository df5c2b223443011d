package rank

import (
	"fmt"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/fabrictest/fabrictest/launch/internal/control"
)

// dumpPatience is how long a program may take to say what it is at. If its
// answer waits for a lock that it will never get, its stacks are the answer.
const dumpPatience = time.Second

// OnDump sets what describes the state of this rank when the launcher asks. It
// is called on a goroutine of its own, at any time. What the rank waits for on
// this connection is added to it; without a function, so are the stacks of all
// goroutines.
func (c *Conn) OnDump(f func() string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.onDump = f
}

// OnOrder sets what is called for every order from the launcher, one at a time,
// in their order, on a goroutine of its own. The error goes back to whoever gave
// the order.
func (c *Conn) OnCommand(f func(string) error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.onOrder = f
}

// queueOrder hands an order to obey. The caller holds the lock.
func (c *Conn) queueOrder(f control.Frame) error {
	if c.closing {
		return nil
	}
	select {
	case c.orders <- f:
	default:
		refusal := fmt.Sprintf("%d orders wait already", maxOrders)
		_ = c.out.PutUnbounded(control.Frame{Kind: control.CommandReply, Num: f.Num, Body: []byte(refusal)})
	}
	return nil
}

// obey carries out orders until Close.
func (c *Conn) obey() {
	for f := range c.orders {
		order := string(f.Body)
		c.mu.Lock()
		do := c.onOrder
		c.order = &order
		c.mu.Unlock()
		reply := control.Frame{Kind: control.CommandReply, Num: f.Num}
		if do == nil {
			reply.Body = []byte("this rank takes no orders")
		} else if err := do(order); err != nil {
			reply.Body = []byte(cut(err.Error(), control.MaxReason))
			if len(reply.Body) == 0 {
				reply.Body = fmt.Appendf(nil, "%T", err)
			}
		}
		_ = c.out.Put(reply)
		c.mu.Lock()
		c.order = nil
		c.wake()
		c.mu.Unlock()
	}
}

func (c *Conn) answerDump(id uint64) {
	text := c.state()
	c.mu.Lock()
	describe := c.onDump
	c.mu.Unlock()
	if describe == nil {
		text += "\n" + stacks()
	} else {
		said := make(chan string, 1)
		go func() { said <- describe() }()
		select {
		case s := <-said:
			text += "\n" + s
		case <-time.After(dumpPatience):
			text += fmt.Sprintf("\nthe program did not describe itself within %v; its goroutines:\n%s", dumpPatience, stacks())
		}
	}
	text = cut(strings.TrimSpace(text), control.MaxDump)
	_ = c.out.PutUnbounded(control.Frame{Kind: control.DumpReply, Num: id, Body: []byte(text)})
}

// state says what callers wait for here, the longest first.
func (c *Conn) state() string {
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
	if c.order != nil {
		fmt.Fprintf(&b, "carries out the order %q\n", *c.order)
	}
	return strings.TrimSpace(b.String())
}

func stacks() string {
	b := make([]byte, control.MaxDump/2)
	return string(b[:runtime.Stack(b, true)])
}
