package p2p

import (
	"fmt"

	"github.com/fabrictest/fabrictest/mpi/match"
	"github.com/fabrictest/fabrictest/mpi/wire"
)

// Isend begins a send.
func (e *Engine) Isend(r *Request) {
	r.begin()
	if err := e.lost[r.Peer]; err != nil {
		r.Err, r.state = err, done
		return
	}
	e.names.add(r)
	if n := len(r.Buf); n <= e.cfg.EagerLimit {
		switch room := e.fabric.CanSend(r.Peer, n); {
		case r.state == done: // who looks for room may find that the peer is lost
			return
		case room:
			e.sendEagerly(r)
			return
		}
		e.Stats.FellBack++
	}
	e.Stats.Sent[Rendezvous].add(len(r.Buf))
	if e.cfg.Protocol == Speculative {
		e.sendSpeculatively(r)
		return
	}
	e.offer(r, 0)
}

func (r *Request) envelope() match.Envelope {
	return match.Envelope{Context: r.Context, Source: int32(r.Peer), Tag: r.Tag}
}

func (e *Engine) sendEagerly(r *Request) {
	e.Stats.Sent[Eager].add(len(r.Buf))
	h := wire.Header{Kind: wire.Eager, Context: r.Context, Tag: r.Tag}
	r.state = leaving
	switch r.Mode {
	case Synchronous:
		h.Flags |= wire.Sync
		h.Send = r.name
	case Ready:
		h.Flags |= wire.Ready
	}
	if e.cfg.Protocol == Speculative {
		e.eagerSent(r.envelope())
	}
	e.out, r.carried = h, true
	e.fabric.Send(r.Peer, &e.out, r.Buf, r)
}

// Sent says that the data of an eager send is the sender's again, or why it never
// left.
func (e *Engine) SendDone(r *Request, err error) {
	switch {
	case e.returned(r):
	case err != nil:
		e.fail(r, fmt.Errorf("rank %d: send: %w", r.Peer, err))
	case r.Mode == Synchronous && !r.acked:
		r.state = synced
	default:
		e.finish(r)
	}
}

// offer says that a message waits.
func (e *Engine) offer(r *Request, flags wire.Flags) {
	h := wire.Header{Kind: wire.RTS, Flags: flags, Context: r.Context, Tag: r.Tag, Size: uint64(len(r.Buf)), Send: r.name}
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
	r.state, r.since = offered, e.fabric.Now()
	e.word(r.Peer, &h)
}

// write takes a send's data to its receive, as far as that has room.
func (e *Engine) write(r *Request, h *wire.Header) {
	n := min(len(r.Buf), int(h.Size))
	then := wire.Header{Kind: wire.Done, Recv: h.Recv}
	if err := e.register(r, n); err != nil {
		e.word(r.Peer, &then) // the receiver must not wait for what does not come
		e.fail(r, err)
		return
	}
	r.state = moving
	if n == 0 {
		e.word(r.Peer, &then)
		e.finish(r)
		return
	}
	e.Stats.Words[wire.Done]++
	r.carried = true
	e.fabric.Write(r.Peer, r.region, n, h.Memory, &then, r)
}

// Wrote says that the data of a send has arrived, or why not.
func (e *Engine) WriteDone(r *Request, err error) {
	if e.returned(r) {
		return
	}
	if err != nil {
		e.fail(r, fmt.Errorf("rank %d: write: %w", r.Peer, err))
		return
	}
	e.finish(r)
}

// answered takes what a receiver says of one of our sends.
func (e *Engine) answered(peer int, h *wire.Header) error {
	r := e.names.get(h.Send)
	if r == nil || r.Peer != peer {
		return confused(peer, h, "we have sent no such message")
	}
	switch h.Kind {
	case wire.SyncAck:
		switch {
		case r.state == synced:
			e.finish(r)
		case r.state == leaving && r.Mode == Synchronous && !r.acked:
			r.acked = true // whoever carries its data still has it
		default:
			return confused(peer, h, "the message is not a synchronous one")
		}
	case wire.CTS:
		if r.state != offered || e.cfg.Protocol != RPUT {
			return confused(peer, h, "nothing is offered")
		}
		e.write(r, h)
	case wire.RTSAck:
		if r.state != offered {
			return confused(peer, h, "nothing is offered")
		}
		e.rtsAcked(r, h)
	}
	return nil
}

// doneCame says that data has been read from us, or written to us.
func (e *Engine) doneCame(peer int, h *wire.Header) error {
	r := e.names.get(h.Send)
	if h.Recv != 0 {
		r = e.names.get(h.Recv)
	}
	switch {
	case r == nil || r.Peer != peer && r.Source != peer:
		return confused(peer, h, "of no request of ours")
	case h.Recv != 0 && r.state == moving:
		e.received(r)
		return nil
	case h.Recv == 0 && r.state == offered && e.cfg.Protocol != RPUT:
		if e.cfg.Protocol == Speculative {
			e.read(r)
		}
		e.finish(r)
		return nil
	}
	return confused(peer, h, "the request is not under way")
}
