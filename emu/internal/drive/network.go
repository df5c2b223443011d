package drive

import (
	"time"

	"github.com/fabrictest/fabrictest/emu/link"
	"github.com/fabrictest/fabrictest/emu/mono"
)

// machine is what all engines have in common, whatever their network is made of.
type machine interface {
	Settle(now mono.Time)
	Tick(now mono.Time)
	Deadline() mono.Time
}

// network is an engine's network as Real needs it. All but wait and wake are
// called under the lock.
type network interface {
	// takeIn moves what has arrived into the engine, no more than a batch. It
	// reports whether anything had, and whether there may be more.
	takeIn(now mono.Time) (arrived, more bool)
	// leave says that takeIn is not called again for now, although there may be
	// more.
	leave()
	// flush moves what the engine has to send to the network, no more than a batch,
	// and reports whether there may be more. Otherwise it says how soon to do it again
	// because the network did not take everything; negative: it did, or wait will
	// tell when.
	flush(now mono.Time) (more bool, again time.Duration)
	// wait sleeps until takeIn has something to do, or d has passed, or wake is
	// called. It may return early.
	wait(d time.Duration) error
	wake()
}

// fullRetry is how soon a full link is offered the rest.
const fullRetry = 20 * time.Microsecond

// datagrams is a network of a packet link.
type datagrams struct {
	engine Engine
	link   link.Waiter
	in     []link.Datagram
	out    SendQueue
}

func newDatagrams(e Engine, l link.Waiter) *datagrams {
	return &datagrams{engine: e, link: l, in: make([]link.Datagram, BatchSize), out: NewSendQueue(l.MTU())}
}

func (n *datagrams) takeIn(now mono.Time) (arrived, more bool) {
	k, err := n.link.Recv(now, n.in)
	for i := range k {
		n.engine.Input(now, &n.in[i])
	}
	return k > 0, err == nil && k == len(n.in)
}

func (n *datagrams) leave() {} // what waits in the link wakes who waits for it

func (n *datagrams) flush(now mono.Time) (bool, time.Duration) {
	more, full := n.out.Flush(now, n.engine, n.link)
	if full {
		return false, fullRetry
	}
	return more, -1
}

func (n *datagrams) wait(d time.Duration) error { return n.link.WaitReadable(d) }
func (n *datagrams) wake()                      { n.link.Wake() }
