package p2p

import (
	"fmt"
	"time"

	"github.com/fabrictest/fabrictest/mpi/wire"
)

// Irecv starts a receive. It takes the first matching unexpected message, or is posted. Under the
// speculative protocol it first processes arrived messages (early progress), and a posted receive
// may send an RTR (ready to receive).
func (e *Engine) Irecv(r *Request) {
	r.reset()
	r.isRecv, r.startedAt = true, e.transport.Now()
	// An RTR needs a buffer, even if EagerLimit is negative: then an empty message is not eager.
	speculative := e.cfg.Protocol == Speculative && !r.Advertised && len(r.Buf) > max(e.cfg.EagerLimit, 0)
	if speculative && !e.cfg.NoEarlyProgress {
		e.earlyProgress()
	}
	e.requests.add(r)
	r.node.Envelope, r.node.Value = r.envelope(), r
	if n := e.unexpected.Match(r.node.Envelope); n != nil {
		msg := n.Value
		e.unexpected.Remove(n)
		e.deliverUnexpected(r, msg)
		return
	}
	if err := e.recvError(r); err != nil {
		e.fail(r, err)
		return
	}
	r.state = statePosted
	// Before the receive is posted, because maySendRTR looks at the earlier posted receives.
	sendRTR := speculative && e.maySendRTR(r.node.Envelope)
	e.posted.Add(&r.node)
	e.Stats.MaxPosted = max(e.Stats.MaxPosted, e.posted.Len())
	switch {
	case e.needsAdvertisement(r):
		e.advertise(r)
	case sendRTR:
		e.sendRTR(r)
	}
}

// Probe returns the source, tag and size of the first unexpected message that matches the envelope,
// without removing it. ok is false if there is none.
func (e *Engine) Probe(envelope Envelope) (source int, tag int32, size int, ok bool) {
	n := e.unexpected.Match(envelope)
	if n == nil {
		return 0, 0, 0, false
	}
	source, tag, size = n.Value.status()
	return source, tag, size, true
}

// status returns the source, the tag and the size of the message.
func (msg *unexpectedMessage) status() (source int, tag int32, size int) {
	if msg.header.Kind == wire.Eager {
		return msg.peer, msg.header.Tag, len(msg.data)
	}
	return msg.peer, msg.header.Tag, int(msg.header.Size)
}

// handleEager matches an eager message with a receive or queues it as unexpected. An RTR (ready to
// receive) that the receive has sent counts as mispredicted: only rendezvous messages use RTRs.
func (e *Engine) handleEager(peer int, h *wire.Header, data []byte) error {
	n := e.posted.Match(Envelope{Context: h.Context, Source: int32(peer), Tag: h.Tag})
	if n == nil {
		e.countNotReady(h)
		e.addUnexpected(peer, h, data)
		return nil
	}
	r := n.Value
	e.posted.Remove(n)
	e.noteMatch(r, e.noteArrival(peer, h))
	if r.sentRTR && !r.Advertised {
		e.Stats.Mispredicted++
		e.receiverState(n.Envelope).mispredicted++
	}
	e.deliver(r, peer, h, data, notAcked)
	return nil
}

// countNotReady counts ready sends whose receive was not posted.
func (e *Engine) countNotReady(h *wire.Header) {
	if h.Flags&wire.Ready != 0 {
		e.Stats.NotReady++
	}
}

// handleRTS matches an RTS (ready to send) with a receive or queues it as unexpected.
func (e *Engine) handleRTS(peer int, h *wire.Header) error {
	envelope := Envelope{Context: h.Context, Source: int32(peer), Tag: h.Tag}
	if e.cfg.Protocol == Speculative {
		e.applyRTRFlags(envelope, h.Flags)
	}
	n := e.posted.Match(envelope)
	if n == nil {
		e.countNotReady(h)
		e.addUnexpected(peer, h, nil)
		return nil
	}
	e.posted.Remove(n)
	e.noteMatch(n.Value, e.noteArrival(peer, h))
	e.deliver(n.Value, peer, h, nil, notAcked)
	return nil
}

// notAcked is the argument rtsAcked of deliver for a message that has just arrived.
const notAcked = false

// deliver gives a message to the receive that matched it. rtsAcked: its RTSAck was sent already.
func (e *Engine) deliver(r *Request, peer int, h *wire.Header, data []byte, rtsAcked bool) {
	r.Source, r.MatchedTag = peer, h.Tag
	if r.sentRTR && r.Advertised {
		e.revoke(r) // the message is of another size: its send has not waited
	}
	if h.Kind == wire.Eager {
		r.Size = len(data)
		copy(r.Buf, data)
		if h.Flags&wire.Sync != 0 {
			e.sendControl(peer, &wire.Header{Kind: wire.SyncAck, Send: h.Send})
		}
		e.finishRecv(r)
		return
	}
	if err := e.lost[peer]; err != nil { // the data of the message is at the lost peer
		e.fail(r, err)
		return
	}
	e.startTransfer(r, peer, h, rtsAcked)
}

// startTransfer starts the data transfer of an RTS: for RPUT by a CTS to the sender, which writes,
// else by an RDMA read.
func (e *Engine) startTransfer(r *Request, peer int, h *wire.Header, rtsAcked bool) {
	var waited time.Duration // since the receive was posted; 0 if the RTS came first
	if r.state == statePosted {
		waited = e.transport.Now() - r.startedAt
	}
	r.Size = int(h.Size)
	n := min(r.Size, len(r.Buf))
	r.state, r.sendID = stateTransferring, h.Send
	if r.Err = e.register(r, n); r.Err != nil {
		n = 0 // complete the sender without a transfer
	}
	if e.cfg.Protocol == RPUT {
		cts := wire.Header{Kind: wire.CTS, Send: h.Send, Recv: r.id, Size: uint64(n)}
		if n > 0 {
			cts.Memory = r.region.Memory()
		}
		e.sendControl(peer, &cts)
		return
	}
	r.doneFlags = h.Flags & wire.NoRTSAck
	if e.cfg.Protocol == Speculative && !r.sentRTR && !rtsAcked && r.doneFlags == 0 {
		// Without an RTSAck the sender would take the RTR of a later receive for the answer to this
		// RTS. An RTR that r has sent is that answer itself. With NoRTSAck the sender takes no RTR.
		e.sendControl(peer, &wire.Header{Kind: wire.RTSAck, Send: h.Send, PostedFor: uint64(waited)})
	}
	if n == 0 {
		e.ReadDone(r, nil)
		return
	}
	r.inTransport = true
	e.transport.Read(peer, wire.Transfer{Local: r.region, N: n, Remote: h.Memory}, r)
}

// ReadDone completes the RDMA read of a receive, and sends Done to the sender.
func (e *Engine) ReadDone(r *Request, err error) {
	if e.finishIfFailed(r) {
		return
	}
	if err != nil {
		e.fail(r, fmt.Errorf("rank %d: read: %w", r.Source, err))
		return
	}
	e.sendControl(r.Source, &wire.Header{
		Kind: wire.Done, Flags: r.doneFlags, Send: r.sendID, PostedFor: uint64(e.transport.Now() - r.startedAt),
	})
	e.finishRecv(r)
}

// finishRecv completes a receive whose data has arrived.
func (e *Engine) finishRecv(r *Request) {
	if r.Err == nil && r.Size > len(r.Buf) {
		r.Err = fmt.Errorf("rank %d: %w: a message of %d bytes for a buffer of %d", r.Source, ErrTruncated, r.Size, len(r.Buf))
	}
	e.finish(r)
}

// Cancel cancels a posted receive. If the receive has sent an RTR (ready-to-receive message),
// Cancel asks the peer not to use it: the receive ends when the peer agrees or the message arrives.
func (e *Engine) Cancel(r *Request) {
	switch {
	case r.state != statePosted || r.revokingRTR:
	case r.sentRTR:
		r.revokingRTR = true
		e.revoke(r)
	default:
		e.finishCancel(r)
	}
}

// finishCancel ends a cancelled receive, with the error for which it was cancelled if any.
func (e *Engine) finishCancel(r *Request) {
	if r.cancelErr != nil {
		e.fail(r, r.cancelErr)
		return
	}
	e.posted.Remove(&r.node)
	r.Cancelled = true
	e.finish(r)
}

// Message is a message that Improbe has removed from the unexpected queue.
type Message struct{ unexpected *unexpectedMessage }

// Status returns the source, the tag and the size of the message.
func (m *Message) Status() (source int, tag int32, size int) { return m.unexpected.status() }

// Improbe removes and returns the first unexpected message that matches the envelope, or nil.
func (e *Engine) Improbe(envelope Envelope) *Message {
	n := e.unexpected.Match(envelope)
	if n == nil {
		return nil
	}
	msg := n.Value
	e.unexpected.Remove(n)
	if e.cfg.Protocol == Speculative && msg.header.Kind == wire.RTS && msg.header.Flags&wire.NoRTSAck == 0 && e.lost[msg.peer] == nil {
		// Acknowledge now, not in Imrecv: a receive posted in between may send an RTR, which
		// the sender would take for an answer to this RTS.
		msg.rtsAcked = true
		e.sendControl(msg.peer, &wire.Header{Kind: wire.RTSAck, Send: msg.header.Send})
	}
	return &Message{msg}
}

// Imrecv starts to receive a message of Improbe. A message can be received once.
func (e *Engine) Imrecv(r *Request, m *Message) {
	msg := m.unexpected
	m.unexpected = nil
	r.Context, r.Peer, r.Tag = msg.header.Context, msg.peer, msg.header.Tag
	r.reset()
	r.isRecv, r.startedAt = true, e.transport.Now()
	e.requests.add(r)
	e.deliverUnexpected(r, msg)
}

// deliverUnexpected gives a message that has left the unexpected queue to the receive r.
func (e *Engine) deliverUnexpected(r *Request, msg *unexpectedMessage) {
	if n := min(len(msg.data), len(r.Buf)); n > 0 && e.Copied != nil {
		e.Copied(n)
	}
	e.noteMatch(r, msg.arrival)
	e.deliver(r, msg.peer, &msg.header, msg.data, msg.rtsAcked)
	e.freeUnexpected(msg)
}
