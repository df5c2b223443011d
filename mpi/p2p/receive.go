package p2p

import (
	"fmt"
	"time"

	"github.com/fabrictest/fabrictest/mpi/match"
	"github.com/fabrictest/fabrictest/mpi/wire"
)

// Irecv begins a receive.
func (e *Engine) Irecv(r *Request) {
	r.reset()
	r.isRecv = true
	mayPredict := e.cfg.Protocol == Speculative && len(r.Buf) > max(e.cfg.EagerLimit, 0) // there must be memory to speak of
	if mayPredict && !e.cfg.NoEarlyProgress {
		e.earlyProgress()
	}
	e.requests.add(r)
	r.node = match.Node[*Request]{Envelope: r.envelope(), Value: r}
	if n := e.unexpected.Match(r.node.Envelope); n != nil {
		a := n.Value
		e.unexpected.Remove(n)
		e.deliver(r, a.peer, &a.header, a.data, false)
		e.freeUnexpected(a)
		return
	}
	if err := e.recvError(r); err != nil {
		e.fail(r, err)
		return
	}
	r.state, r.startedAt = statePosted, e.transport.Now()
	// Before it is posted: it is not behind itself.
	sendRTR := mayPredict && e.maySendRTR(r.node.Envelope)
	e.posted.Add(&r.node)
	e.Stats.MaxPosted = max(e.Stats.MaxPosted, e.posted.Len())
	if sendRTR {
		e.sendRTR(r)
	}
}

// Probe returns what a receive with this envelope would take now: the rank, the tag
// and the size of a message. It is not taken.
func (e *Engine) Probe(envelope match.Envelope) (source int, tag int32, size int, ok bool) {
	n := e.unexpected.Match(envelope)
	if n == nil {
		return 0, 0, 0, false
	}
	source, tag, size = n.Value.status()
	return source, tag, size, true
}

// look says whose a message is, what it is about, and how long it is.
func (a *unexpectedMessage) status() (source int, tag int32, size int) {
	if a.header.Kind == wire.Eager {
		return a.peer, a.header.Tag, len(a.data)
	}
	return a.peer, a.header.Tag, int(a.header.Size)
}

// eagerCame takes a message with its data.
func (e *Engine) handleEager(peer int, h *wire.Header, data []byte) error {
	n := e.posted.Match(match.Envelope{Context: h.Context, Source: int32(peer), Tag: h.Tag})
	if n == nil {
		e.countNotReady(h)
		e.addUnexpected(peer, h, data)
		return nil
	}
	r := n.Value
	e.posted.Remove(n)
	if r.sentRTR {
		e.mispredicted(n.Envelope)
	}
	e.deliver(r, peer, h, data, false)
	return nil
}

// late counts messages whose sender was wrong to say that the receive is there.
func (e *Engine) countNotReady(h *wire.Header) {
	if h.Flags&wire.Ready != 0 {
		e.Stats.NotReady++
	}
}

// rtsCame takes the offer of a message.
func (e *Engine) handleRTS(peer int, h *wire.Header) error {
	envelope := match.Envelope{Context: h.Context, Source: int32(peer), Tag: h.Tag}
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
	e.deliver(n.Value, peer, h, nil, false)
	return nil
}

// serve gives a message to its receive. Heard says that its sender knows already
// that no RTR is to be expected for it.
func (e *Engine) deliver(r *Request, peer int, h *wire.Header, data []byte, recvKnown bool) {
	r.Source, r.MatchedTag = peer, h.Tag
	if h.Kind == wire.Eager {
		e.deliverEager(r, peer, h, data)
		return
	}
	if err := e.lost[peer]; err != nil { // only what came whole needs its sender no more
		e.fail(r, err)
		return
	}
	e.startTransfer(r, peer, h, recvKnown)
}

// copyIn gives a receive what came with its data.
func (e *Engine) deliverEager(r *Request, peer int, h *wire.Header, data []byte) {
	r.Size = len(data)
	copy(r.Buf, data)
	if h.Flags&wire.Sync != 0 {
		e.sendControl(peer, &wire.Header{Kind: wire.SyncAck, Send: h.Send})
	}
	e.finishRecv(r)
}

// fetch has the data of an RTS moved to a receive: by the sender, or from it.
func (e *Engine) startTransfer(r *Request, peer int, h *wire.Header, recvKnown bool) {
	var waited time.Duration // for which the receive has waited
	if r.state == statePosted {
		waited = e.transport.Now() - r.startedAt
	}
	r.Size = int(h.Size)
	n := min(r.Size, len(r.Buf))
	r.state, r.sendID = stateTransferring, h.Send
	if r.Err = e.register(r, n); r.Err != nil {
		n = 0 // the sender goes on without us
	}
	if e.cfg.Protocol == RPUT {
		cts := wire.Header{Kind: wire.CTS, Send: h.Send, Recv: r.id, Size: uint64(n)}
		if n > 0 {
			cts.Memory = r.region.Memory()
		}
		e.sendControl(peer, &cts)
		return
	}
	if e.cfg.Protocol == Speculative && !r.sentRTR && !recvKnown {
		// Its sender would otherwise wait for our RTR, and take another's for it.
		e.sendControl(peer, &wire.Header{Kind: wire.RTSAck, Send: h.Send, PostedFor: uint64(waited)})
	}
	if n == 0 {
		e.ReadDone(r, nil)
		return
	}
	r.inTransport = true
	e.transport.Read(peer, r.region, n, h.Memory, r)
}

// Read says that the data of a receive is there, or why not.
func (e *Engine) ReadDone(r *Request, err error) {
	if e.bufferReturned(r) {
		return
	}
	if err != nil {
		e.fail(r, fmt.Errorf("rank %d: read: %w", r.Source, err))
		return
	}
	e.sendControl(r.Source, &wire.Header{Kind: wire.Done, Send: r.sendID})
	e.finishRecv(r)
}

// received ends a receive that has what it can have.
func (e *Engine) finishRecv(r *Request) {
	if r.Err == nil && r.Size > len(r.Buf) {
		r.Err = fmt.Errorf("rank %d: %w: %d bytes for %d", r.Source, ErrTruncated, r.Size, len(r.Buf))
	}
	e.finish(r)
}

// Cancel ends a receive that no message has come for. One whose RTR is out ends
// when its peer has said that it will not be used, or with the message.
func (e *Engine) Cancel(r *Request) {
	switch {
	case r.state != statePosted || r.revokingRTR:
	case r.sentRTR:
		r.revokingRTR = true
		e.sendControl(r.Peer, &wire.Header{Kind: wire.Revoke, Context: r.Context, Tag: r.Tag, Recv: r.id})
	default:
		e.finishCancel(r)
	}
}

func (e *Engine) finishCancel(r *Request) {
	if r.cancelErr != nil {
		e.fail(r, r.cancelErr)
		return
	}
	e.posted.Remove(&r.node)
	r.Cancelled = true
	e.finish(r)
}
