package p2p

import "github.com/fabrictest/fabrictest/mpi/wire"

// A request with the field Advertised is one whose peer certainly takes part, as in a step of a collective
// operation: the receive predicts nothing when it sends its RTR (ready to receive), and the send needs
// no RTS. It waits for the RTR, which shows that the peer has arrived, and writes. The Done after the data
// announces the message, so that an RTRAck is not needed either. Messages up to the eager limit are sent
// eagerly, and are announced by their data.
//
// Such a send is announced late. So while it waits, the program must not start another send with its
// envelope that is not advertised, or that is small.

// advertisements are the sends that wait for an RTR, and the RTRs that no send has used. The envelopes
// have the receiving rank as Source.
type advertisements struct {
	awaiting   Posted[*Request]
	advertised Unexpected[*unexpectedMessage]
}

// needsAdvertisement reports whether a send waits for an RTR, or a receive sends one, without prediction.
// An RTR needs a buffer, even if EagerLimit is negative.
func (e *Engine) needsAdvertisement(r *Request) bool {
	return r.Advertised && e.AdvertisesFor(len(r.Buf))
}

// AdvertisesFor reports whether an advertised send of n bytes waits for an RTR.
func (e *Engine) AdvertisesFor(n int) bool { return n > max(e.cfg.EagerLimit, 0) }

// Started reports whether a send has been announced, or a receive posted. Only a send that waits for an
// RTR has not.
func (r *Request) Started() bool { return r.state != stateAwaitingRTR }

// sendAdvertised writes to the buffer of the first RTR, or waits for one.
func (e *Engine) sendAdvertised(r *Request) {
	if err := e.failedContexts[r.Context]; err != nil { // the peer may never post the receive
		e.fail(r, err)
		return
	}
	if err := e.register(r, len(r.Buf)); err != nil {
		e.fail(r, err)
		return
	}
	r.node.Envelope, r.node.Value = r.envelope(), r
	n := e.advertised.Match(r.node.Envelope)
	if n == nil {
		r.state = stateAwaitingRTR
		e.awaiting.Add(&r.node)
		return
	}
	rtr := n.Value.header
	e.removeAdvertisement(n)
	e.write(r, &rtr)
}

// Announce sends the RTS of a send that waits for an RTR, because its receive may have sent none.
func (e *Engine) Announce(r *Request) {
	if r.state == stateAwaitingRTR {
		const noFlags = 0
		e.awaiting.Remove(&r.node)
		e.sendRTS(r, noFlags)
	}
}

// removeAdvertisement removes an RTR.
func (e *Engine) removeAdvertisement(n *Node[*unexpectedMessage]) {
	e.advertised.Remove(n)
	e.freeUnexpected(n.Value)
}

// advertise sends the RTR of a posted receive. Without a registration it has no room: the sender then
// completes without a transfer.
func (e *Engine) advertise(r *Request) {
	h := wire.Header{Kind: wire.RTR, Flags: wire.Advertised, Context: r.Context, Tag: r.Tag, Recv: r.id}
	if r.Err = e.register(r, len(r.Buf)); r.Err == nil {
		h.Size, h.Memory = uint64(len(r.Buf)), r.region.Memory()
	}
	r.sentRTR = true
	e.sendControl(r.Peer, &h)
}

// revoke asks the sender not to use the RTR of a receive.
func (e *Engine) revoke(r *Request) {
	h := wire.Header{Kind: wire.Revoke, Context: r.Context, Tag: r.Tag, Recv: r.id}
	if r.Advertised {
		h.Flags = wire.Advertised
	}
	e.sendControl(r.Peer, &h)
}

// handleAdvertisement starts the write of the first send that waits for the RTR, or queues the RTR.
func (e *Engine) handleAdvertisement(peer int, h *wire.Header) {
	e.Stats.Advertisements++
	n := e.awaiting.Match(Envelope{Context: h.Context, Source: int32(peer), Tag: h.Tag})
	if n == nil {
		e.advertised.Add(&e.allocUnexpected(peer, h, nil).Node)
		return
	}
	e.awaiting.Remove(n)
	e.write(n.Value, h)
}

// handleAdvertisementRevoked removes an RTR and agrees to that, unless a send has used it: then the Done
// after its data is the reply.
func (e *Engine) handleAdvertisementRevoked(peer int, h *wire.Header) {
	for n := e.advertised.Match(Envelope{Context: h.Context, Source: int32(peer), Tag: h.Tag}); n != nil; n = n.next() {
		if n.Value.header.Recv == h.Recv {
			e.removeAdvertisement(n)
			e.sendControl(peer, &wire.Header{Kind: wire.Revoked, Recv: h.Recv})
			return
		}
	}
}

// handleAdvertisedDone completes a receive: its data has been written.
func (e *Engine) handleAdvertisedDone(peer int, h *wire.Header) error {
	r := e.requests.get(h.Recv)
	if r == nil || r.Peer != peer || r.state != statePosted || !e.needsAdvertisement(r) {
		return protocolError(peer, h, "no such advertised receive")
	}
	e.posted.Remove(&r.node)
	r.Source, r.MatchedTag, r.Size = peer, r.Tag, int(h.Size)
	e.finishRecv(r)
	return nil
}

// failAwaiting fails the sends of a context that wait for an RTR.
func (e *Engine) failAwaiting(context uint32, cause error) {
	for _, r := range e.requests.all() {
		if r.state == stateAwaitingRTR && r.Context == context {
			e.fail(r, cause)
		}
	}
}
