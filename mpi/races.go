package mpi

import (
	"errors"
	"fmt"

	"github.com/fabrictest/fabrictest/mpi/coll"
	"github.com/fabrictest/fabrictest/mpi/p2p"
	"github.com/fabrictest/fabrictest/mpi/racecheck"
	"github.com/fabrictest/fabrictest/mpi/transport"
	"github.com/fabrictest/fabrictest/mpi/window"
	"github.com/fabrictest/fabrictest/mpi/wire"
)

// races tells a race checker what a rank does. The rank's lock is held in all methods.
type races struct {
	k       *rank
	checker *racecheck.Checker
	p2p     map[*p2p.Request]*racecheck.Op
	rma     map[*window.Operation]*racecheck.Op // with requests
	exposed map[*Win][]int                      // groups of Post
	started map[*Win][]int                      // groups of Start
}

// checkRaceOptions returns an error if races cannot be detected in an environment.
func checkRaceOptions(e *transport.Env, o *Options) error {
	switch {
	case o.Races == nil:
		return nil
	case e.Concurrent:
		return errors.New("races are detected in simulation only, where all ranks are in one process and run in turn")
	case o.Races.Ranks() != e.Size:
		return fmt.Errorf("the race checker is for %d ranks, and the world has %d", o.Races.Ranks(), e.Size)
	}
	return nil
}

// observe lets a checker observe the rank.
func (k *rank) observe(c *racecheck.Checker) {
	h := &races{
		k: k, checker: c, p2p: map[*p2p.Request]*racecheck.Op{}, rma: map[*window.Operation]*racecheck.Op{},
		exposed: map[*Win][]int{}, started: map[*Win][]int{},
	}
	k.races = h
	k.p2p.Arriving = func(peer int, header *wire.Header) any {
		return c.Arrived(header.Context, peer, k.env.Rank, header.Tag)
	}
	k.p2p.Matched = func(r *p2p.Request, arrival any) {
		if o := h.p2p[r]; o != nil {
			c.Matched(o, arrival.(*racecheck.Message))
		}
	}
}

// touch records an access of this rank that is over when the call is.
func (h *races) touch(kind racecheck.Kind, buf []byte) { h.checker.Touch(h.k.place(), kind, buf) }

// end records that the program has returned.
func (h *races) end() {
	p := h.k.place()
	p.Call = "the end of the program"
	h.checker.End(p)
}

// done records the completion of an operation; nil if it was not observed.
func (h *races) done(o *racecheck.Op) {
	if o != nil {
		h.checker.Done(h.k.place(), o)
	}
}

// startSend records the start of a send of the program.
func (h *races) startSend(r *p2p.Request) {
	if r.Context&collective == 0 {
		h.p2p[r] = h.checker.Send(h.k.place(), r.Context, r.Peer, r.Tag, r.Buf, r.Mode == p2p.Synchronous)
	}
}

// startRecv records the start of a receive of the program.
func (h *races) startRecv(r *p2p.Request, buf []byte) {
	if r.Context&collective == 0 {
		h.p2p[r] = h.checker.Recv(h.k.place(), buf)
	}
}

// finish records that the program knows of the completion of a send or a receive.
func (h *races) finish(r *p2p.Request) {
	h.done(h.p2p[r])
	delete(h.p2p, r)
}

// finishRaces records that the program knows of the completion of a collective or RMA request.
func (r *Request) finishRaces() {
	h := r.c.rank.races
	switch r.kind {
	case collectiveRequest:
		h.done(r.execution.raceOp)
		r.execution.raceOp = nil
	case rmaRequest:
		h.done(h.rma[r.op])
		delete(h.rma, r.op)
	}
}

// edges are those of the collective operations, by kind.
var edges = [coll.NumOps]racecheck.Edges{
	coll.Barrier: racecheck.All, coll.Bcast: racecheck.FromRoot, coll.Scatter: racecheck.FromRoot, coll.Gather: racecheck.ToRoot,
	coll.Allgather: racecheck.All, coll.Alltoall: racecheck.All, coll.Reduce: racecheck.ToRoot, coll.Allreduce: racecheck.All,
	coll.ReduceScatter: racecheck.All, coll.Scan: racecheck.Prefix, coll.Exscan: racecheck.Prefix,
}

// startCollective records the start of a collective operation. One without data, other than a barrier,
// orders nothing.
func (h *races) startCollective(c *Comm, a *collectiveCall) *racecheck.Op {
	e := edges[a.Op]
	if a.Op != coll.Barrier && a.Bytes == 0 && a.In == nil && a.Out == nil {
		e = racecheck.NoEdges
	}
	reads, writes := a.buffers(c)
	comm := racecheck.Comm{Context: c.context, First: c.worldRank(0), Rank: c.me, Size: c.size}
	return h.checker.Collective(h.k.place(), comm, e, a.Root, reads, writes)
}

// buffers returns the memory that a rank reads and writes in a collective operation. Those of an Alltoallw,
// whose elements may have gaps, are not known.
func (a *collectiveCall) buffers(c *Comm) (reads, writes [][]byte) {
	if a.types != nil {
		return nil, nil
	}
	in, out := blocksOf(a.in, a.In), blocksOf(a.out, a.Out)
	isRoot := a.Root == c.me
	switch a.Op {
	case coll.Barrier:
		return nil, nil
	case coll.Bcast:
		if isRoot {
			return out, nil
		}
		return nil, out
	case coll.Scatter:
		if !isRoot {
			in = nil
		}
		if a.InPlace {
			out = nil
		}
		return in, out
	}
	if a.InPlace {
		in = nil
	}
	if !isRoot && (a.Op == coll.Gather || a.Op == coll.Reduce) || c.me == 0 && a.Op == coll.Exscan {
		out = nil
	}
	return in, out
}

// blocksOf returns the blocks of a buffer with a layout, or the buffer.
func blocksOf(buf []byte, l *coll.Layout) (blocks [][]byte) {
	if l == nil || len(l.Counts) == 0 {
		return [][]byte{buf}
	}
	for i, n := range l.Counts {
		blocks = append(blocks, buf[l.Offsets[i]:][:n])
	}
	return blocks
}
