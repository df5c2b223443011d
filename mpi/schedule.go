package mpi

import (
	"cmp"
	"errors"
	"slices"

	"github.com/fabrictest/fabrictest/mpi/coll"
	"github.com/fabrictest/fabrictest/mpi/p2p"
	"github.com/fabrictest/fabrictest/mpi/racecheck"
)

// execution is a collective operation in progress: it executes the schedule of this rank. A blocking
// call advances its own; progress advances those of nonblocking calls.
type execution struct {
	collectiveCall
	c         *Comm
	tag       int
	algorithm *coll.Algorithm
	buffers   [coll.NumBuffers][]byte

	schedule coll.Schedule
	round    coll.Round // the current one
	next     int        // index of the next step
	copied   int        // bytes of the last copies, not charged yet

	transfers []transfer // since the last wait
	completed int        // how many of the first transfers are complete
	pending   int        // transfers with steps that follow their completion
	arrived   []bool     // by rank, while sends are sorted

	use regionUse // of shared memory, if the operation is nonblocking

	done       bool
	failed     bool // a peer is lost: no more steps are started
	unequal    bool // a message has the wrong size: peers may not advertise their receives
	persistent bool // it belongs to its request
	err        error
	raceOp     *racecheck.Op // nil unless races are detected
	advance    func() bool   // run, as a value
}

// transfer is a send or a receive of a collective.
type transfer struct {
	*p2p.Request
	isRecv bool
	then   []coll.Step // begin when it is complete
}

// newExecution prepares an operation. Its memory is recycled, as that of p2p requests is.
func (c *Comm) newExecution(a *collectiveCall, tag int) *execution {
	k := c.rank
	var x *execution
	if n := len(k.freeExecutions); n > 0 {
		x = k.freeExecutions[n-1]
		k.freeExecutions = k.freeExecutions[:n-1]
	} else {
		x = &execution{}
		x.advance = x.run
	}
	x.c, x.tag, x.collectiveCall = c, tag, *a
	x.algorithm = c.selectAlgorithm(&x.Call)
	if x.algorithm.Needs&coll.Multicasts != 0 {
		c.prepareMulticast(&x.Call)
	}
	x.buffers[coll.In], x.buffers[coll.Out], x.buffers[coll.Shared] = x.in, x.out, x.shared
	scratch := x.algorithm.ScratchBytes(&x.Call)
	switch { // more memory is behind that of the algorithm
	case x.types != nil:
		x.takeScratch(scratch + x.types.packed)
		x.buffers[coll.Packed] = x.buffers[coll.Scratch][scratch:]
	case x.sendsFromCopy():
		x.takeScratch(scratch + len(x.out))
		x.buffers[coll.In] = x.buffers[coll.Scratch][scratch:]
	default:
		x.takeScratch(scratch)
	}
	return x
}

// sendsFromCopy reports whether the operation is an Alltoall in place.
func (x *execution) sendsFromCopy() bool { return x.Op == coll.Alltoall && x.InPlace }

// start prepares the first round; a persistent operation starts more than once.
func (x *execution) start() {
	if x.sendsFromCopy() {
		x.copied = copy(x.buffers[coll.In], x.out)
	}
	x.schedule, x.round.Steps, x.next = coll.Schedule{}, x.round.Steps[:0], 0
	x.done, x.failed, x.unequal, x.err = false, false, false, nil
	x.takeRegion()
	x.pack()
}

// free recycles a complete operation. It keeps no memory of the program.
func (x *execution) free() {
	x.in, x.out, x.shared, x.regions, x.types, x.In, x.Out, x.Nodes = nil, nil, nil, nil, nil, nil, nil, nil
	x.buffers[coll.In], x.buffers[coll.Out], x.buffers[coll.Shared], x.buffers[coll.Packed] = nil, nil, nil, nil
	x.freeScratch()
	x.freeLayouts()
	x.c.rank.freeExecutions = append(x.c.rank.freeExecutions, x)
}

// runCollective executes a blocking operation. The caller holds the lock.
func (c *Comm) runCollective(a *collectiveCall) error {
	if t := c.rank.calls; t != nil {
		t.enterCollective()
	}
	x := c.newExecution(a, int(a.Op))
	x.start()
	if !x.run() {
		c.rank.waitUntil(x.advance)
	}
	err := x.err
	x.free()
	return err
}

// run executes steps until one has to wait, and reports whether the operation is complete.
func (x *execution) run() bool {
	if !x.mayBegin() {
		return false
	}
	for !x.done {
		for ; x.next < len(x.round.Steps) && !x.failed; x.next++ {
			s := &x.round.Steps[x.next]
			if s.Kind != coll.Copy {
				x.chargeCopies()
			}
			if !x.waitIsOver(s) {
				return false
			}
			if s.Kind == coll.SendAdvertised {
				x.sortSends()
			}
			x.execute(s)
			x.next += s.Then
		}
		x.chargeCopies()
		if !x.transfersComplete() {
			return false
		}
		x.done = x.failed || !x.schedule.Next(x.algorithm, &x.Call, &x.round)
		x.next = 0
		if x.done {
			x.leaveRegion()
			x.unpack()
		}
	}
	return true
}

// slice returns the memory of s.
func (x *execution) slice(s coll.Slice) []byte { return x.buffers[s.Buf][s.Off : s.Off+s.Len] }

// execute starts a transfer, or copies or combines data.
func (x *execution) execute(s *coll.Step) {
	switch s.Kind {
	case coll.Send, coll.SendAdvertised:
		x.send(s)
	case coll.Multicast:
		x.multicast(s)
	case coll.Recv, coll.RecvAdvertised, coll.RecvMulticast:
		if s.Kind == coll.RecvMulticast {
			x.c.rank.carrier.ExpectMulticast(x.c.groupID(), x.c.worldRank(s.Peer))
		}
		r := x.c.rank.allocP2P()
		r.Advertised = s.Kind == coll.RecvAdvertised
		x.c.startRecv(r, x.c.context|collective, message{x.slice(s.Dst), s.Peer, x.tagOf(s)})
		t := transfer{Request: r, isRecv: true}
		if s.Then > 0 {
			t.then = x.round.Steps[x.next+1:][:s.Then]
			x.pending++
		}
		x.transfers = append(x.transfers, t)
	case coll.Copy:
		for i := range s.Count {
			src, dst := s.Src, s.Dst
			src.Off, dst.Off, dst.Len = src.Off+i*s.SrcStride, dst.Off+i*s.DstStride, src.Len
			copy(x.slice(dst), x.slice(src))
		}
		x.copied += s.Count * s.Src.Len
	case coll.Combine, coll.CombineFirst:
		x.combine(x.slice(s.Dst), x.slice(s.Src), s.Kind == coll.CombineFirst)
		x.c.rank.chargeCopy(s.Dst.Len) // in virtual time it takes as long as a copy, as accumulates of windows do
	case coll.Wait, coll.WaitFor, coll.WaitStarted, coll.WaitSent:
	}
}

// tagOf returns the tag of a transfer. Tags of operations are below stepTags.
func (x *execution) tagOf(s *coll.Step) int { return x.tag + s.Tag*stepTags }

// send starts a send.
func (x *execution) send(s *coll.Step) {
	r := x.c.rank.allocP2P()
	r.Advertised, r.Unbuffered = s.Kind == coll.SendAdvertised && !x.unequal, x.algorithm.Unbuffered
	m := message{x.slice(s.Src), s.Peer, x.tagOf(s)}
	if x.isOnlyTransfer() {
		x.c.startBlockingSend(r, x.c.context|collective, m, p2p.Standard)
	} else {
		x.c.startSend(r, x.c.context|collective, m, p2p.Standard)
	}
	x.transfers = append(x.transfers, transfer{Request: r})
}

// isOnlyTransfer reports whether the operation waits for the transfer of the current step only.
func (x *execution) isOnlyTransfer() bool {
	return len(x.transfers) == 0 && (x.next+1 == len(x.round.Steps) || x.round.Steps[x.next+1].Kind == coll.Wait)
}

// chargeCopies charges the last copies: all blocks of a message count as one copy.
func (x *execution) chargeCopies() {
	if x.copied > 0 {
		n := x.copied
		x.copied = 0
		x.c.rank.chargeCopy(n)
	}
}

// transfersComplete reports whether all transfers are complete, and then recycles them. It records the
// errors of those that are. A failed receive is announced before the other transfers complete: their peers may wait for this
// rank indirectly.
func (x *execution) transfersComplete() bool {
	x.continueTransfers()
	for ; x.completed < len(x.transfers); x.completed++ {
		t := x.transfers[x.completed]
		if !t.Done() {
			return false
		}
		if t.then != nil { // it has completed during the steps of another one
			x.continueTransfers()
		}
		x.recordError(t)
	}
	for _, t := range x.transfers {
		x.c.rank.freeP2P(t.Request)
	}
	x.transfers, x.completed, x.pending = x.transfers[:0], 0, 0
	return true
}

// recordError keeps the first error of the transfers of a collective, and tells the other ranks of it. After an error of
// sizes the operation continues, without sends that wait for advertised receives: a peer may never advertise one.
func (x *execution) recordError(t transfer) {
	err := x.transferError(t)
	if err == nil {
		return
	}
	x.err = cmp.Or(x.err, err)
	if errors.Is(err, ErrArg) || errors.Is(err, p2p.ErrTruncated) {
		x.unequal = true
		for _, t := range x.transfers {
			x.c.rank.p2p.Announce(t.Request)
		}
	} else {
		x.failed = true
	}
	x.c.announceFailure()
}

// transferError returns the error of a complete transfer. After an error of sizes the operation
// continues, so that no rank waits for this one.
func (x *execution) transferError(t transfer) error {
	switch {
	case t.Err != nil:
		return t.Err
	case t.isRecv && t.Cancelled:
		return ErrFinalized // the program ended before all ranks made the call
	case t.isRecv && t.Size != len(t.Buf):
		return lengthMismatch(x.c.rankOf(t.Source), t.Size, len(t.Buf))
	}
	return nil
}

// startNonblocking starts an operation that progress advances.
func (x *execution) startNonblocking() {
	if races := x.c.rank.races; races != nil {
		x.raceOp = races.startCollective(x.c, &x.collectiveCall)
	}
	x.start()
	if !x.run() {
		x.c.rank.collectives = append(x.c.rank.collectives, x)
	}
}

// advanceCollectives advances the nonblocking operations, and reports whether any progressed.
func (k *rank) advanceCollectives() (progressed bool) {
	for _, x := range k.collectives {
		schedule, next, completed := x.schedule, x.next, x.completed
		if x.run() || schedule != x.schedule || next != x.next || completed != x.completed {
			progressed = true
		}
	}
	k.collectives = slices.DeleteFunc(k.collectives, func(x *execution) bool { return x.done })
	return progressed
}
