package p2p

import (
	"errors"
	"fmt"
	"strings"

	"github.com/fabrictest/fabrictest/mpi/match"
	"github.com/fabrictest/fabrictest/mpi/wire"
)

// An explorer runs a small program of several ranks in every order in which its calls,
// words and transfers can happen: a program's calls keep their order, and so do the
// words from one rank to another; everything else is free, and so is what an early
// progress call finds. Orders that lead to the same state are gone on with once.
//
// Each run begins anew and follows a path of choices, so that a violation comes with
// the path that leads there.
type explorer struct {
	cfg  Config
	prog program
	most int // states; no more are looked at if there are more than that

	path     []choice
	next     int // of the path
	fresh    bool
	seen     map[[16]byte]bool
	complete int // runs that came to an end
	stats    Stats
	did      []event
	problem  error // of a word that came within a call
	r        *exploredRun
	scratch  []byte
}

// choice is which of several things happens.
type choice struct{ picked, of int }

// event is something that has happened.
type event struct {
	rank, i int
	a       *act // a call; nil if something came or moved
	h       wire.Header
	within  bool // a call
	moved   int  // bytes
}

func (e event) String() string {
	switch {
	case e.a != nil:
		return fmt.Sprintf("rank %d, %d: %v", e.rank, e.i, *e.a)
	case e.h.Kind == 0:
		return fmt.Sprintf("rank %d moves %d bytes, with rank %d", e.rank, e.moved, e.i)
	}
	within := ""
	if e.within {
		within = "within its call "
	}
	return fmt.Sprintf("%srank %d hears %v of %d (flags %d)", within, e.rank, e.h.Kind, e.i, e.h.Flags)
}

// act is something that a rank does in a program.
type act struct {
	what   what
	peer   int // of sends and receives; match.Any in receives
	tag    int // the same
	size   int // of the message, or the room for one
	noRoom bool
	mode   Mode
	// noMemory has nothing be registered in the call: a send fails, a receive does not
	// speak.
	noMemory bool
	which    int // act, that is waited for or cancelled, or whose message is received
}

type what uint8

const (
	sends what = iota
	receives
	waits
	cancels
	takes // a message out, when there is one: a matched probe
	gets  // it
)

func (a act) String() string {
	who := fmt.Sprintf("%d tag %d of %d B", a.peer, a.tag, a.size)
	switch a.what {
	case sends:
		return "send to " + who + map[Mode]string{Synchronous: ", synchronous"}[a.mode] + map[bool]string{true: ", without room"}[a.noRoom] + map[bool]string{true: ", without memory"}[a.noMemory]
	case receives:
		return "receive from " + who + map[bool]string{true: ", without memory"}[a.noMemory]
	case waits:
		return fmt.Sprintf("wait for %d", a.which)
	case takes:
		return "take a message from " + who
	case gets:
		return fmt.Sprintf("receive message %d", a.which)
	}
	return fmt.Sprintf("cancel %d", a.which)
}

// program is what each rank does.
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

// explored is one run of a program.
type exploredRun struct {
	w    *world
	pc   []int
	reqs [][]*Request // by rank and act
	came [][]int      // by rank: whom the messages are from, in the order in which they came
	took [][]*Message // by rank and act
}

// errSeen ends a run that has come to where another was.
var errSeen = errors.New("seen")

// explore goes all ways, and returns the first violation.
func (x *explorer) explore() error {
	x.seen = make(map[[16]byte]bool)
	for {
		x.next, x.fresh, x.did, x.problem = 0, false, x.did[:0], nil
		if err := x.run(); err != nil && !errors.Is(err, errSeen) {
			order := ""
			for _, e := range x.did {
				order += e.String() + "\n"
			}
			return fmt.Errorf("%v: %w\nprogram:\n%vorder:\n%s", x.cfg.Protocol, err, x.prog, order)
		}
		last := len(x.path) - 1
		for last >= 0 && x.path[last].picked+1 == x.path[last].of {
			last--
		}
		if last < 0 || len(x.seen) > x.most {
			return nil
		}
		x.path = x.path[:last+1]
		x.path[last].picked++
	}
}

// choose picks one of n: as the path says, or the first beyond its end.
func (x *explorer) choose(n int) int {
	if n == 1 {
		return 0
	}
	if x.next == len(x.path) {
		x.path = append(x.path, choice{0, n})
	}
	c := x.path[x.next]
	x.next++
	x.fresh = x.next == len(x.path) // all choices before are as in the run before
	return c.picked
}

// run follows the path, and goes on to the end of the program or a known state.
func (x *explorer) run() error {
	size := len(x.prog)
	x.r = &exploredRun{w: newWorld(nil, size, x.cfg), pc: make([]int, size), reqs: make([][]*Request, size), came: make([][]int, size), took: make([][]*Message, size)}
	for rank, n := range x.r.w.ranks {
		x.r.reqs[rank], x.r.took[rank] = make([]*Request, len(x.prog[rank])), make([]*Message, len(x.prog[rank]))
		n.progress = func() { x.early(rank) }
	}
	var can []step
	for {
		if can = x.enabled(can[:0]); len(can) == 0 {
			break
		}
		if err := x.take(can[x.choose(len(can))]); err != nil {
			return err
		}
		if x.problem != nil {
			return x.problem
		}
		if err := x.r.checkRTRCounts(); err != nil {
			return err
		}
		if x.fresh {
			state := x.state()
			if x.seen[state] {
				return errSeen
			}
			x.seen[state] = true
		}
	}
	x.complete++
	for _, n := range x.r.w.ranks {
		x.stats.merge(&n.e.Stats)
	}
	return x.r.check(x.prog)
}

// step is something that can happen: a rank's next call; if to is not negative, a word
// from it to another; if job is not, a transfer.
type step struct{ rank, to, job int }

// enabled is all that can happen now, in can.
func (x *explorer) enabled(can []step) []step {
	r := x.r
	for rank, acts := range x.prog {
		if r.pc[rank] == len(acts) {
			continue
		}
		if !r.blocked(rank, &acts[r.pc[rank]]) {
			can = append(can, step{rank, -1, -1})
		}
	}
	for rank, n := range r.w.ranks {
		for to := range n.to {
			if len(n.to[to]) > 0 {
				can = append(can, step{rank, to, -1})
			}
		}
		for i := range n.jobs {
			can = append(can, step{rank, -1, i})
		}
	}
	return can
}

// blocked reports whether a call would wait.
func (r *exploredRun) blocked(rank int, a *act) bool {
	switch a.what {
	case waits:
		return !r.reqs[rank][a.which].Done()
	case takes:
		_, _, _, there := r.w.ranks[rank].e.Probe(a.envelope())
		return !there
	}
	return false
}

func (a *act) envelope() match.Envelope {
	return match.Envelope{Source: int32(a.peer), Tag: int32(a.tag)}
}

// take lets a step happen.
func (x *explorer) take(s step) error {
	switch {
	case s.to >= 0:
		return x.deliver(s.rank, s.to, false)
	case s.job >= 0:
		j := &x.r.w.ranks[s.rank].jobs[s.job]
		x.did = append(x.did, event{rank: s.rank, i: j.peer, moved: j.n})
		return x.r.w.tryTransfer(s.rank, s.job)
	}
	x.call(s.rank, &x.prog[s.rank][x.r.pc[s.rank]])
	return nil
}

// call has a rank do what is next in its program.
func (x *explorer) call(rank int, a *act) {
	r, n := x.r, x.r.w.ranks[rank]
	i := r.pc[rank]
	r.pc[rank]++
	x.did = append(x.did, event{rank: rank, i: i, a: a})
	n.noMemory = a.noMemory
	defer func() { n.noMemory = false }()
	switch a.what {
	case sends:
		n.noRoom = a.noRoom
		q := &Request{Peer: a.peer, Tag: int32(a.tag), Buf: message(x.id(rank, i), a.size), Mode: a.mode}
		r.reqs[rank][i] = q
		n.e.Isend(q)
	case receives:
		q := &Request{Peer: a.peer, Tag: int32(a.tag), Buf: make([]byte, a.size)}
		r.reqs[rank][i] = q
		n.e.Irecv(q)
	case cancels:
		n.e.Cancel(r.reqs[rank][a.which])
	case takes:
		r.took[rank][i] = n.e.Improbe(a.envelope())
	case gets:
		q := &Request{Buf: make([]byte, a.size)}
		r.reqs[rank][i] = q
		n.e.Imrecv(q, r.took[rank][a.which])
	case waits:
	}
}

// id numbers messages.
func (x *explorer) id(rank, i int) int { return 1 + rank*16 + i }

// deliver lets a word arrive.
func (x *explorer) deliver(from, to int, within bool) error {
	h := &x.r.w.ranks[from].to[to][0].h
	x.did = append(x.did, event{rank: to, i: from, h: *h, within: within})
	if h.Kind == wire.Eager || h.Kind == wire.RTS {
		x.r.came[to] = append(x.r.came[to], from)
	}
	_, err := x.r.w.tryDeliver(from, to)
	return err
}

// early takes in any of what is on its way, in any order.
func (x *explorer) early(rank int) {
	n := x.r.w.ranks[rank]
	defer func(was bool) { n.noMemory = was }(n.noMemory)
	n.noMemory = false // that is for what the call is about
	for x.problem == nil {
		var from []int
		for _, n := range x.r.w.ranks {
			if len(n.to[rank]) > 0 {
				from = append(from, n.rank)
			}
		}
		c := x.choose(len(from) + 1)
		if c == 0 {
			return
		}
		x.problem = x.deliver(from[c-1], rank, true)
	}
}

// merge adds up what interests of a run.
func (s *Stats) merge(o *Stats) {
	s.RTRsCame += o.RTRsCame
	s.RTRsUsed += o.RTRsUsed
	s.RTRsDropped += o.RTRsDropped
	s.Crossed += o.Crossed
	s.Mispredicted += o.Mispredicted
	s.SpeculationStopped += o.SpeculationStopped
	s.SpeculationResumed += o.SpeculationResumed
	s.FellBack += o.FellBack
	for k := range s.Words {
		s.Words[k] += o.Words[k]
	}
}
