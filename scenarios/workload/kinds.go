package workload

import (
	"fmt"
	"time"

	"github.com/fabrictest/fabrictest/traffic"
)

// New returns the program of a rank. The configuration must be valid for the fabric;
// defaults are filled in.
func New(cfg Config, r *Rank) (Program, error) {
	traits, caps, err := deviceTraits(r)
	if err != nil {
		return nil, fmt.Errorf("workload: %w", err)
	}
	cfg = cfg.ForDevice(caps).WithDefaults(r.Size)
	if err := cfg.Validate(r.Size, len(r.NICs)); err != nil {
		return nil, fmt.Errorf("workload: %w", err)
	}
	err = cfg.checkDevice(r.NICs[0].Device.Info().Provider, &traits, caps)
	if err != nil {
		return nil, fmt.Errorf("workload: %w", err)
	}
	e := &env{rank: r, cfg: cfg, proc: r.Proc, traits: traits}
	switch cfg.Kind {
	case Random:
		return newRandomProgram(e), nil
	case Calls:
		return newCMEndpoint(e), nil
	}
	n := newNode(e)
	switch cfg.Kind {
	case Stream:
		n.edges = pairEdges(&cfg, len(r.NICs), [2]int{cfg.Messages, 0})
	case PingPong:
		n.edges = pairEdges(&cfg, len(r.NICs), [2]int{cfg.Messages, cfg.Messages})
		n.pingPong()
	case Incast:
		n.edges = incastEdges(&cfg, len(r.NICs))
	case AllToAll:
		n.edges = allToAllEdges(&cfg, len(r.NICs))
	case Halo:
		n.edges = ringEdges(&cfg, len(r.NICs))
		n.halo()
	}
	return n, nil
}

// edgesOf numbers the edges between pairs of ranks, one per rail.
func edgesOf(rails int, messages [2]int, ends [][2]int) (all []edge) {
	for _, pair := range ends {
		for lane := range rails {
			all = append(all, edge{id: len(all), ends: pair, rail: lane, messages: messages})
		}
	}
	return all
}

// pairEdges connects rank 2i to rank 2i+1.
func pairEdges(cfg *Config, rails int, messages [2]int) []edge {
	ends := make([][2]int, 0, cfg.Ranks/2)
	for i := 0; i+1 < cfg.Ranks; i += 2 {
		ends = append(ends, [2]int{i, i + 1})
	}
	return edgesOf(rails, messages, ends)
}

// incastEdges connects every rank to rank 0.
func incastEdges(cfg *Config, rails int) []edge {
	ends := make([][2]int, 0, cfg.Ranks)
	for i := 1; i < cfg.Ranks; i++ {
		ends = append(ends, [2]int{i, 0})
	}
	return edgesOf(rails, [2]int{cfg.Messages, 0}, ends)
}

// allToAllEdges connects all ranks. Their order makes each rank start with a different
// peer.
func allToAllEdges(cfg *Config, rails int) []edge {
	ends := make([][2]int, 0, cfg.Ranks*cfg.Ranks/2)
	for distance := 1; distance < cfg.Ranks; distance++ {
		for i := range cfg.Ranks {
			if j := i + distance; j < cfg.Ranks {
				ends = append(ends, [2]int{i, j})
			}
		}
	}
	return edgesOf(rails, [2]int{cfg.Messages, cfg.Messages}, ends)
}

// ringEdges connects each rank to the next, and the last to the first. Two ranks have two
// edges.
func ringEdges(cfg *Config, rails int) []edge {
	ends := make([][2]int, 0, cfg.Ranks)
	for i := range cfg.Ranks {
		ends = append(ends, [2]int{i, (i + 1) % cfg.Ranks})
	}
	return edgesOf(rails, [2]int{cfg.Messages, cfg.Messages}, ends)
}

// pingPong sends a message when the previous one has come back, and measures round trips.
func (n *node) pingPong() {
	n.flowControl, n.recvSlots, n.timePerMessage = false, 2, true
	var trips traffic.Histogram
	n.onReady = func() {
		for _, c := range n.conns {
			c.out.allowed = 1 - c.side
		}
	}
	n.onArrival = func(c *conn, seq int) {
		if c.side == 0 {
			trips.Add(n.now - c.out.sentAt)
			c.out.allowed = seq + 2
		} else {
			c.out.allowed = seq + 1
		}
		c.schedule()
	}
	n.summarise = func(r *Report) { r.Latency = trips.Summary() }
}

// halo makes each rank exchange borders with its neighbours. A rank starts a round when it
// has the borders of both neighbours of the previous round. In every round it adds to a
// word of each neighbour. Latency is the time of a round.
func (n *node) halo() {
	n.flowControl, n.thinkPerMessage, n.addsAtomics, n.recvSlots = false, false, true, 2
	var rounds traffic.Histogram
	round := 0
	began := time.Duration(0)
	allow := func() {
		for _, c := range n.conns {
			c.out.allowed = min(round+1, c.out.total)
			c.add.allowed = c.out.allowed
			c.schedule()
		}
	}
	step := func() {
		for round < n.cfg.Messages && n.roundDone(round) {
			rounds.Add(n.now - began)
			if n.cfg.Think > 0 {
				n.think()
			}
			began = n.now
			round++
			allow()
		}
	}
	n.onReady = func() {
		began = n.now
		allow()
	}
	n.onArrival = func(*conn, int) { step() }
	n.onOver = func(*conn) { step() }
	n.summarise = func(r *Report) { r.Latency = rounds.Summary() }
}

// roundDone reports whether every remaining neighbour has delivered its border of a round.
func (n *node) roundDone(round int) bool {
	there := false
	for _, c := range n.conns {
		if c.state == connOver {
			continue
		}
		if c.in.next <= round {
			return false
		}
		there = true
	}
	return there
}
