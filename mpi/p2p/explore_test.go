package p2p

import (
	"errors"
	"fmt"
	"strings"

	"github.com/fabrictest/fabrictest/mpi/wire"
)

// explorer runs a small program of several ranks in every order of its calls, message
// deliveries and transfers. Calls of a rank and messages between two ranks stay in order; all
// else may be reordered, including messages that early progress delivers. Runs that reach a
// known state are cut off.
//
// Each run starts anew and follows a path of choices, so a violation comes with the path
// that leads to it.
type explorer struct {
	cfg       Config
	prog      program
	maxStates int // limit of the exploration

	path       []choice
	pathIndex  int
	atPathEnd  bool
	seen       map[[16]byte]bool
	complete   int // runs that reached the end of the program
	stats      Stats
	events     []event
	deliverErr error // of a delivery during a call
	run        *exploredRun
	scratch    []byte
}

// choice is the alternative picked of several.
type choice struct{ picked, of int }

// event is a step of a run, for error messages.
type event struct {
	rank, i    int
	a          *act // call; nil for a delivery or a transfer
	h          wire.Header
	duringCall bool // delivered by early progress
	bytes      int  // of a transfer
}

func (e event) String() string {
	switch {
	case e.a != nil:
		return fmt.Sprintf("rank %d, %d: %v", e.rank, e.i, *e.a)
	case e.h.Kind == 0:
		return fmt.Sprintf("rank %d transfers %d bytes with rank %d", e.rank, e.bytes, e.i)
	}
	within := ""
	if e.duringCall {
		within = "during its call "
	}
	return fmt.Sprintf("%srank %d receives %v from %d (flags %d)", within, e.rank, e.h.Kind, e.i, e.h.Flags)
}

// act is a call of a rank in a program.
type act struct {
	kind     actKind
	peer     int // of sends and receives; Any in receives
	tag      int // the same
	size     int // of the message or the buffer
	noCredit bool
	mode     Mode
	// noMemory makes registration fail during the call: a send fails, a receive sends no RTR.
	noMemory   bool
	advertised bool
	target     int // index of the act that is waited for, cancelled or received
}

type actKind uint8

const (
	sendAct actKind = iota
	recvAct
	waitAct
	cancelAct
	mprobeAct // waits for a message
	mrecvAct
)

func (a act) String() string {
	envelope := fmt.Sprintf("%d tag %d of %d B", a.peer, a.tag, a.size)
	switch a.kind {
	case sendAct:
		return "send to " + envelope + map[Mode]string{Synchronous: ", synchronous"}[a.mode] + map[bool]string{true: ", without credit"}[a.noCredit] + map[bool]string{true: ", without memory"}[a.noMemory]
	case recvAct:
		return "receive from " + envelope + map[bool]string{true: ", without memory"}[a.noMemory]
	case waitAct:
		return fmt.Sprintf("wait for %d", a.target)
	case mprobeAct:
		return "mprobe from " + envelope
	case mrecvAct:
		return fmt.Sprintf("receive message %d", a.target)
	}
	return fmt.Sprintf("cancel %d", a.target)
}

// program lists the acts of each rank.
type program [][]act

func (p program) String() string {
	var s strings.Builder
	for rank, acts := range p {
		for i, a := range acts {
			fmt.Fprintf(&s, "rank %d, %d: %v\n", rank, i, a)
		}
	}
	return s.String()
}

// exploredRun is one run of a program.
type exploredRun struct {
	w           *world
	pc          []int
	reqs        [][]*Request // by rank and act
	arrivedFrom [][]int      // by rank: the senders of messages, in order of arrival
	mprobed     [][]*Message // by rank and act
}

// errSeen ends a run that has reached a known state.
var errSeen = errors.New("seen")

// explore runs all paths and returns the first violation.
func (x *explorer) explore() error {
	x.seen = make(map[[16]byte]bool)
	for {
		x.pathIndex, x.atPathEnd, x.events, x.deliverErr = 0, false, x.events[:0], nil
		if err := x.runPath(); err != nil && !errors.Is(err, errSeen) {
			order := ""
			for _, e := range x.events {
				order += e.String() + "\n"
			}
			return fmt.Errorf("%v: %w\nprogram:\n%vorder:\n%s", x.cfg.Protocol, err, x.prog, order)
		}
		last := len(x.path) - 1
		for last >= 0 && x.path[last].picked+1 == x.path[last].of {
			last--
		}
		if last < 0 || len(x.seen) > x.maxStates {
			return nil
		}
		x.path = x.path[:last+1]
		x.path[last].picked++
	}
}

// choose picks one of n alternatives: as the path says, or the first at its end.
func (x *explorer) choose(n int) int {
	if n == 1 {
		return 0
	}
	if x.pathIndex == len(x.path) {
		x.path = append(x.path, choice{0, n})
	}
	c := x.path[x.pathIndex]
	x.pathIndex++
	x.atPathEnd = x.pathIndex == len(x.path) // the earlier choices repeat the previous run
	return c.picked
}

// runPath follows the path and continues to the end of the program or a known state.
func (x *explorer) runPath() error {
	size := len(x.prog)
	x.run = &exploredRun{w: newWorld(nil, size, x.cfg), pc: make([]int, size), reqs: make([][]*Request, size), arrivedFrom: make([][]int, size), mprobed: make([][]*Message, size)}
	for rank, n := range x.run.w.ranks {
		x.run.reqs[rank], x.run.mprobed[rank] = make([]*Request, len(x.prog[rank])), make([]*Message, len(x.prog[rank]))
		n.progress = func() { x.deliverEarly(rank) }
	}
	var can []step
	for {
		if can = x.enabledSteps(can[:0]); len(can) == 0 {
			break
		}
		if err := x.doStep(can[x.choose(len(can))]); err != nil {
			return err
		}
		if x.deliverErr != nil {
			return x.deliverErr
		}
		if err := x.run.checkRTRCounts(); err != nil {
			return err
		}
		if x.atPathEnd {
			state := x.stateHash()
			if x.seen[state] {
				return errSeen
			}
			x.seen[state] = true
		}
	}
	x.complete++
	for _, n := range x.run.w.ranks {
		x.stats.merge(&n.e.Stats)
	}
	return x.run.check(x.prog)
}

// step is a possible next step: a delivery if to >= 0, a transfer if job >= 0, else the
// next call of the rank.
type step struct{ rank, to, job int }

// enabledSteps appends all possible steps to can.
func (x *explorer) enabledSteps(can []step) []step {
	r := x.run
	for rank, acts := range x.prog {
		if r.pc[rank] == len(acts) {
			continue
		}
		if !r.blocked(rank, &acts[r.pc[rank]]) {
			can = append(can, step{rank, -1, -1})
		}
	}
	for rank, n := range r.w.ranks {
		for to := range n.outgoing {
			if len(n.outgoing[to]) > 0 {
				can = append(can, step{rank, to, -1})
			}
		}
		for i := range n.transfers {
			can = append(can, step{rank, -1, i})
		}
	}
	return can
}

// blocked reports whether a call would block.
func (r *exploredRun) blocked(rank int, a *act) bool {
	switch a.kind {
	case waitAct:
		return !r.reqs[rank][a.target].Done()
	case mprobeAct:
		_, _, _, found := r.w.ranks[rank].e.Probe(a.envelope())
		return !found
	}
	return false
}

func (a *act) envelope() Envelope {
	return Envelope{Source: int32(a.peer), Tag: int32(a.tag)}
}

// doStep executes a step.
func (x *explorer) doStep(s step) error {
	switch {
	case s.to >= 0:
		return x.deliver(s.rank, s.to, false)
	case s.job >= 0:
		j := &x.run.w.ranks[s.rank].transfers[s.job]
		x.events = append(x.events, event{rank: s.rank, i: j.peer, bytes: j.n})
		return x.run.w.tryTransfer(s.rank, s.job)
	}
	x.call(s.rank, &x.prog[s.rank][x.run.pc[s.rank]])
	return nil
}

// call executes the next act of a rank.
func (x *explorer) call(rank int, a *act) {
	r, n := x.run, x.run.w.ranks[rank]
	i := r.pc[rank]
	r.pc[rank]++
	x.events = append(x.events, event{rank: rank, i: i, a: a})
	n.noMemory = a.noMemory
	defer func() { n.noMemory = false }()
	switch a.kind {
	case sendAct:
		n.noCredit = a.noCredit
		q := &Request{Peer: a.peer, Tag: int32(a.tag), Buf: testMessage(x.id(rank, i), a.size), Mode: a.mode, Advertised: a.advertised}
		r.reqs[rank][i] = q
		n.e.Isend(q)
	case recvAct:
		q := &Request{Peer: a.peer, Tag: int32(a.tag), Buf: make([]byte, a.size), Advertised: a.advertised}
		r.reqs[rank][i] = q
		n.e.Irecv(q)
	case cancelAct:
		n.e.Cancel(r.reqs[rank][a.target])
	case mprobeAct:
		r.mprobed[rank][i] = n.e.Improbe(a.envelope())
	case mrecvAct:
		q := &Request{Buf: make([]byte, a.size)}
		r.reqs[rank][i] = q
		n.e.Imrecv(q, r.mprobed[rank][a.target])
	case waitAct:
	}
}

// id returns a unique message number.
func (x *explorer) id(rank, i int) int { return 1 + rank*16 + i }

// deliver delivers a message.
func (x *explorer) deliver(from, to int, duringCall bool) error {
	h := &x.run.w.ranks[from].outgoing[to][0].h
	x.events = append(x.events, event{rank: to, i: from, h: *h, duringCall: duringCall})
	if h.Kind == wire.Eager || h.Kind == wire.RTS {
		x.run.arrivedFrom[to] = append(x.run.arrivedFrom[to], from)
	}
	_, err := x.run.w.tryDeliver(from, to)
	return err
}

// deliverEarly delivers any of the queued messages, in any order, in early progress.
func (x *explorer) deliverEarly(rank int) {
	n := x.run.w.ranks[rank]
	defer func(was bool) { n.noMemory = was }(n.noMemory)
	n.noMemory = false // registration fails only for the call itself
	for x.deliverErr == nil {
		var from []int
		for _, n := range x.run.w.ranks {
			if len(n.outgoing[rank]) > 0 {
				from = append(from, n.rank)
			}
		}
		c := x.choose(len(from) + 1)
		if c == 0 {
			return
		}
		x.deliverErr = x.deliver(from[c-1], rank, true)
	}
}

// merge adds the statistics that the tests check.
func (s *Stats) merge(o *Stats) {
	s.RTRsReceived += o.RTRsReceived
	s.Advertisements += o.Advertisements
	s.RTRsUsed += o.RTRsUsed
	s.RTRsDropped += o.RTRsDropped
	s.RTRsCrossed += o.RTRsCrossed
	s.Mispredicted += o.Mispredicted
	s.SpeculationStopped += o.SpeculationStopped
	s.SpeculationResumed += o.SpeculationResumed
	s.CreditFallbacks += o.CreditFallbacks
	for k := range s.ControlMessages {
		s.ControlMessages[k] += o.ControlMessages[k]
	}
}
