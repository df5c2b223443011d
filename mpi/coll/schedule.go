package coll

// Buffer names a buffer of a schedule.
type Buffer uint8

// The buffers: the send and the receive buffer of the caller, memory of the executor, memory that the ranks of a
// node share, and memory of the executor with blocks that are apart in the buffers of the caller.
const (
	In Buffer = iota
	Out
	Scratch
	Shared
	Packed
	NumBuffers
)

// Slice is a part of a buffer.
type Slice struct {
	Buf      Buffer
	Off, Len int
}

// from returns the n bytes of s from offset off on.
func (s Slice) from(off, n int) Slice { return Slice{s.Buf, s.Off + off, n} }

// Kind is the kind of a step.
type Kind uint8

// The kinds.
const (
	Send         Kind = iota // Src to Peer
	Recv                     // from Peer to Dst
	Copy                     // Src to Dst
	Combine                  // Dst becomes Dst op Src; Src is undefined afterwards
	CombineFirst             // Dst becomes Src op Dst
	Wait                     // for the transfers of the round so far
	WaitFor                  // for those with Peer
	WaitStarted              // until the sends of the round so far have started
	WaitSent                 // for the sends of the round so far
	// RecvAdvertised is a Recv of which Peer learns that it is posted. SendAdvertised is a Send that may wait
	// for that; if several follow each other, those to peers that have arrived start first.
	RecvAdvertised
	SendAdvertised
	// Multicast sends Src to all other ranks, and copies it at once. Each of them receives it with RecvMulticast.
	Multicast
	RecvMulticast
)

// Step is one step of a round.
type Step struct {
	Kind Kind
	Peer int
	// Tag, of a transfer, is below MaxTag. Messages with different tags need not be received in order.
	Tag      int
	Src, Dst Slice
	// Then, of a receive, is the number of steps after it that begin when it is complete, without the steps
	// after them waiting for that. They are sends, copies and combinations.
	Then int
	// Of a Copy: the number of parts, each with the length of Src, and the distances between them.
	Count                int
	SrcStride, DstStride int
}

// MaxTag is the limit of tags of steps.
const MaxTag = 1<<9 - 1

// hasPeer reports whether the step names a peer.
func (s *Step) hasPeer() bool {
	switch s.Kind {
	case Send, Recv, WaitFor, RecvAdvertised, SendAdvertised, RecvMulticast:
		return true
	case Copy, Combine, CombineFirst, Wait, WaitStarted, WaitSent, Multicast:
	}
	return false
}

// Round is a list of steps that begin in order. Transfers only start: the steps that wait, and the end of
// the round, wait for those that have started.
type Round struct {
	Steps []Step
}

func (r *Round) send(peer int, src Slice) {
	r.Steps = append(r.Steps, Step{Kind: Send, Peer: peer, Src: src})
}

func (r *Round) recv(peer int, dst Slice) {
	r.Steps = append(r.Steps, Step{Kind: Recv, Peer: peer, Dst: dst})
}

// wait waits for the transfers of the round so far.
func (r *Round) wait() { r.Steps = append(r.Steps, Step{Kind: Wait}) }

// waitFor waits for the transfers with a peer.
func (r *Round) waitFor(peer int) { r.Steps = append(r.Steps, Step{Kind: WaitFor, Peer: peer}) }

// advertise receives from each other rank into the slice for it, and then does its steps, if any.
func (r *Round) advertise(c *Call, into func(peer int) Slice, then func(peer int)) {
	for k := 1; k < c.Size; k++ {
		peer := c.before(k)
		at := len(r.Steps)
		r.recvAdvertised(peer, into(peer))
		if then != nil {
			then(peer)
			r.Steps[at].Then = len(r.Steps) - at - 1
		}
	}
}

func (r *Round) recvAdvertised(peer int, dst Slice) {
	r.Steps = append(r.Steps, Step{Kind: RecvAdvertised, Peer: peer, Dst: dst})
}

func (r *Round) sendAdvertised(peer int, src Slice) {
	r.Steps = append(r.Steps, Step{Kind: SendAdvertised, Peer: peer, Src: src})
}

// exchange receives from one rank and sends to another.
func (r *Round) exchange(from int, dst Slice, to int, src Slice) {
	r.recv(from, dst)
	r.send(to, src)
}

// copy copies src to dst, unless it is empty. Both have the same length.
func (r *Round) copy(dst, src Slice) { r.copyStrided(dst, 0, src, 0, 1) }

// copyStrided copies count parts with the length of src: from src, then from srcStride bytes
// after it, and so on, to dst, dstStride bytes after it, and so on.
func (r *Round) copyStrided(dst Slice, dstStride int, src Slice, srcStride, count int) {
	if src.Len > 0 && count > 0 {
		r.Steps = append(r.Steps, Step{Kind: Copy, Src: src, Dst: dst, Count: count, SrcStride: srcStride, DstStride: dstStride})
	}
}

// combineReceived combines dst with the data src that has been received, that of the lower rank first.
func (r *Round) combineReceived(dst, src Slice, peerIsLower bool) {
	r.wait()
	if peerIsLower {
		r.combine(CombineFirst, dst, src)
	} else {
		r.combine(Combine, dst, src)
	}
}

func (r *Round) combine(kind Kind, dst, src Slice) {
	if src.Len > 0 {
		r.Steps = append(r.Steps, Step{Kind: kind, Src: src, Dst: dst})
	}
}
