package p2p

import (
	"maps"

	"github.com/fabrictest/fabrictest/mpi/wire"
)

// receiverState tells whether receives of an envelope may send RTRs (ready-to-receive messages).
type receiverState struct {
	rtrStopped   bool // the sender wants no RTRs
	mispredicted int  // consecutive RTRs for messages that came eagerly
}

// receiverState returns the state that decides whether receives of an envelope send RTRs
// (ready-to-receive messages), and creates it if needed. A full table first drops the states of
// envelopes whose sender takes RTRs. If it stays full, the new state is not stored, and receives of
// the envelope send no RTRs.
func (e *Engine) receiverState(envelope Envelope) *receiverState {
	s := e.receiverStates[envelope]
	if s == nil {
		s = new(receiverState)
		if len(e.receiverStates) >= e.maxEnvelopes {
			maps.DeleteFunc(e.receiverStates, func(_ Envelope, s *receiverState) bool { return !s.rtrStopped })
		}
		if len(e.receiverStates) < e.maxEnvelopes {
			e.receiverStates[envelope] = s
		}
	}
	return s
}

// applyRTRFlags applies the flags StopRTR and ResumeRTR of a received RTS (ready to send). Any RTS
// ends a series of mispredicted RTRs (ready to receive). A sender that stops RTRs uses none of the
// outstanding ones, so the posted receives count as receives without an RTR.
func (e *Engine) applyRTRFlags(envelope Envelope, flags wire.Flags) {
	if s := e.receiverStates[envelope]; s != nil {
		s.mispredicted = 0
	}
	switch {
	case flags&wire.StopRTR != 0:
		e.receiverState(envelope).rtrStopped = true
		for n := e.posted.Last(envelope); n != nil && n.Value.sentRTR; n = n.prev() {
			n.Value.sentRTR = false
		}
	case flags&wire.ResumeRTR != 0:
		delete(e.receiverStates, envelope)
	}
}

// maySendRTR reports whether a receive that is about to be posted may send an RTR (ready-to-receive
// message). It may not if the source or tag is a wildcard, maxEnvelopes other envelopes are
// tracked, the sender wants no RTRs, too many were mispredicted, or an earlier posted receive
// without an RTR could match the message: the sender would write it to the later receive's buffer.
func (e *Engine) maySendRTR(envelope Envelope) bool {
	if envelope.Source == Any || envelope.Tag == Any {
		return false
	}
	s := e.receiverStates[envelope]
	if s == nil && len(e.receiverStates) >= e.maxEnvelopes || s != nil && (s.rtrStopped || s.mispredicted >= e.cfg.MaxMispredicted) {
		return false
	}
	// Checking the last receive with this envelope suffices: it sent an RTR only if all
	// receives before it did.
	last := e.posted.Last(envelope)
	return !e.posted.HasWildcardMatch(envelope) && (last == nil || last.Value.sentRTR)
}

// sendRTR sends the RTR (ready-to-receive message) of a posted receive, with the address of its
// buffer. If registration fails, the receive waits for an RTS (ready to send) instead.
func (e *Engine) sendRTR(r *Request) {
	if e.register(r, len(r.Buf)) != nil {
		return
	}
	r.sentRTR = true
	e.sendControl(r.Peer, &wire.Header{
		Kind: wire.RTR, Context: r.Context, Tag: r.Tag, Size: uint64(len(r.Buf)), Recv: r.id, Memory: r.region.Memory(),
	})
}

// handleRTRAck handles the message by which a sender accepts the ready-to-receive message (RTR) of
// a receive and announces its write. The receive must be the first that matches; otherwise the
// error is an ErrProtocol.
func (e *Engine) handleRTRAck(peer int, h *wire.Header) error {
	n := e.posted.Match(Envelope{Context: h.Context, Source: int32(peer), Tag: h.Tag})
	if n == nil || n.Value.id != h.Recv || !n.Value.sentRTR {
		return protocolError(peer, h, "the first matching receive has not sent this RTR")
	}
	r := n.Value
	e.posted.Remove(n)
	e.noteMatch(r, e.noteArrival(peer, h))
	r.state, r.Source, r.MatchedTag, r.Size = stateTransferring, peer, h.Tag, int(h.Size)
	return nil
}

// handleRevoked handles a peer's promise not to use the ready-to-receive message (RTR) of a receive
// that is being cancelled. It completes the cancellation, unless the data arrived first.
func (e *Engine) handleRevoked(peer int, h *wire.Header) error {
	r := e.requests.get(h.Recv)
	if r == nil {
		return nil // the data arrived first, and completed the receive
	}
	if r.Peer != peer || !r.revokingRTR {
		return protocolError(peer, h, "no RTR was revoked")
	}
	if r.state == statePosted {
		e.finishCancel(r)
	}
	return nil
}
