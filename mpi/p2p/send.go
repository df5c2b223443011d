package p2p

import (
	"fmt"

	"github.com/fabrictest/fabrictest/mpi/match"
	"github.com/fabrictest/fabrictest/mpi/wire"
)

// Isend begins a send.
func (e *Engine) Isend(r *Request) {
	r.reset()
	if err := e.lost[r.Peer]; err != nil {
		r.Err, r.state = err, stateDone
		return
	}
	e.requests.add(r)
	if n := len(r.Buf); n <= e.cfg.EagerLimit {
		switch room := e.transport.CanSend(r.Peer, n); {
		case r.state == stateDone: // who looks for room may find that the peer is lost
			return
		case room:
			e.sendEager(r)
			return
		}
		e.Stats.FellBack++
	}
	e.Stats.Sent[Rendezvous].add(len(r.Buf))
	if e.cfg.Protocol == Speculative {
		e.sendSpeculative(r)
		return
	}
	e.sendRTS(r, 0)
}

func (r *Request) envelope() match.Envelope {
	return match.Envelope{Context: r.Context, Source: int32(r.Peer), Tag: r.Tag}
}

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
	if e.cfg.Protocol == Speculative {
		e.noteEagerSend(r.envelope())
	}
	e.sendHeader, r.inTransport = h, true
	e.transport.Send(r.Peer, &e.sendHeader, r.Buf, r)
}

// Sent says that the data of an eager send is the sender's again, or why it never
// left.
func (e *Engine) SendDone(r *Request, err error) {
	switch {
	case e.bufferReturned(r):
	case err != nil:
		e.fail(r, fmt.Errorf("rank %d: send: %w", r.Peer, err))
	case r.Mode == Synchronous && !r.syncAcked:
		r.state = stateAwaitSyncAck
	default:
		e.finish(r)
	}
}

// offer says that a message waits.
func (e *Engine) sendRTS(r *Request, flags wire.Flags) {
	h := wire.Header{Kind: wire.RTS, Flags: flags, Context: r.Context, Tag: r.Tag, Size: uint64(len(r.Buf)), Send: r.id}
	if r.Mode == Ready {
		h.Flags |= wire.Ready
	}
	if e.cfg.Protocol != RPUT { // the receiver reads
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

// write takes a send's data to its receive, as far as that has room.
func (e *Engine) write(r *Request, h *wire.Header) {
	n := min(len(r.Buf), int(h.Size))
	then := wire.Header{Kind: wire.Done, Recv: h.Recv}
	if err := e.register(r, n); err != nil {
		e.sendControl(r.Peer, &then) // the receiver must not wait for what does not come
		e.fail(r, err)
		return
	}
	r.state = stateTransferring
	if n == 0 {
		e.sendControl(r.Peer, &then)
		e.finish(r)
		return
	}
	e.Stats.Words[wire.Done]++
	r.inTransport = true
	e.transport.Write(r.Peer, r.region, n, h.Memory, &then, r)
}

// Wrote says that the data of a send has arrived, or why not.
func (e *Engine) WriteDone(r *Request, err error) {
	if e.bufferReturned(r) {
		return
	}
	if err != nil {
		e.fail(r, fmt.Errorf("rank %d: write: %w", r.Peer, err))
		return
	}
	e.finish(r)
}

// answered takes what a receiver says of one of our sends.
func (e *Engine) handleSendReply(peer int, h *wire.Header) error {
	r := e.requests.get(h.Send)
	if r == nil || r.Peer != peer {
		return protocolError(peer, h, "we have sent no such message")
	}
	switch h.Kind {
	case wire.SyncAck:
		switch {
		case r.state == stateAwaitSyncAck:
			e.finish(r)
		case r.state == stateEagerSending && r.Mode == Synchronous && !r.syncAcked:
			r.syncAcked = true // whoever carries its data still has it
		default:
			return protocolError(peer, h, "the message is not a synchronous one")
		}
	case wire.CTS:
		if r.state != stateRTSSent || e.cfg.Protocol != RPUT {
			return protocolError(peer, h, "nothing is offered")
		}
		e.write(r, h)
	case wire.RTSAck:
		if r.state != stateRTSSent {
			return protocolError(peer, h, "nothing is offered")
		}
		e.handleRTSAck(r, h)
	}
	return nil
}

// doneCame says that data has been read from us, or written to us.
func (e *Engine) handleDone(peer int, h *wire.Header) error {
	r := e.requests.get(h.Send)
	if h.Recv != 0 {
		r = e.requests.get(h.Recv)
	}
	switch {
	case r == nil || r.Peer != peer && r.Source != peer:
		return protocolError(peer, h, "of no request of ours")
	case h.Recv != 0 && r.state == stateTransferring:
		e.finishRecv(r)
		return nil
	case h.Recv == 0 && r.state == stateRTSSent && e.cfg.Protocol != RPUT:
		if e.cfg.Protocol == Speculative {
			e.rtsRead(r)
		}
		e.finish(r)
		return nil
	}
	return protocolError(peer, h, "the request is not under way")
}
