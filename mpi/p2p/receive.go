package p2p

import (
	"fmt"
	"time"

	"github.com/fabrictest/fabrictest/mpi/match"
	"github.com/fabrictest/fabrictest/mpi/wire"
)

// Irecv begins a receive.
func (e *Engine) Irecv(r *Request) {
	r.begin()
	r.receives = true
	speculates := e.cfg.Protocol == Speculative && len(r.Buf) > max(e.cfg.EagerLimit, 0) // there must be memory to speak of
	if speculates && !e.cfg.NoEarlyProgress {
		e.early()
	}
	e.names.add(r)
	r.node = match.Node[*Request]{Envelope: r.envelope(), Value: r}
	if n := e.unexpected.Match(r.node.Envelope); n != nil {
		a := n.Value
		e.unexpected.Remove(n)
		e.serve(r, a.peer, &a.header, a.data, false)
		e.forget(a)
		return
	}
	if err := e.unserved(r); err != nil {
		e.fail(r, err)
		return
	}
	r.state, r.since = posted, e.fabric.Now()
	// Before it is posted: it is not behind itself.
	speak := speculates && e.maySpeak(r.node.Envelope)
	e.posted.Add(&r.node)
	e.Stats.MaxPosted = max(e.Stats.MaxPosted, e.posted.Len())
	if speak {
		e.speak(r)
	}
}

// Probe returns what a receive with this envelope would take now: the rank, the tag
// and the size of a message. It is not taken.
func (e *Engine) Probe(envelope match.Envelope) (source int, tag int32, size int, ok bool) {
	n := e.unexpected.Match(envelope)
	if n == nil {
		return 0, 0, 0, false
	}
	source, tag, size = n.Value.look()
	return source, tag, size, true
}

// look says whose a message is, what it is about, and how long it is.
func (a *arrival) look() (source int, tag int32, size int) {
	if a.header.Kind == wire.Eager {
		return a.peer, a.header.Tag, len(a.data)
	}
	return a.peer, a.header.Tag, int(a.header.Size)
}

// eagerCame takes a message with its data.
func (e *Engine) eagerCame(peer int, h *wire.Header, data []byte) error {
	n := e.posted.Match(match.Envelope{Context: h.Context, Source: int32(peer), Tag: h.Tag})
	if n == nil {
		e.late(h)
		e.expectLater(peer, h, data)
		return nil
	}
	r := n.Value
	e.posted.Remove(n)
	if r.speaks {
		e.mispredicted(n.Envelope)
	}
	e.serve(r, peer, h, data, false)
	return nil
}

// late counts messages whose sender was wrong to say that the receive is there.
func (e *Engine) late(h *wire.Header) {
	if h.Flags&wire.Ready != 0 {
		e.Stats.NotReady++
	}
}

// rtsCame takes the offer of a message.
func (e *Engine) rtsCame(peer int, h *wire.Header) error {
	envelope := match.Envelope{Context: h.Context, Source: int32(peer), Tag: h.Tag}
	if e.cfg.Protocol == Speculative {
		e.heed(envelope, h.Flags)
	}
	n := e.posted.Match(envelope)
	if n == nil {
		e.late(h)
		e.expectLater(peer, h, nil)
		return nil
	}
	e.posted.Remove(n)
	e.serve(n.Value, peer, h, nil, false)
	return nil
}

// serve gives a message to its receive. Heard says that its sender knows already
// that no RTR is to be expected for it.
func (e *Engine) serve(r *Request, peer int, h *wire.Header, data []byte, heard bool) {
	r.Source, r.MatchedTag = peer, h.Tag
	if h.Kind == wire.Eager {
		e.copyIn(r, peer, h, data)
		return
	}
	if err := e.lost[peer]; err != nil { // only what came whole needs its sender no more
		e.fail(r, err)
		return
	}
	e.fetch(r, peer, h, heard)
}

// copyIn gives a receive what came with its data.
func (e *Engine) copyIn(r *Request, peer int, h *wire.Header, data []byte) {
	r.Size = len(data)
	copy(r.Buf, data)
	if h.Flags&wire.Sync != 0 {
		e.word(peer, &wire.Header{Kind: wire.SyncAck, Send: h.Send})
	}
	e.received(r)
}

// fetch has the data of an RTS moved to a receive: by the sender, or from it.
func (e *Engine) fetch(r *Request, peer int, h *wire.Header, heard bool) {
	var early time.Duration // for which the receive has waited
	if r.state == posted {
		early = e.fabric.Now() - r.since
	}
	r.Size = int(h.Size)
	n := min(r.Size, len(r.Buf))
	r.state, r.asker = moving, h.Send
	if r.Err = e.register(r, n); r.Err != nil {
		n = 0 // the sender goes on without us
	}
	if e.cfg.Protocol == RPUT {
		cts := wire.Header{Kind: wire.CTS, Send: h.Send, Recv: r.name, Size: uint64(n)}
		if n > 0 {
			cts.Memory = r.region.Memory()
		}
		e.word(peer, &cts)
		return
	}
	if e.cfg.Protocol == Speculative && !r.speaks && !heard {
		// Its sender would otherwise wait for our RTR, and take another's for it.
		e.word(peer, &wire.Header{Kind: wire.RTSAck, Send: h.Send, PostedFor: uint64(early)})
	}
	if n == 0 {
		e.ReadDone(r, nil)
		return
	}
	r.carried = true
	e.fabric.Read(peer, r.region, n, h.Memory, r)
}

// Read says that the data of a receive is there, or why not.
func (e *Engine) ReadDone(r *Request, err error) {
	if e.returned(r) {
		return
	}
	if err != nil {
		e.fail(r, fmt.Errorf("rank %d: read: %w", r.Source, err))
		return
	}
	e.word(r.Source, &wire.Header{Kind: wire.Done, Send: r.asker})
	e.received(r)
}

// received ends a receive that has what it can have.
func (e *Engine) received(r *Request) {
	if r.Err == nil && r.Size > len(r.Buf) {
		r.Err = fmt.Errorf("rank %d: %w: %d bytes for %d", r.Source, ErrTruncated, r.Size, len(r.Buf))
	}
	e.finish(r)
}

// Cancel ends a receive that no message has come for. One whose RTR is out ends
// when its peer has said that it will not be used, or with the message.
func (e *Engine) Cancel(r *Request) {
	switch {
	case r.state != posted || r.revoking:
	case r.speaks:
		r.revoking = true
		e.word(r.Peer, &wire.Header{Kind: wire.Revoke, Context: r.Context, Tag: r.Tag, Recv: r.name})
	default:
		e.cancelled(r)
	}
}

func (e *Engine) cancelled(r *Request) {
	if r.doomed != nil {
		e.fail(r, r.doomed)
		return
	}
	e.posted.Remove(&r.node)
	r.Cancelled = true
	e.finish(r)
}
