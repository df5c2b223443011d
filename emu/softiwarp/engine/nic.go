package engine

import (
	"github.com/fabrictest/fabrictest/emu/internal/nic"
	"github.com/fabrictest/fabrictest/emu/iwarp"
	"github.com/fabrictest/fabrictest/emu/mono"
	"github.com/fabrictest/fabrictest/emu/softiwarp/mpa"
)

// NIC is an iWARP NIC.
type NIC struct {
	nic.Base
	Count Counters

	cfg    Config
	policy *Policy
	layer  iwarp.Layer
	mpa    mpa.Counters

	qps nic.QPTable[QP]

	outputs nic.FIFO[*Conn] // connections that may have output
	changed nic.FIFO[*Conn] // connections whose state has changed
	timers  nic.TimerHeap[Conn]

	clock mono.Time // latest time passed to a method

	segment iwarp.Segment // scratch buffer of Conn.fillMPA
	vectors [][]byte      // scratch buffer of Conn.Output
}

// New returns a NIC. With a cfg.KeySecret, its STags are unpredictable.
func New(cfg Config) (*NIC, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	n := &NIC{cfg: cfg, qps: nic.NewQPTable[QP](cfg.FirstQPN, cfg.Limits.QPs)}
	n.policy = &n.cfg.Policy
	n.Init(cfg.Limits, cfg.Policy.Shared)
	n.Mem.Scramble(cfg.KeySecret)
	n.layer = iwarp.Layer{NIC: &n.Base, Policy: cfg.Policy.Stream}
	return n, nil
}

// Config returns the configuration with defaults filled in.
func (n *NIC) Config() *Config { return &n.cfg }

// Deadline returns when Tick must be called next, or mono.Never.
func (n *NIC) Deadline() mono.Time { return n.timers.Next() }

// Tick handles every deadline that has passed.
func (n *NIC) Tick(now mono.Time) {
	n.clock = now
	for c := n.timers.PopExpired(now); c != nil; c = n.timers.PopExpired(now) {
		c.tick(now)
		c.rearm()
	}
}

// NextOutput returns the next connection that may have output or must be closed, false if there is
// none.
func (n *NIC) NextOutput() (*Conn, bool) {
	c, ok := n.outputs.Pop()
	if ok {
		c.inOutputs = false
	}
	return c, ok
}

// NextChanged returns the next connection whose State has changed since it was last returned, false
// if there is none.
func (n *NIC) NextChanged() (*Conn, bool) {
	c, ok := n.changed.Pop()
	if ok {
		c.inChanged = false
	}
	return c, ok
}
