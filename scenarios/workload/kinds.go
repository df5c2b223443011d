package workload

import (
	"fmt"
	"time"

	"github.com/fabrictest/fabrictest/traffic"
)

// New returns the program of a rank. cfg must be valid for the fabric; defaults are filled in.
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
		peer, nic := e.pair()
		return &randomProgram{env: e, peer: peer, nic: nic}, nil
	case Calls: // the even rank of a pair is the client
		peer, nic := e.pair()
		return &cmEndpoint{env: e, side: r.Rank % 2, peer: peer, nic: nic}, nil
	case Collective:
		return &collectiveProgram{env: e}, nil
	}
	e.cfg.CM = cfg.CM || traits.ConnectsByCM
	n := &node{env: e, byEdge: map[int]*conn{}, peers: map[int]*peer{}}
	n.kind = kind{edges: edges(&cfg, len(r.NICs)), flowControl: !cfg.RunsIntoRNR(), thinkPerMessage: cfg.Think > 0}
	switch cfg.Kind {
	case PingPong:
		n.pingPong()
	case Halo:
		n.halo()
	}
	return n, nil
}

// edges returns the connections of a workload, one per rail between two ranks that communicate.
func edges(cfg *Config, rails int) (all []edge) {
	ranks, messages := cfg.Ranks, [2]int{cfg.Messages, cfg.Messages}
	if cfg.Kind == Stream || cfg.Kind == Incast {
		messages[1] = 0
	}
	add := func(a, b int) {
		for rail := range rails {
			all = append(all, edge{id: len(all), ends: [2]int{a, b}, rail: rail, messages: messages})
		}
	}
	switch cfg.Kind {
	case Stream, PingPong:
		for i := 0; i+1 < ranks; i += 2 {
			add(i, i+1)
		}
	case Incast:
		for i := 1; i < ranks; i++ {
			add(i, 0)
		}
	case AllToAll: // in an order in which each rank starts with a different peer
		for distance := 1; distance < ranks; distance++ {
			for i := range ranks - distance {
				add(i, i+distance)
			}
		}
	case Halo: // a ring; a ring of two ranks has two edges between them
		for i := range ranks {
			add(i, (i+1)%ranks)
		}
	}
	return all
}

// pingPong makes side 0 send a message when the answer to the previous one has arrived, and
// measures round trips. out.allowed is how many messages a side may have sent so far.
func (n *node) pingPong() {
	n.flowControl, n.recvSlots, n.timePerMessage = false, 2, true
	var trips traffic.Histogram
	n.onReady = func() {
		for _, c := range n.conns {
			c.out.allowed = 1 - c.side // side 0 sends first
		}
	}
	n.onArrival = func(c *conn, seq int) { // messages are numbered from 0
		c.out.allowed = seq + 1 // side 1 answers message seq
		if c.side == 0 {
			trips.Add(n.now - c.out.sentAt)
			c.out.allowed = seq + 2 // side 1 has answered message seq: the next may follow
		}
		c.schedule()
	}
	n.summarise = func(r *Report) { r.Latency = trips.Summary() }
}

// halo makes each rank exchange borders with its neighbours. A rank starts a round, in which it may
// send one more border and one atomic to each neighbour, when it has the borders of the previous
// round. Latency is the time of a round.
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

// roundDone reports whether all neighbours whose connection is not over, at least one, have
// delivered their border of a round.
func (n *node) roundDone(round int) bool {
	anyNeighbour := false
	for _, c := range n.conns {
		if c.state == connOver {
			continue
		}
		if c.in.next <= round {
			return false
		}
		anyNeighbour = true
	}
	return anyNeighbour
}
