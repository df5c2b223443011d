package drive

import (
	"time"

	"github.com/fabrictest/fabrictest/emu/link"
	"github.com/fabrictest/fabrictest/emu/mono"
)

// baseEngine is the part that Engine and StreamEngine have in common.
type baseEngine interface {
	Settle(now mono.Time)
	Tick(now mono.Time)
	Deadline() mono.Time
}

// network connects an engine to its link or streams. All methods but wait and
// wake are called under the driver's lock.
type network interface {
	// receive passes up to a batch of received data to the engine. It reports
	// whether there was any, and whether there may be more.
	receive(now mono.Time) (received, more bool)
	// stopReceiving is called when the driver stops although there may be more to
	// receive. It makes the next wait return soon.
	stopReceiving()
	// flush sends up to a batch of the engine's output and reports whether there
	// may be more. If the network is full, retryAfter is when to call flush again;
	// it is negative if all was sent, or if wait returns when there is room.
	flush(now mono.Time) (more bool, retryAfter time.Duration)
	// wait blocks until there is something to receive, d has passed or wake is
	// called. It may return early.
	wait(d time.Duration) error
	wake()
}

// fullRetry is the time after which flush tries a full link again.
const fullRetry = 20 * time.Microsecond

// packetNetwork is the network of an Engine: a packet link.
type packetNetwork struct {
	engine Engine
	link   link.Waiter
	in     []link.Datagram
	out    SendQueue
}

func newPacketNetwork(e Engine, l link.Waiter) *packetNetwork {
	return &packetNetwork{engine: e, link: l, in: make([]link.Datagram, BatchSize), out: NewSendQueue(l.MTU())}
}

// receive implements network.
func (n *packetNetwork) receive(now mono.Time) (received, more bool) {
	k, err := n.link.Recv(now, n.in)
	for i := range k {
		n.engine.Input(now, &n.in[i])
	}
	return k > 0, err == nil && k == len(n.in)
}

func (n *packetNetwork) stopReceiving() {} // WaitReadable returns while datagrams wait

// flush implements network.
func (n *packetNetwork) flush(now mono.Time) (more bool, retryAfter time.Duration) {
	more, full := n.out.Flush(now, n.engine, n.link)
	if full {
		return false, fullRetry
	}
	return more, -1 // no retry
}

func (n *packetNetwork) wait(d time.Duration) error { return n.link.WaitReadable(d) }
func (n *packetNetwork) wake()                      { n.link.Wake() }
