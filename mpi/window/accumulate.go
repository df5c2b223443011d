package window

import (
	"bytes"
	"encoding/binary"
	"slices"

	"github.com/fabrictest/fabrictest/mpi/wire"
)

// Atomic is a NIC atomic on one 8-byte word of a target's memory.
type Atomic struct {
	op         *Operation
	offset     uint64 // in the window, a multiple of 8
	expected   uint64 // compare value of the compare-and-swap
	old        uint64 // fetched value
	isFetchAdd bool   // not a compare-and-swap, which may fail
}

// Fetched stores the value that the word had before the atomic.
func (a *Atomic) Fetched(old uint64) { a.old = old }

// maxLookahead is the number of queued accumulates per target that are considered for starting.
const maxLookahead = 8

// startEligible starts, among the first maxLookahead queued accumulates, each that overlaps no
// earlier one: accumulates of one origin on the same words run in order, others in parallel.
func (w *Window) startEligible(t *target) {
	for i := 0; i < min(len(t.atomicOps), maxLookahead); i++ {
		o := t.atomicOps[i]
		overlaps := func(other *Operation) bool { return o.firstWord() < other.endWord() && other.firstWord() < o.endWord() }
		if started := o.parts > 0; !started && !slices.ContainsFunc(t.atomicOps[:i], overlaps) {
			w.startAtomics(o)
		}
	}
}

// firstWord is the offset of the first 8-byte word of an operation.
func (o *Operation) firstWord() uint64 { return uint64(o.Offset) &^ 7 }

// endWord is the offset of the end of the last 8-byte word of an operation.
func (o *Operation) endWord() uint64 { return (uint64(o.Offset+o.size) + 7) &^ 7 }

// startAtomics starts the first atomics of an accumulate, at most Config.InFlight. When one
// completes, Engine.AtomicDone starts the next.
func (w *Window) startAtomics(o *Operation) {
	o.nextWord = o.firstWord()
	n := min(int(o.endWord()-o.nextWord)/8, w.e.cfg.InFlight)
	if cap(o.atomics) < n {
		o.atomics = make([]Atomic, n)
	}
	o.atomics = o.atomics[:n]
	// Atomics may complete at once, and then continue with the next words: o.parts has one for this
	// function, and the words may end before the n-th atomic.
	o.parts = 1
	for i := 0; i < n && o.nextWord < o.endWord() && o.err == nil; i++ {
		o.parts++
		o.atomics[i] = Atomic{op: o}
		w.startNextWord(&o.atomics[i])
	}
	w.atomicPartDone(o)
}

// atomicPartDone counts a part of an accumulate as done, and removes the accumulate from the queue of
// atomics after its last part. Operations outside of that queue call partDone.
func (w *Window) atomicPartDone(o *Operation) {
	if o.parts--; o.parts == 0 {
		w.dequeue(o)
	}
}

// startNextWord starts an atomic on the next word of its operation: a fetch-and-add for NoOp and
// for sums of 8-byte integers, else a compare-and-swap. Its compare value has 0 for the bytes of
// the word that are not known yet. If they are not 0, the compare-and-swap fails and fetches them,
// and AtomicDone retries it.
func (w *Window) startNextWord(a *Atomic) {
	o := a.op
	a.offset, a.expected = o.nextWord, 0
	o.nextWord += 8
	w.e.Stats.Atomics++
	switch at := o.t.remoteAddr(a.offset); {
	case o.Op == NoOp:
		a.isFetchAdd = true
		w.e.transport.FetchAdd(o.t.Peer, at, 0, a)
	case o.Op == Sum && o.Kind == AccumulateOp && (o.Type == Int64 || o.Type == Uint64):
		a.isFetchAdd = true
		w.e.transport.FetchAdd(o.t.Peer, at, binary.LittleEndian.Uint64(o.Origin[a.offset-uint64(o.Offset):]), a)
	default:
		if o.Kind == CompareAndSwapOp {
			a.expected = o.applied(a, 0, o.Compare) // the element must equal o.Compare
		}
		w.compareSwap(a)
	}
}

// compareSwap tries to replace the expected value of a word by the result of the operation.
func (w *Window) compareSwap(a *Atomic) {
	w.e.transport.CompareSwap(a.op.t.Peer, a.op.t.remoteAddr(a.offset), a.expected, a.op.applied(a, a.expected, a.op.Origin), a)
}

// span returns the byte range [from, to) of the atomic's word that the operation covers, and
// the offset at of this range in the operation's buffers.
func (o *Operation) span(a *Atomic) (from, to, at int) {
	from, to = max(0, o.Offset-int(a.offset)), min(8, o.Offset+o.size-int(a.offset))
	return from, to, int(a.offset) + from - o.Offset
}

// applied returns the new value of the atomic's 8-byte word if old is its present value. The
// operation's operands are in elements, which has the layout of the origin buffer.
func (o *Operation) applied(a *Atomic, old uint64, elements []byte) uint64 {
	var b [8]byte
	binary.LittleEndian.PutUint64(b[:], old)
	from, to, at := o.span(a) // bytes [from, to) of the word; its operands begin at elements[at]
	Reduce(b[from:to], elements[at:at+to-from], o.Type, o.Op)
	return binary.LittleEndian.Uint64(b[:])
}

// AtomicDone handles the completion of an atomic. Unless err is set, Fetched has set a.old before.
// AtomicDone retries a failed compare-and-swap, or starts an atomic on the operation's next word.
func (e *Engine) AtomicDone(a *Atomic, err error) {
	o := a.op
	w := o.w
	o.fail(err)
	if o.err == nil {
		// A failed compare-and-swap is retried with the fetched value: always for an accumulate;
		// for CompareAndSwap only if the fetched element equals compare, and other bytes differed.
		failed := !a.isFetchAdd && a.old != a.expected
		if failed && (o.Kind != CompareAndSwapOp || o.applied(a, a.old, o.Compare) == a.old) {
			e.Stats.Atomics++
			e.Stats.Retries++
			a.expected = a.old
			w.compareSwap(a)
			return
		}
		o.storeResult(a)
		if o.nextWord < o.endWord() {
			w.startNextWord(a)
			return
		}
	}
	w.atomicPartDone(o)
}

// storeResult copies the fetched bytes of the atomic's word to the result buffer, if any.
func (o *Operation) storeResult(a *Atomic) {
	if o.Result == nil {
		return
	}
	var b [8]byte
	binary.LittleEndian.PutUint64(b[:], a.old)
	from, to, at := o.span(a)
	o.w.e.copied(copy(o.Result[at:], b[from:to]))
}

// dequeue removes and completes an accumulate, and starts queued ones that overlapped it.
func (w *Window) dequeue(o *Operation) {
	t := o.t
	i := slices.Index(t.atomicOps, o)
	t.atomicOps = slices.Delete(t.atomicOps, i, i+1)
	o.complete()
	if t.lost == nil { // the peer is alive
		w.startEligible(t)
	}
}

// reply is an outstanding reply of a target: old elements for a part of an operation's result.
type reply struct {
	op       *Operation
	from, to int
}

// sendAccumulate sends an accumulate to be executed by the target's CPU, in chunks that fit in
// a message. If old elements are fetched, a reply to each chunk follows.
func (w *Window) sendAccumulate(o *Operation) {
	t := o.t
	h := wire.Header{Kind: wire.Accumulate, Context: w.id, Type: uint8(o.Type), Op: uint8(o.Op)}
	if o.Result != nil {
		h.Flags = wire.Fetch
	}
	o.parts = 1 // held by this function: sends may complete at once
	for at := 0; at < o.size; at += w.e.cfg.Chunk {
		to := min(at+w.e.cfg.Chunk, o.size)
		h.Offset = uint64(o.Offset + at)
		if o.Result != nil {
			h.Size = uint64(to - at) // of the reply; a NoOp has no data that would tell
			t.pendingReplies = append(t.pendingReplies, reply{o, at, to})
			o.parts++
		}
		if o.Origin == nil {
			w.send(t, &h, nil, nil)
			continue
		}
		o.parts++
		w.send(t, &h, o.Origin[at:to], o)
	}
	t.flush.needed = t.flush.needed || o.Result == nil // no reply will show that the target has executed it
	o.partDone()
}

// sendCompareSwap sends a compare-and-swap to be executed by the target's CPU.
func (w *Window) sendCompareSwap(o *Operation) {
	t := o.t
	h := wire.Header{Kind: wire.CompareSwap, Context: w.id, Offset: uint64(o.Offset), Type: uint8(o.Type)}
	t.pendingReplies = append(t.pendingReplies, reply{o, 0, o.size})
	o.parts = 2 // the message and the reply
	// Both elements must be contiguous until the message is sent.
	o.Origin = append(bytes.Clone(o.Compare), o.Origin...)
	w.e.copied(len(o.Origin))
	w.send(t, &h, o.Origin, o)
}

// handleReply stores the old elements of an accumulate or a compare-and-swap. Replies arrive in
// request order.
func (w *Window) handleReply(t *target, h *wire.Header, data []byte) error {
	if len(t.pendingReplies) == 0 {
		return protocolError(t.Peer, h, "no request is outstanding")
	}
	r := t.pendingReplies[0]
	if len(data) != r.to-r.from {
		return protocolError(t.Peer, h, "wrong size")
	}
	t.pendingReplies = t.pendingReplies[1:]
	w.e.copied(copy(r.op.Result[r.from:r.to], data))
	r.op.partDone()
	return nil
}

// elements returns the size bytes of local memory that a message addresses; nil if they are
// not whole elements within the window, or pairs.
func (w *Window) elements(h *wire.Header, size uint64) []byte {
	elementSize := uint64(Type(h.Type).Size())
	if elementSize == 0 || Type(h.Type).isLoc() || size == 0 || size > maxRequestSize || size%elementSize != 0 || h.Offset%elementSize != 0 {
		return nil
	}
	if windowSize := uint64(len(w.mem)); size > windowSize || h.Offset > windowSize-size {
		return nil
	}
	return w.mem[h.Offset : h.Offset+size]
}

// handleAccumulate executes an accumulate of the peer t on this rank's window. With the flag Fetch
// it first sends the old elements. A NoOp message has no data: its header has the size.
func (w *Window) handleAccumulate(t *target, h *wire.Header, data []byte) error {
	size, op := uint64(len(data)), Op(h.Op)
	if op == NoOp {
		size = h.Size
	}
	elements := w.elements(h, size)
	if elements == nil || !op.ValidFor(Type(h.Type)) || h.Flags&wire.Fetch != 0 && h.Size != size {
		return protocolError(t.Peer, h, "invalid range, type or operation")
	}
	w.e.Stats.ExecutedForPeers++
	if h.Flags&wire.Fetch != 0 {
		w.sendReply(t, elements)
	}
	if op != NoOp {
		Reduce(elements, data, Type(h.Type), op)
		w.e.copied(len(data))
	}
	return nil
}

// handleCompareSwap executes a compare-and-swap of the peer t on this rank's window. The data are
// the compare element and the new element; the reply has the old one.
func (w *Window) handleCompareSwap(t *target, h *wire.Header, data []byte) error {
	size := Type(h.Type).Size()
	element := w.elements(h, uint64(size))
	if element == nil || len(data) != 2*size {
		return protocolError(t.Peer, h, "invalid range, type or operation")
	}
	w.e.Stats.ExecutedForPeers++
	w.sendReply(t, element)
	if bytes.Equal(element, data[:size]) {
		w.e.copied(copy(element, data[size:]))
	}
	return nil
}

// sendReply sends data, the old elements of this window, to t, the rank that has started an
// operation on them. It copies data to a reused buffer: the caller changes the elements next.
func (w *Window) sendReply(t *target, data []byte) {
	o := w.e.allocOp()
	buf := append(o.Origin[:0], data...)
	w.e.copied(len(buf))
	*o = Operation{Access: Access{Kind: replyOp, Origin: buf}, w: w, t: t, parts: 1}
	w.e.busy++
	w.send(t, &wire.Header{Kind: wire.AccumulateReply, Context: w.id}, buf, o)
}
