package engine

import (
	"github.com/fabrictest/fabrictest/emu/internal/iwarp"
	"github.com/fabrictest/fabrictest/emu/internal/nic"
	"github.com/fabrictest/fabrictest/emu/mono"
	"github.com/fabrictest/fabrictest/emu/softiwarp/mpa"
)

// NIC is an iWARP NIC.
type NIC struct {
	nic.Base
	Count Counters

	cfg   Config
	q     *Quirks
	layer iwarp.Layer
	mpa   mpa.Counters

	qps     []*QP // by number less FirstQPN
	qpCount int
	nextQP  int

	outputs connFIFO // connections that may have something to write
	changed connFIFO // connections of which there is news
	timers  timerHeap

	clock mono.Time // the latest that anybody has said

	segment iwarp.Segment // that is being made
	vectors [][]byte      // that MPA gives
}

// New returns a NIC.
func New(cfg Config) (*NIC, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	n := &NIC{cfg: cfg}
	n.q = &n.cfg.Quirks
	n.Init(cfg.Limits, cfg.Quirks.Queues, cfg.Quirks.Memory)
	n.Mem.Scramble(cfg.KeySecret)
	n.layer = iwarp.Layer{NIC: &n.Base, Lax: cfg.Quirks.Stream}
	return n, nil
}

// Config returns the configuration in force, defaults filled in.
func (n *NIC) Config() *Config { return &n.cfg }

// Deadline is when Tick must be called next; mono.Never if not at all.
func (n *NIC) Deadline() mono.Time { return n.timers.next() }

// Tick handles every deadline that has passed.
func (n *NIC) Tick(now mono.Time) {
	n.clock = now
	for c := n.timers.due(now); c != nil; c = n.timers.due(now) {
		c.tick(now)
		c.rearm()
	}
}

// NextOutput returns the next connection that may have come to have something
// to write, or to end, since it was returned last.
func (n *NIC) NextOutput() (*Conn, bool) {
	c, ok := n.outputs.pop()
	if ok {
		c.waiting = false
	}
	return c, ok
}

// NextChanged returns the next connection whose State has changed since it was
// returned last.
func (n *NIC) NextChanged() (*Conn, bool) {
	c, ok := n.changed.pop()
	if ok {
		c.announced = false
	}
	return c, ok
}

// qp finds a QP by its number.
func (n *NIC) qp(qpn uint32) *QP {
	i := int(qpn) - int(n.cfg.FirstQPN)
	if i < 0 || i >= len(n.qps) {
		return nil
	}
	return n.qps[i]
}

// connFIFO is a queue of connections that keeps its memory.
type connFIFO struct {
	ring       []*Conn // a power of two
	head, tail uint32
}

func (f *connFIFO) push(c *Conn) {
	if int(f.tail-f.head) == len(f.ring) {
		ring := make([]*Conn, max(8, 2*len(f.ring)))
		n := uint32(0)
		for ; f.head != f.tail; f.head++ {
			ring[n] = f.ring[int(f.head)&(len(f.ring)-1)]
			n++
		}
		f.ring, f.head, f.tail = ring, 0, n
	}
	f.ring[int(f.tail)&(len(f.ring)-1)] = c
	f.tail++
}

func (f *connFIFO) pop() (*Conn, bool) {
	if f.head == f.tail {
		return nil, false
	}
	slot := &f.ring[int(f.head)&(len(f.ring)-1)]
	c := *slot
	*slot = nil
	f.head++
	return c, true
}
