package window

import (
	"bytes"

	"github.com/fabrictest/fabrictest/mpi/wire"
)

// reply is an outstanding reply of a target: old elements for a part of an operation's
// result.
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
			h.Size = uint64(to - at)
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
	t.flush.needed = t.flush.needed || o.Result == nil
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
	w.send(t, &h, o.Origin, o)
}

// handleReply stores the old elements of an accumulate. Replies arrive in the order of the
// requests.
func (w *Window) handleReply(t *target, h *wire.Header, data []byte) error {
	if len(t.pendingReplies) == 0 {
		return protocolError(t.Peer, h, "no request is outstanding")
	}
	r := t.pendingReplies[0]
	if len(data) != r.to-r.from {
		return protocolError(t.Peer, h, "wrong size")
	}
	t.pendingReplies = t.pendingReplies[1:]
	copy(r.op.Result[r.from:r.to], data)
	r.op.partDone()
	return nil
}

// elements returns the size bytes of local memory that a message addresses; nil if they are
// not whole elements within the window.
func (w *Window) elements(h *wire.Header, size uint64) []byte {
	elementSize := uint64(Type(h.Type).Size())
	if elementSize == 0 || size == 0 || size > maxRequestSize || size%elementSize != 0 || h.Offset%elementSize != 0 {
		return nil
	}
	if windowSize := uint64(len(w.mem)); size > windowSize || h.Offset > windowSize-size {
		return nil
	}
	return w.mem[h.Offset : h.Offset+size]
}

// handleAccumulate executes an accumulate of a peer, after sending a reply with the old
// elements if they are fetched.
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
	}
	return nil
}

// handleCompareSwap executes a compare-and-swap of a peer. The data are the compare element
// and the new element; the reply has the old one.
func (w *Window) handleCompareSwap(t *target, h *wire.Header, data []byte) error {
	size := Type(h.Type).Size()
	element := w.elements(h, uint64(size))
	if element == nil || len(data) != 2*size {
		return protocolError(t.Peer, h, "invalid range, type or operation")
	}
	w.e.Stats.ExecutedForPeers++
	w.sendReply(t, element)
	if bytes.Equal(element, data[:size]) {
		copy(element, data[size:])
	}
	return nil
}

// sendReply sends a copy of the current elements to the origin, in a reused buffer.
func (w *Window) sendReply(t *target, data []byte) {
	o := w.e.allocOp()
	buf := append(o.Origin[:0], data...)
	*o = Operation{Access: Access{Kind: replyOp, Origin: buf}, w: w, t: t, parts: 1}
	w.e.busy++
	w.send(t, &wire.Header{Kind: wire.AccumulateReply, Context: w.id}, buf, o)
}
