package iwarp

import (
	"github.com/fabrictest/fabrictest/emu/softiwarp/wire"
	"github.com/fabrictest/fabrictest/verbs"
)

// Fail ends the stream for a reason of its owner: an error of the layer below,
// or a local one. With tell the peer is sent a Terminate. All that is under way
// is completed in error. Of a stream that has ended it does nothing: the first
// error counts.
func (s *Stream) Fail(e wire.TermError, tell bool) {
	if s.state != open {
		return
	}
	if tell {
		s.endWithTerminate(ByOwner, &wire.Terminate{Error: e}, verbs.WCWRFlushErr)
		return
	}
	s.endSilently(ByOwner, e)
}

// Close ends the stream because the layer below has been closed in order. What is
// under way is completed in error.
func (s *Stream) Close() {
	if s.state == open {
		s.flushAndNotify(ByClose, wire.TermMPAClosed, verbs.WCWRFlushErr)
	}
}

// Drop forgets a Terminate that has not left, since the layer below can carry
// nothing more, and what it carried counts as taken.
func (s *Stream) Drop() {
	if s.state == terminating {
		s.state = ended
	}
	s.segmentsAccepted = s.segmentsOutput
}

// abandon ends the stream because a request cannot be carried out. The peer did
// nothing wrong: its Terminate shows no header.
func (s *Stream) failRequest(r *Request, status verbs.WCStatus) {
	r.status = status
	s.endWithTerminate(ByRequest, &wire.Terminate{Error: wire.TermRDMAPLocal}, verbs.WCWRFlushErr)
}

// refuse ends the stream because of a segment; nil if it has no header to show.
// What claims to be a Terminate is not answered with another.
func (s *Stream) refuse(e wire.TermError, a *rxSegment) {
	s.refuseReceive(verbs.WCWRFlushErr, e, a)
}

// refuseReceive is refuse where the receive under way has a status of its own.
func (s *Stream) refuseReceive(recv verbs.WCStatus, e wire.TermError, a *rxSegment) {
	switch {
	case a == nil:
		s.endWithTerminate(ByPeer, &wire.Terminate{Error: e}, recv)
		return
	case a.hdr.Control.Opcode == wire.OpTerminate:
		s.endSilentlyByPeer(e)
		return
	}
	t := s.newTerminate(e, &a.hdr, len(a.raw))
	if s.defects().TermPayloadLength && t.HasLength {
		t.SegmentLength = uint16(len(a.body))
	}
	if s.defects().TermInvalidateFlag && e == wire.TermProtNoInvalidate {
		t.HasRDMAP = true
	}
	s.endWithTerminate(ByPeer, t, recv)
}

// refuseRead ends the stream because a read or an atomic of the peer cannot be
// answered, or no longer: of a read what is left of it is shown.
func (s *Stream) refuseRead(e wire.TermError, p *peerRequest) {
	var h wire.Header
	if _, err := h.Control.Parse(p.control[:]); err != nil {
		panic("iwarp: two octets do not make a control field")
	}
	h.Control.Tagged = false // it may have been under Defects.TaggedFlagIgnored
	h.Untagged = wire.Untagged{Invalidate: p.invalidate, QN: wire.QueueReadRequest, MSN: p.msn}
	length := untaggedHeader + wire.ReadRequestLen
	if p.atomic {
		length = untaggedHeader + wire.AtomicRequestLen
	}
	t := s.newTerminate(e, &h, length)
	t.HasRDMAP = !p.atomic && t.HasDDP && e.Layer == wire.LayerRDMAP && e.Type == wire.RDMAPRemoteProtection
	t.Read = p.read
	if s.defects().TermReadStale && t.HasRDMAP {
		t.Read = s.siw.current
		t.DDP.Untagged.MSN = wire.MSN(t.Read.Size)
	}
	if s.defects().TermPayloadLength && t.HasLength {
		t.SegmentLength = 0
	}
	s.endWithTerminate(ByPeer, t, verbs.WCWRFlushErr)
}

// describe makes the Terminate for a segment, with as much of it as figure 10 of
// RFC 5040 wants for the error; the header of a Read Request apart.
func (s *Stream) newTerminate(e wire.TermError, h *wire.Header, length int) *wire.Terminate {
	t := &wire.Terminate{Error: e}
	switch {
	case e.Layer == wire.LayerRDMAP && e.Type == wire.RDMAPLocal:
	case (e == wire.TermOpVersion || e == wire.TermOpOpcode) && s.defects().TermBareOperation:
	default:
		t.HasLength, t.HasDDP, t.SegmentLength, t.DDP = true, true, uint16(length), *h
	}
	return t
}

// silence ends the stream because of a segment, without telling the peer.
func (s *Stream) endSilentlyByPeer(e wire.TermError) { s.endSilently(ByPeer, e) }

func (s *Stream) endSilently(cause Cause, e wire.TermError) {
	s.counters().SilentEnds++
	s.flushAndNotify(cause, e, verbs.WCWRFlushErr)
}

// end ends the stream with a Terminate that is still to be sent.
func (s *Stream) endWithTerminate(cause Cause, t *wire.Terminate, recv verbs.WCStatus) {
	if s.defects().TermSkipped && s.inProgress != noSource {
		s.counters().SilentEnds++
	} else {
		if s.defects().TermBitsSwapped {
			t.Order = wire.OrderSiw
		}
		s.term, s.state = t, terminating
	}
	s.flushAndNotify(cause, t.Error, recv)
}

// conclude completes all that is under way and tells the owner.
func (s *Stream) flushAndNotify(cause Cause, e wire.TermError, recv verbs.WCStatus) {
	if s.state == open {
		s.state = ended
	}
	s.flush(recv)
	s.owner.Ended(End{Cause: cause, Error: e, Terminate: s.state == terminating})
}

// sendTerminate makes the last segment of the stream.
func (s *Stream) sendTerminate(g *Segment) {
	s.state = ended
	s.counters().TerminatesSent.Add(s.term.Error)
	g.Header = s.untagged(g.Header, wire.OpTerminate, wire.QueueTerminate)
	g.Header = s.term.Append(g.Header)
}

// terminate takes the peer's Terminate. Whatever is wrong with it, it ends the
// stream, and it is never answered.
func (s *Stream) receiveTerminate(a *rxSegment) {
	u := &a.hdr.Untagged
	var t wire.Terminate
	order := wire.GuessTerminateOrder(a.body, s.startupDone)
	// More than the flags announce may follow: zeros, in one reading of RFC 5040.
	_, err := t.ParseOrder(a.body, order)
	switch {
	case u.QN != wire.QueueTerminate:
		s.endSilentlyByPeer(wire.TermUntaggedQN)
		return
	case u.MSN != wire.FirstMSN:
		s.endSilentlyByPeer(wire.TermUntaggedMSN)
		return
	case u.MO != 0 || !a.hdr.Control.Last:
		s.endSilentlyByPeer(wire.TermUntaggedMO)
		return
	case err != nil:
		s.endSilentlyByPeer(wire.TermOpUnspecified)
		return
	}
	s.counters().TerminatesReceived.Add(t.Error)
	s.failRefusedRequest(&t)
	s.term, s.termReceived = &t, true
	s.flushAndNotify(ByTerminate, t.Error, verbs.WCWRFlushErr)
}

// blame gives the request that the peer's Terminate is about, if it is not
// complete yet, the status that says so.
func (s *Stream) failRefusedRequest(t *wire.Terminate) {
	if !t.HasDDP {
		return
	}
	for r := s.first; r != nil; r = r.next {
		if r == s.sending && s.inProgress != requester {
			return // nothing of it has left, nor of what follows
		}
		if s.terminateMatches(t, r) {
			r.status = remoteStatus(t.Error)
			return
		}
		if r == s.sending {
			return
		}
	}
}

// concerns reports whether a Terminate shows a segment of r.
func (s *Stream) terminateMatches(t *wire.Terminate, r *Request) bool {
	d := &t.DDP
	op := d.Control.Opcode
	switch {
	case d.Control.Tagged:
		return op == wire.OpWrite && (r.Op == verbs.OpRDMAWrite || r.Op == verbs.OpRDMAWriteImm) &&
			wire.STag(r.Remote.RKey) == d.Tagged.STag && d.Tagged.TO-r.Remote.Addr < uint64(r.Length)
	case op == wire.OpReadRequest && t.HasRDMAP && r.Op == verbs.OpRDMARead:
		// soft-iWARP shows a wrong number, but the right request.
		stag, to := sink(r)
		return t.Read.SinkSTag == stag && t.Read.SinkTO-to <= uint64(r.Length) && wire.STag(r.Remote.RKey) == t.Read.SrcSTag
	case op == wire.OpReadRequest || op == wire.OpAtomicRequest:
		return hasResponse(r.Op) && r.msn == d.Untagged.MSN
	default:
		sends := r.Op == verbs.OpSend || r.Op == verbs.OpSendInv
		return (sends || (r.Op == verbs.OpSendImm || r.Op == verbs.OpRDMAWriteImm) && r.stage == sent) && r.msn == d.Untagged.MSN
	}
}

// remoteStatus is how a request ends that the peer refused.
func remoteStatus(e wire.TermError) verbs.WCStatus {
	switch {
	case e.Layer == wire.LayerRDMAP && e.Type == wire.RDMAPRemoteProtection, e.Layer == wire.LayerDDP && e.Type == wire.DDPTagged:
		return verbs.WCRemAccessErr
	case e == wire.TermOpStream || e == wire.TermOpGlobal || e == wire.TermOpUnspecified:
		return verbs.WCRemOpErr
	case e.Layer == wire.LayerRDMAP && e.Type == wire.RDMAPRemoteOperation, e.Layer == wire.LayerDDP && e.Type == wire.DDPUntagged:
		return verbs.WCRemInvReqErr
	}
	return verbs.WCRemOpErr
}
