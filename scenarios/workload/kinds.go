package workload

import (
	"fmt"
	"time"
)

// New returns the program that a rank runs. The configuration must be valid for
// the fabric; what it leaves out is filled in.
func New(cfg Config, r *Rank) (Program, error) {
	manners, caps, err := mannersOf(r)
	if err != nil {
		return nil, fmt.Errorf("workload: %w", err)
	}
	cfg = cfg.ForDevice(caps).WithDefaults(r.Size)
	if err := cfg.Validate(r.Size, len(r.NICs)); err != nil {
		return nil, fmt.Errorf("workload: %w", err)
	}
	err = cfg.fits(r.NICs[0].Device.Info().Provider, &manners, caps)
	if err != nil {
		return nil, fmt.Errorf("workload: %w", err)
	}
	switch cfg.Kind {
	case Random:
		return newRandom(cfg, r, manners), nil
	case Calls:
		return newCalls(cfg, r), nil
	}
	n := newNode(cfg, r, manners)
	switch cfg.Kind {
	case Stream:
		n.edges = pairs(&cfg, len(r.NICs), [2]int{cfg.Messages, 0})
	case PingPong:
		n.edges = pairs(&cfg, len(r.NICs), [2]int{cfg.Messages, cfg.Messages})
		n.pingPong()
	case Incast:
		n.edges = incast(&cfg, len(r.NICs))
	case AllToAll:
		n.edges = allToAll(&cfg, len(r.NICs))
	case Halo:
		n.edges = aroundRing(&cfg, len(r.NICs))
		n.halo()
	}
	return n, nil
}

// edgesOf numbers the edges between pairs of ranks, one for each rail.
func edgesOf(rails int, messages [2]int, ends [][2]int) (all []edge) {
	for _, pair := range ends {
		for lane := range rails {
			all = append(all, edge{id: len(all), ends: pair, lane: lane, messages: messages})
		}
	}
	return all
}

// pairs joins rank 2i to rank 2i+1.
func pairs(cfg *Config, rails int, messages [2]int) []edge {
	ends := make([][2]int, 0, cfg.Ranks/2)
	for i := 0; i+1 < cfg.Ranks; i += 2 {
		ends = append(ends, [2]int{i, i + 1})
	}
	return edgesOf(rails, messages, ends)
}

// incast joins every rank to rank 0.
func incast(cfg *Config, rails int) []edge {
	ends := make([][2]int, 0, cfg.Ranks)
	for i := 1; i < cfg.Ranks; i++ {
		ends = append(ends, [2]int{i, 0})
	}
	return edgesOf(rails, [2]int{cfg.Messages, 0}, ends)
}

// allToAll joins everyone to everyone. The order has each rank begin with
// another, so that they do not all turn to the first at once.
func allToAll(cfg *Config, rails int) []edge {
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

// aroundRing joins each rank to the next, and the last to the first. Two ranks have
// two edges: one is the other's neighbour on both sides.
func aroundRing(cfg *Config, rails int) []edge {
	ends := make([][2]int, 0, cfg.Ranks)
	for i := range cfg.Ranks {
		ends = append(ends, [2]int{i, (i + 1) % cfg.Ranks})
	}
	return edgesOf(rails, [2]int{cfg.Messages, cfg.Messages}, ends)
}

// pingPong lets a message go when the one before it has come back, and takes
// the time of that.
func (n *node) pingPong() {
	n.credits, n.most, n.timed = false, 2, true
	var trips histogram
	n.onReady = func() {
		for _, c := range n.conns {
			c.out.allowed = 1 - c.me
		}
	}
	n.onArrival = func(c *conn, seq int) {
		if c.me == 0 {
			trips.add(n.now - c.out.sentAt)
			c.out.allowed = seq + 2
		} else {
			c.out.allowed = seq + 1
		}
		c.wake()
	}
	n.summarise = func(r *Report) { r.Latency = trips.summary() }
}

// halo has each rank exchange borders with its neighbours round by round: a
// rank begins a round when it has both neighbours' borders of the one before.
// In every round it also adds to a word of each neighbour's. The time of a round
// is what Latency tells.
func (n *node) halo() {
	n.credits, n.thinks, n.adds, n.most = false, false, true, 2
	var rounds histogram
	round := 0
	began := time.Duration(0)
	allow := func() {
		for _, c := range n.conns {
			c.out.allowed = min(round+1, c.out.total)
			c.add.wanted = c.out.allowed
			c.wake()
		}
	}
	step := func() {
		for round < n.cfg.Messages && n.roundDone(round) {
			rounds.add(n.now - began)
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
	n.summarise = func(r *Report) { r.Latency = rounds.summary() }
}

// roundDone reports whether every neighbour that is still there has delivered
// its border of a round.
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
