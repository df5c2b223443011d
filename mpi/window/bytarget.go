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

// sendAccumulate has the target's CPU execute an accumulate, in chunks that fit in a
// message.
func (w *Window) sendAccumulate(o *Operation) {
	t := o.t
	h := wire.Header{Kind: wire.Accumulate, Context: w.id, Type: uint8(o.typ), Op: uint8(o.op)}
	if o.result != nil {
		h.Flags = wire.Fetch
	}
	o.parts = 1 // held by this function: sends may complete at once
	for at := 0; at < o.size; at += w.e.cfg.Chunk {
		to := min(at+w.e.cfg.Chunk, o.size)
		h.Offset = uint64(o.offset + at)
		if o.result != nil {
			h.Size = uint64(to - at)
			t.pendingReplies = append(t.pendingReplies, reply{o, at, to})
			o.parts++
		}
		if o.origin == nil {
			w.e.sendControl(t, &h)
			continue
		}
		o.parts++
		w.e.Stats.ControlMessages[h.Kind-wire.FirstWindowKind]++
		w.e.transport.Send(t.peer, &h, o.origin[at:to], o)
	}
	t.unflushed = t.unflushed || o.result == nil
	o.partDone()
}

// sendCompareSwap has the target's CPU execute a compare-and-swap.
func (w *Window) sendCompareSwap(o *Operation) {
	t := o.t
	h := wire.Header{Kind: wire.CompareSwap, Context: w.id, Offset: uint64(o.offset), Type: uint8(o.typ)}
	t.pendingReplies = append(t.pendingReplies, reply{o, 0, o.size})
	o.parts = 2
	w.e.Stats.ControlMessages[h.Kind-wire.FirstWindowKind]++
	// Both elements must be contiguous until the message is sent.
	o.origin = append(bytes.Clone(o.compare), o.origin...)
	w.e.transport.Send(t.peer, &h, o.origin, o)
}

// handleReply stores the old elements of an accumulate.
func (w *Window) handleReply(t *target, h *wire.Header, data []byte) error {
	if len(t.pendingReplies) == 0 {
		return protocolError(t.peer, h, "no request is outstanding")
	}
	r := t.pendingReplies[0]
	if len(data) != r.to-r.from {
		return protocolError(t.peer, h, "wrong size")
	}
	t.pendingReplies = t.pendingReplies[1:]
	copy(r.op.result[r.from:r.to], data)
	r.op.partDone()
	return nil
}

// elements returns the local memory that a message addresses; nil if it is not within the
// window.
func (w *Window) elements(h *wire.Header, size uint64) []byte {
	each := uint64(Type(h.Type).Size())
	if each == 0 || size == 0 || size > maxRequestSize || size%each != 0 || h.Offset%each != 0 {
		return nil
	}
	if all := uint64(len(w.mem)); size > all || h.Offset > all-size {
		return nil
	}
	return w.mem[h.Offset : h.Offset+size]
}

// handleAccumulate executes an accumulate of a peer.
func (w *Window) handleAccumulate(t *target, h *wire.Header, data []byte) error {
	size, op := uint64(len(data)), Op(h.Op)
	if op == NoOp {
		size = h.Size
	}
	elements := w.elements(h, size)
	if elements == nil || !op.ValidFor(Type(h.Type)) || h.Flags&wire.Fetch != 0 && h.Size != size {
		return protocolError(t.peer, h, "invalid range, type or operation")
	}
	w.e.Stats.Carried++
	if h.Flags&wire.Fetch != 0 {
		w.sendReply(t, elements)
	}
	if op != NoOp {
		Reduce(elements, data, Type(h.Type), op)
	}
	return nil
}

// handleCompareSwap executes a compare-and-swap of a peer.
func (w *Window) handleCompareSwap(t *target, h *wire.Header, data []byte) error {
	size := Type(h.Type).Size()
	element := w.elements(h, uint64(size))
	if element == nil || len(data) != 2*size {
		return protocolError(t.peer, h, "invalid range, type or operation")
	}
	w.e.Stats.Carried++
	w.sendReply(t, element)
	if bytes.Equal(element, data[:size]) {
		copy(element, data[size:])
	}
	return nil
}

// sendReply sends a copy of the current elements to the origin.
func (w *Window) sendReply(t *target, data []byte) {
	o := w.e.allocOp()
	buf := append(o.origin[:0], data...)
	*o = Operation{w: w, t: t, kind: replyOp, origin: buf, parts: 1}
	w.e.busy++
	h := wire.Header{Kind: wire.AccumulateReply, Context: w.id}
	w.e.Stats.ControlMessages[h.Kind-wire.FirstWindowKind]++
	w.e.transport.Send(t.peer, &h, buf, o)
}
