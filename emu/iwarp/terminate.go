package iwarp

import (
	"github.com/fabrictest/fabrictest/emu/iwarp/wire"
	"github.com/fabrictest/fabrictest/verbs"
)

// Fail ends the stream because of a local error or an error of the layer below, and completes all
// work in error. If terminate is set, Output then returns a Terminate. If the stream has ended
// already, Fail does nothing.
func (s *Stream) Fail(e wire.TermError, terminate bool) {
	if s.state != open {
		return
	}
	if terminate {
		s.endWithTerminate(ByOwner, &wire.Terminate{Error: e}, verbs.WCWRFlushErr)
		return
	}
	s.endSilently(ByOwner, e)
}

// Close ends the stream because the connection was closed gracefully. Remaining work is flushed.
func (s *Stream) Close() {
	if s.state == open {
		s.flushAndNotify(ByClose, wire.TermMPAClosed, verbs.WCWRFlushErr)
	}
}

// Drop discards an unsent Terminate, because the layer below cannot send any more. All segments
// count as accepted.
func (s *Stream) Drop() {
	if s.state == terminating {
		s.state = ended
	}
	s.segmentsAccepted = s.segmentsOutput
}

// failRequest ends the stream because of a local error of r. The Terminate contains no header,
// since the peer sent nothing invalid.
func (s *Stream) failRequest(r *Request, status verbs.WCStatus) {
	r.status = status
	s.endWithTerminate(ByRequest, &wire.Terminate{Error: wire.TermRDMAPLocal}, verbs.WCWRFlushErr)
}

// refuse ends the stream because of a received segment; a is nil if its header cannot be
// parsed. A Terminate is never answered with another.
func (s *Stream) refuse(e wire.TermError, a *rxSegment) {
	s.refuseReceive(verbs.WCWRFlushErr, e, a)
}

// refuseReceive ends the stream because of a received segment, and completes the current receive
// with recvStatus. It sends a Terminate, without headers if a is nil; an invalid Terminate of the
// peer is not answered. Policies change the segment length and the header flags of the Terminate.
func (s *Stream) refuseReceive(recvStatus verbs.WCStatus, e wire.TermError, a *rxSegment) {
	switch {
	case a == nil:
		s.endWithTerminate(ByPeer, &wire.Terminate{Error: e}, recvStatus)
		return
	case a.hdr.Control.Opcode == wire.OpTerminate:
		s.endSilently(ByPeer, e)
		return
	}
	t := s.newTerminate(e, &a.hdr, len(a.raw))
	if s.policy().Terminate.PayloadLength && t.HasLength {
		t.SegmentLength = uint16(len(a.body))
	}
	if s.policy().Terminate.InvalidateFlag && e == wire.TermProtNoInvalidate {
		t.HasRDMAP = true
	}
	s.endWithTerminate(ByPeer, t, recvStatus)
}

// refuseRequest ends the stream because the response to a read or an atomic failed. The Terminate
// shows the unanswered remainder of a read, unless a policy changes its headers.
func (s *Stream) refuseRequest(e wire.TermError, p *peerRequest) {
	var h wire.Header
	if _, err := h.Control.Parse(p.control[:]); err != nil {
		panic("iwarp: two octets do not make a control field")
	}
	h.Control.Tagged = false // the policy HeaderByOpcode accepts it set
	h.Untagged = wire.Untagged{Invalidate: p.invalidate, QN: wire.QueueReadRequest, MSN: p.msn}
	length := untaggedHeader + wire.ReadRequestLen
	if p.atomic {
		length = untaggedHeader + wire.AtomicRequestLen
	}
	t := s.newTerminate(e, &h, length)
	// Only the Terminate for a remote protection error has the header of the read.
	t.HasRDMAP = !p.atomic && t.HasDDP && e.Layer == wire.LayerRDMAP && e.Type == wire.RDMAPRemoteProtection
	t.Read = p.read
	if s.policy().Terminate.ReadAsReceived && t.HasRDMAP {
		t.Read = s.policyState.current
		t.DDP.Untagged.MSN = wire.MSN(t.Read.Size) // the policy imitates a device that sends the size here
	}
	if s.policy().Terminate.PayloadLength && t.HasLength {
		t.SegmentLength = 0
	}
	s.endWithTerminate(ByPeer, t, verbs.WCWRFlushErr)
}

// newTerminate returns the Terminate for a segment, with its length and DDP header if RFC 5040,
// figure 10, requires them for the error; callers add the header of a Read Request. With the policy
// NoOperationHeader, the Terminate for an invalid version or opcode has neither.
func (s *Stream) newTerminate(e wire.TermError, h *wire.Header, length int) *wire.Terminate {
	t := &wire.Terminate{Error: e}
	switch {
	case e.Layer == wire.LayerRDMAP && e.Type == wire.RDMAPLocal:
	case (e == wire.TermOpVersion || e == wire.TermOpOpcode) && s.policy().Terminate.NoOperationHeader:
	default:
		t.HasLength, t.HasDDP, t.SegmentLength, t.DDP = true, true, uint16(length), *h
	}
	return t
}

// endSilently ends the stream without a Terminate.
func (s *Stream) endSilently(cause Cause, e wire.TermError) {
	s.counters().SilentEnds++
	s.flushAndNotify(cause, e, verbs.WCWRFlushErr)
}

// endWithTerminate ends the stream and completes all work in error, the current receive with
// recvStatus. Output then returns the Terminate t, unless a message is partly sent and the policy
// MidMessageSilent is set.
func (s *Stream) endWithTerminate(cause Cause, t *wire.Terminate, recvStatus verbs.WCStatus) {
	if s.policy().Terminate.MidMessageSilent && s.inProgress != noSource {
		s.counters().SilentEnds++
	} else {
		t.Order = s.policy().Terminate.Order
		s.term, s.state = t, terminating
	}
	s.flushAndNotify(cause, t.Error, recvStatus)
}

// flushAndNotify completes all work in error and calls the owner's Ended.
func (s *Stream) flushAndNotify(cause Cause, e wire.TermError, recvStatus verbs.WCStatus) {
	if s.state == open {
		s.state = ended
	}
	s.flush(recvStatus)
	s.owner.Ended(End{Cause: cause, Error: e, Terminate: s.state == terminating})
}

// sendTerminate builds the Terminate, the last segment, in g, and ends the stream.
func (s *Stream) sendTerminate(g *Segment) {
	s.state = ended
	s.counters().TerminatesSent.Add(s.term.Error)
	g.Header = s.untagged(g.Header, wire.OpTerminate, wire.QueueTerminate)
	g.Header = s.term.Append(g.Header)
}

// receiveTerminate ends the stream, even if the Terminate is invalid, and sends none.
func (s *Stream) receiveTerminate(a *rxSegment) {
	u := &a.hdr.Untagged
	var t wire.Terminate
	// siw of Linux sends the first bits in another order than the RFC.
	order := wire.GuessTerminateOrder(a.body, s.startupDone)
	// Octets after the headers are accepted: RFC 5040 can be read to send absent headers as zeros.
	_, err := t.ParseWithOrder(a.body, order)
	switch {
	case u.QN != wire.QueueTerminate:
		s.endSilently(ByPeer, wire.TermUntaggedQN)
		return
	case u.MSN != wire.FirstMSN:
		s.endSilently(ByPeer, wire.TermUntaggedMSN)
		return
	case u.MO != 0 || !a.hdr.Control.Last:
		s.endSilently(ByPeer, wire.TermUntaggedMO)
		return
	case err != nil:
		s.endSilently(ByPeer, wire.TermOpUnspecified)
		return
	}
	s.counters().TerminatesReceived.Add(t.Error)
	s.failRefusedRequest(&t)
	s.term, s.state = &t, terminated
	s.flushAndNotify(ByTerminate, t.Error, verbs.WCWRFlushErr)
}

// failRefusedRequest sets the error status of the incomplete request that the peer's Terminate is
// about, if its headers identify one that was sent, at least in part.
func (s *Stream) failRefusedRequest(t *wire.Terminate) {
	if !t.HasDDP {
		return
	}
	for r := s.first; r != nil; r = r.next {
		if r == s.sending && s.inProgress != requester {
			return // r and all later requests were not sent
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

// terminateMatches reports whether t contains the header of a segment of r.
func (s *Stream) terminateMatches(t *wire.Terminate, r *Request) bool {
	d := &t.DDP
	op := d.Control.Opcode
	switch {
	case d.Control.Tagged:
		return op == wire.OpWrite && (r.Op == verbs.OpRDMAWrite || r.Op == verbs.OpRDMAWriteImm) &&
			wire.STag(r.Remote.RKey) == d.Tagged.STag && d.Tagged.TO-r.Remote.Addr < uint64(r.Length)
	case op == wire.OpReadRequest && t.HasRDMAP && r.Op == verbs.OpRDMARead:
		// soft-iWARP returns a wrong MSN, but the right header for the unanswered rest of the read.
		stag, to := sink(r)
		return t.Read.SinkSTag == stag && t.Read.SinkTO-to <= uint64(r.Length) && wire.STag(r.Remote.RKey) == t.Read.SrcSTag
	case op == wire.OpReadRequest || op == wire.OpAtomicRequest:
		return hasResponse(r.Op) && r.msn == d.Untagged.MSN
	default:
		// Immediate data gets its MSN when it is sent.
		sends := r.Op == verbs.OpSend || r.Op == verbs.OpSendInv
		return (sends || (r.Op == verbs.OpSendImm || r.Op == verbs.OpRDMAWriteImm) && r.stage == sent) && r.msn == d.Untagged.MSN
	}
}

// remoteStatus converts the error of the peer's Terminate to a completion status.
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

// PeerErrorEvent returns the asynchronous event for an invalid segment, by its Terminate error.
func PeerErrorEvent(e wire.TermError) verbs.AsyncEventType {
	switch {
	case e.Layer == wire.LayerRDMAP && e.Type == wire.RDMAPRemoteProtection,
		e.Layer == wire.LayerDDP && e.Type == wire.DDPTagged && e != wire.TermTaggedVersion:
		return verbs.EventQPAccessErr
	case e.Type == wire.RDMAPLocal: // of either layer
		return verbs.EventQPFatal
	}
	return verbs.EventQPReqErr
}
