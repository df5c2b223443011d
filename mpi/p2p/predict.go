package p2p

import (
	"maps"

	"github.com/fabrictest/fabrictest/mpi/match"
	"github.com/fabrictest/fabrictest/mpi/wire"
)

// hush is what a receiver knows of an envelope.
type receiverState struct {
	rtrStopped   bool // the sender wants no RTRs
	mispredicted int  // receives in a row with an RTR for what came eagerly
}

// hush returns what is known of an envelope, or begins to know it. A table that is
// full takes no more: receives of envelopes that are not in it do not speak.
func (e *Engine) receiverState(envelope match.Envelope) *receiverState {
	h := e.receivers[envelope]
	if h == nil {
		h = new(receiverState)
		if len(e.receivers) >= e.maxEnvelopes {
			maps.DeleteFunc(e.receivers, func(_ match.Envelope, h *receiverState) bool { return !h.rtrStopped })
		}
		if len(e.receivers) < e.maxEnvelopes {
			e.receivers[envelope] = h
		}
	}
	return h
}

// heed does what an RTS wants. A sender who wants no RTRs uses none of those that
// were sent, so that receives which are still posted have sent none in effect: they
// keep those behind them from sending theirs, and answer an RTS.
func (e *Engine) applyRTRFlags(envelope match.Envelope, flags wire.Flags) {
	if h := e.receivers[envelope]; h != nil {
		h.mispredicted = 0
	}
	switch {
	case flags&wire.StopRTR != 0:
		e.receiverState(envelope).rtrStopped = true
		for n := e.posted.Last(envelope); n != nil && n.Value.sentRTR; n = e.posted.Prev(n) {
			n.Value.sentRTR = false
		}
	case flags&wire.ResumeRTR != 0:
		delete(e.receivers, envelope)
	}
}

// mispredicted notes an RTR for what came eagerly.
func (e *Engine) mispredicted(envelope match.Envelope) {
	e.Stats.Mispredicted++
	e.receiverState(envelope).mispredicted++
}

// maySpeak reports whether a receive that is about to be posted may send an RTR. It
// may not where its sender is not known or wants none; nor where too many were for
// nothing; nor behind a receive that its message might go to and that has sent none:
// the sender would take it for that one's.
func (e *Engine) maySendRTR(envelope match.Envelope) bool {
	if envelope.Source == match.Any || envelope.Tag == match.Any {
		return false
	}
	h := e.receivers[envelope]
	if h == nil && len(e.receivers) >= e.maxEnvelopes || h != nil && (h.rtrStopped || h.mispredicted >= e.cfg.MaxMispredicted) {
		return false
	}
	// Of those with just this envelope the last tells for all: it would not have
	// spoken behind one that has not.
	last := e.posted.Last(envelope)
	return !e.posted.HasWildcardMatch(envelope) && (last == nil || last.Value.sentRTR)
}

// speak sends a receive's RTR.
func (e *Engine) sendRTR(r *Request) {
	if e.register(r, len(r.Buf)) != nil {
		return // its sender can start; there may be room by then
	}
	r.sentRTR = true
	e.sendControl(r.Peer, &wire.Header{
		Kind: wire.RTR, Context: r.Context, Tag: r.Tag, Size: uint64(len(r.Buf)), Recv: r.id, Memory: r.region.Memory(),
	})
}

// rtrAckCame takes the word of a sender who writes to where an RTR of ours says. As
// any message it goes to the first receive for it, which must be the one.
func (e *Engine) handleRTRAck(peer int, h *wire.Header) error {
	n := e.posted.Match(match.Envelope{Context: h.Context, Source: int32(peer), Tag: h.Tag})
	if n == nil || n.Value.id != h.Recv || !n.Value.sentRTR { // what was hushed is not written to
		return protocolError(peer, h, "it is for another receive than the first")
	}
	r := n.Value
	e.posted.Remove(n)
	r.state, r.Source, r.MatchedTag, r.Size = stateTransferring, peer, h.Tag, int(h.Size)
	return nil
}

// revokedCame ends the cancelling of a receive, unless its message was faster.
func (e *Engine) handleRevoked(peer int, h *wire.Header) error {
	r := e.requests.get(h.Recv)
	if r == nil {
		return nil
	}
	if r.Peer != peer || !r.revokingRTR {
		return protocolError(peer, h, "nothing was revoked")
	}
	if r.state == statePosted {
		e.finishCancel(r)
	}
	return nil
}
