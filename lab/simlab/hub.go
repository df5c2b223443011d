package simlab

import (
	"time"

	"github.com/fabrictest/fabrictest/emu/sim"
	"github.com/fabrictest/fabrictest/scenarios/workload"
)

// Hub connects the control channels of the ranks of a world.
type Hub struct {
	// OnMark and OnSample, if not nil, receive the marks and samples of the ranks, in
	// the order of the world's time.
	OnMark   func(rank int, at time.Duration, what string)
	OnSample func(rank int, s workload.Sample)

	*sim.Hub
}

// NewHub returns a hub for ranks 0 to size-1.
func NewHub(w *sim.World, size int) *Hub { return &Hub{Hub: sim.NewHub(w, size, workload.ErrGone)} }

// Control returns the control channel of a rank.
func (h *Hub) Control(rank int) workload.Control { return &control{h.Endpoint(rank), h} }

// control is the control channel of one rank.
type control struct {
	*sim.Endpoint
	h *Hub
}

func (c *control) Mark(what string) {
	if c.h.OnMark != nil {
		c.h.OnMark(c.Rank(), c.Now(), what)
	}
}

func (c *control) Sample(s workload.Sample) {
	if c.h.OnSample != nil {
		c.h.OnSample(c.Rank(), s)
	}
}
