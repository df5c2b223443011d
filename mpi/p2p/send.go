package p2p

import (
	"fmt"

	"github.com/fabrictest/fabrictest/mpi/wire"
)

// Isend starts a send: eagerly if the message is small and the transport has credit, else by a
// rendezvous protocol. With the protocol Speculative, the receiver may have sent an RTR (ready to
// receive) before it knows of the message. A send to a lost peer completes at once with an error.
func (e *Engine) Isend(r *Request) {
	r.reset()
	if err := e.lost[r.Peer]; err != nil {
		r.Err, r.state = err, stateDone
		return
	}
	e.requests.add(r)
	if n := len(r.Buf); n <= e.cfg.EagerLimit {
		switch canSend := e.transport.CanSend(r.Peer, n); {
		case r.state == stateDone: // CanSend may detect the loss of the peer
			return
		case canSend:
			e.sendEager(r)
			return
		}
		e.Stats.CreditFallbacks++
	}
	e.Stats.Sent[Rendezvous].add(len(r.Buf))
	if e.needsAdvertisement(r) {
		e.sendAdvertised(r)
		return
	}
	if e.cfg.Protocol == Speculative {
		e.sendSpeculative(r)
		return
	}
	const noFlags = 0
	e.sendRTS(r, noFlags)
}

// envelope returns the envelope of a receive or, with the receiver as Source, of a send.
func (r *Request) envelope() Envelope {
	return Envelope{Context: r.Context, Source: int32(r.Peer), Tag: r.Tag}
}

// sendEager sends a message eagerly. The buffer is in use until SendDone.
func (e *Engine) sendEager(r *Request) {
	e.Stats.Sent[Eager].add(len(r.Buf))
	h := wire.Header{Kind: wire.Eager, Context: r.Context, Tag: r.Tag}
	r.state = stateEagerSending
	switch r.Mode {
	case Synchronous:
		h.Flags |= wire.Sync
		h.Send = r.id
	case Ready:
		h.Flags |= wire.Ready
	}
	if e.cfg.Protocol == Speculative && !r.Advertised {
		e.recordEagerSend(r.envelope())
	}
	e.sendHeader, r.inTransport = h, true
	e.transport.Send(r.Peer, &e.sendHeader, r.Buf, r)
}

// SendDone is called when the transport no longer uses the buffer of an eager send. err is set if
// the message was not sent.
func (e *Engine) SendDone(r *Request, err error) {
	switch {
	case e.finishIfFailed(r):
	case err != nil:
		e.fail(r, fmt.Errorf("rank %d: send: %w", r.Peer, err))
	case r.Mode == Synchronous && !r.syncAcked:
		r.state = stateAwaitSyncAck
	default:
		e.finish(r)
	}
}

// sendRTS sends the RTS of a send. Unless the sender will write the data (protocol RPUT), it
// registers the buffer and includes its address, from which the receiver reads.
func (e *Engine) sendRTS(r *Request, flags wire.Flags) {
	h := wire.Header{Kind: wire.RTS, Flags: flags, Context: r.Context, Tag: r.Tag, Size: uint64(len(r.Buf)), Send: r.id}
	if r.Mode == Ready {
		h.Flags |= wire.Ready
	}
	if e.cfg.Protocol != RPUT {
		if err := e.register(r, len(r.Buf)); err != nil {
			e.fail(r, err)
			return
		}
		if r.region != nil {
			h.Memory = r.region.Memory()
		}
	}
	r.state, r.startedAt = stateRTSSent, e.transport.Now()
	e.sendControl(r.Peer, &h)
}

// write writes the data of a send to the receive buffer that h, a CTS or an RTR, describes. A Done
// to the receiver follows the data.
func (e *Engine) write(r *Request, h *wire.Header) {
	n := min(len(r.Buf), int(h.Size))
	done := wire.Header{Kind: wire.Done, Flags: h.Flags & wire.Advertised, Recv: h.Recv}
	if err := e.register(r, n); err != nil {
		e.sendControl(r.Peer, &done) // complete the receiver without data
		e.fail(r, err)
		return
	}
	r.state, done.Size = stateTransferring, uint64(len(r.Buf))
	if n == 0 {
		e.sendControl(r.Peer, &done)
		e.finish(r)
		return
	}
	e.Stats.ControlMessages[wire.Done]++ // the transport sends it after the write
	r.inTransport = true
	e.transport.Write(r.Peer, wire.Transfer{Local: r.region, N: n, Remote: h.Memory, Then: &done}, r)
}

// WriteDone completes the RDMA write of a send.
func (e *Engine) WriteDone(r *Request, err error) {
	if e.finishIfFailed(r) {
		return
	}
	if err != nil {
		e.fail(r, fmt.Errorf("rank %d: write: %w", r.Peer, err))
		return
	}
	e.finish(r)
}

// handleSendReply handles a receiver's reply to a send: SyncAck, CTS or RTSAck.
func (e *Engine) handleSendReply(peer int, h *wire.Header) error {
	r := e.requests.get(h.Send)
	if r == nil || r.Peer != peer {
		return protocolError(peer, h, "no such send")
	}
	switch h.Kind {
	case wire.SyncAck:
		switch {
		case r.state == stateAwaitSyncAck:
			e.finish(r)
		case r.state == stateEagerSending && r.Mode == Synchronous && !r.syncAcked:
			r.syncAcked = true // SendDone is outstanding
		default:
			return protocolError(peer, h, "the send is not synchronous")
		}
	case wire.CTS:
		if r.state != stateRTSSent || e.cfg.Protocol != RPUT {
			return protocolError(peer, h, "no RTS was sent")
		}
		e.write(r, h)
	case wire.RTSAck:
		if r.state != stateRTSSent {
			return protocolError(peer, h, "no RTS was sent")
		}
		e.handleRTSAck(r, h)
	}
	return nil
}

// handleDone handles the end of an RDMA read from this rank, or of a write to it (h.Recv is set).
func (e *Engine) handleDone(peer int, h *wire.Header) error {
	if h.Flags&wire.Advertised != 0 {
		return e.handleAdvertisedDone(peer, h)
	}
	r := e.requests.get(h.Send)
	if h.Recv != 0 {
		r = e.requests.get(h.Recv)
	}
	switch {
	case r == nil || r.Peer != peer && r.Source != peer:
		return protocolError(peer, h, "no such request")
	case h.Recv != 0 && r.state == stateTransferring:
		e.finishRecv(r)
		return nil
	case h.Recv == 0 && r.state == stateRTSSent && e.cfg.Protocol != RPUT:
		if e.cfg.Protocol == Speculative {
			e.handleReadDone(r, h)
		}
		e.finish(r)
		return nil
	}
	return protocolError(peer, h, "the request has no transfer")
}
