package simcontrol

import (
	"time"

	"github.com/fabrictest/fabrictest/emu/sim"
	"github.com/fabrictest/fabrictest/scenarios/workload"
)

// Hub joins the ranks of a world.
type Hub struct {
	// OnMark and OnSample, if not nil, are told what the ranks report, in the
	// order of the world's time.
	OnMark   func(rank int, at time.Duration, what string)
	OnSample func(rank int, s workload.Sample)

	*sim.Hub
}

// New returns a hub for ranks 0 to size-1.
func New(w *sim.World, size int) *Hub { return &Hub{Hub: sim.NewHub(w, size, workload.ErrGone)} }

// Control returns what a rank is given.
func (h *Hub) Control(rank int) workload.Control { return &control{h.Endpoint(rank), h} }

// control is one rank's view of the hub.
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
