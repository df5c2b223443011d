package iwarp

import (
	"encoding/binary"

	"github.com/fabrictest/fabrictest/emu/iwarp/wire"
	"github.com/fabrictest/fabrictest/verbs"
)

// receiveUntagged handles a segment of an untagged message other than Terminate. With the policy
// AnyReadQueue it ignores the queue number and the message offset of a Read Request.
func (s *Stream) receiveUntagged(a *rxSegment, info *wire.Info) {
	u := &a.hdr.Untagged
	unchecked := a.hdr.Control.Opcode == wire.OpReadRequest && s.policy().AnyReadQueue
	switch {
	case u.QN != info.Queue && !unchecked:
		s.refuse(wire.TermUntaggedQN, a)
	case u.MSN != s.recvMSN[info.Queue]:
		s.refuse(wire.TermUntaggedMSN, a)
	case info.Class.Has(wire.HasPayload):
		s.receiveSend(a, info)
	default:
		if unchecked {
			u.MO = 0
		}
		s.receiveControl(a, info)
	}
}

// receiveSend places a segment of a Send, and completes the receive with the last. It refuses a
// segment of another opcode than the message that it should continue, a Send or immediate data.
func (s *Stream) receiveSend(a *rxSegment, info *wire.Info) {
	op, n := a.hdr.Control.Opcode, uint32(len(a.body))
	switch {
	case s.recv != nil && op != s.opcode, s.parts != nil && s.parts[wire.QueueSend].begun:
		s.refuseOpcodeChange(a)
		return
	case a.hdr.Untagged.MO != s.recvLen:
		s.refuse(wire.TermUntaggedMO, a)
		return
	}
	if s.recv == nil && !s.nextReceive(a) {
		return
	}
	r := s.recv
	if r.MemoryStatus != verbs.WCSuccess {
		s.refuseBadReceive(r.MemoryStatus, a)
		return
	}
	if n > r.Length-s.recvLen {
		s.refuseBadReceive(verbs.WCLocLenErr, a)
		return
	}
	if a.hdr.Control.Last && info.Class.Has(wire.Invalidates) && !s.invalidate(a) {
		return
	}
	if s.ep.Layer.NIC.Scatter(r.SGL, r.PD, s.recvLen, a.body) != nil {
		s.refuseBadReceive(verbs.WCLocProtErr, a)
		return
	}
	s.recvLen += n
	if !a.hdr.Control.Last {
		return
	}
	wc := verbs.WC{Opcode: verbs.WCOpRecv, ByteLen: s.recvLen}
	if info.Class.Has(wire.Invalidates) {
		wc.Flags, wc.InvalidatedRKey = verbs.WCWithInv, verbs.RKey(a.hdr.Untagged.Invalidate)
	}
	s.counters().SendsReceived++
	s.deliver(wc, info)
}

// refuseBadReceive ends the stream because segment a does not fit into the current receive (status
// is WCLocLenErr), or because the receive's memory is invalid. The receive completes with status.
func (s *Stream) refuseBadReceive(status verbs.WCStatus, a *rxSegment) {
	e := wire.TermDDPLocal
	switch {
	case status != verbs.WCLocLenErr:
	case s.policy().Terminate.LongIsNoBuffer:
		e = wire.TermUntaggedNoBuffer
	default:
		e = wire.TermUntaggedTooLong
	}
	s.refuseReceive(status, e, a)
}

// nextReceive takes a receive for a new message. Without one it ends the stream and returns false.
func (s *Stream) nextReceive(a *rxSegment) bool {
	s.recv = s.owner.NextReceive()
	if s.recv == nil {
		s.refuse(wire.TermUntaggedNoBuffer, a)
		return false
	}
	s.opcode = a.hdr.Control.Opcode
	return true
}

// deliver completes the current receive.
func (s *Stream) deliver(wc verbs.WC, info *wire.Info) {
	r, solicited := s.recv, info.Class.Has(wire.Solicited) && !s.policy().IgnoreSolicited
	s.recv, s.recvLen = nil, 0
	s.advanceMSN(wire.QueueSend)
	s.owner.Received(r, wc, solicited)
}

// advanceMSN advances the MSN expected on queue q, after a message was received completely.
// Immediate data that follows a Send or a Read Request does not belong to an earlier Write.
func (s *Stream) advanceMSN(q wire.QN) {
	s.recvMSN[q] = s.recvMSN[q].Next()
	if q <= wire.QueueReadRequest {
		s.afterWrite = false
	}
}

// invalidate invalidates the STag of a Send with Invalidate. If that fails, it completes the
// receive in error, ends the stream unless the policy is KeepAfterInvalidate, and reports false.
func (s *Stream) invalidate(a *rxSegment) bool {
	ep := s.ep
	if ep.Layer.NIC.Mem.Invalidate(uint32(a.hdr.Untagged.Invalidate), ep.PD, ep.QPN) == nil {
		s.counters().Invalidations++
		return true
	}
	if s.policy().KeepAfterInvalidate {
		r := s.recv
		s.recv, s.recvLen = nil, 0
		s.advanceMSN(wire.QueueSend)
		s.owner.Received(r, verbs.WC{Status: verbs.WCRemInvReqErr, Opcode: verbs.WCOpRecv}, notSolicited)
		return false
	}
	s.refuseReceive(verbs.WCRemInvReqErr, wire.TermProtNoInvalidate, a)
	return false
}

// partials are the control messages that were received in part, by queue. Only an unusual peer
// splits a control message.
type partials [queues]partial

type partial struct {
	opcode wire.Opcode
	begun  bool
	n      int
	buf    [wire.AtomicRequestLen]byte
}

// receiveControl collects the segments of a message without application payload, and passes the
// message on when it is whole. A message that is shorter than its header ends the stream.
func (s *Stream) receiveControl(a *rxSegment, info *wire.Info) {
	msg, whole := s.collect(a, info)
	if !whole {
		return
	}
	op := a.hdr.Control.Opcode
	if len(msg) < info.Header {
		s.refuse(wire.TermOpUnspecified, a)
		return
	}
	if info.Queue != wire.QueueSend { // deliver advances that of QueueSend
		s.advanceMSN(info.Queue)
	}
	switch op {
	case wire.OpReadRequest:
		s.receiveReadRequest(a, msg)
	case wire.OpAtomicRequest:
		s.receiveAtomicRequest(a, msg)
	case wire.OpAtomicResponse:
		s.receiveAtomicResponse(a, msg)
	default:
		s.receiveImmediate(a, info, msg)
	}
}

// collect returns a message of fixed length (info.Header) when all of its segments have been
// received. It ends the stream if a segment does not fit.
func (s *Stream) collect(a *rxSegment, info *wire.Info) (msg []byte, whole bool) {
	c, mo := &a.hdr.Control, a.hdr.Untagged.MO
	begun := s.parts != nil && s.parts[info.Queue].begun
	if begun && s.parts[info.Queue].opcode != c.Opcode || info.Queue == wire.QueueSend && s.recv != nil {
		s.refuseOpcodeChange(a)
		return nil, false
	}
	have := 0
	if begun {
		have = s.parts[info.Queue].n
	}
	switch {
	case mo != uint32(have):
		s.refuse(wire.TermUntaggedMO, a)
		return nil, false
	case have+len(a.body) > info.Header:
		s.refuseLong(a)
		return nil, false
	case c.Last && !begun:
		return a.body, true
	}
	if s.parts == nil {
		s.parts = new(partials)
	}
	p := &s.parts[info.Queue]
	p.opcode, p.begun, p.n = c.Opcode, !c.Last, have+copy(p.buf[have:], a.body)
	return p.buf[:p.n], c.Last
}

// refuseLong ends the stream for a control message that is too long for the buffers of its queue.
// For Immediate Data it is an RDMAP error, because that uses receives of the application. With the
// policy LongReadSilent, a Read Request causes no Terminate.
func (s *Stream) refuseLong(a *rxSegment) {
	switch op := a.hdr.Control.Opcode; {
	case op == wire.OpImmediate || op == wire.OpImmediateSE:
		s.refuse(wire.TermOpUnspecified, a)
	case op == wire.OpReadRequest && s.policy().Terminate.LongReadSilent:
		s.endSilently(ByPeer, wire.TermUntaggedTooLong)
	default:
		s.refuse(wire.TermUntaggedTooLong, a)
	}
}

// refuseOpcodeChange ends the stream for a segment whose opcode differs from that of the
// current message of its queue.
func (s *Stream) refuseOpcodeChange(a *rxSegment) {
	if s.policy().Terminate.OpcodeChangeSilent {
		s.endSilently(ByPeer, wire.TermOpOpcode)
		return
	}
	s.refuse(wire.TermOpOpcode, a)
}

// receiveImmediate completes a receive with immediate data: the first four of its eight octets,
// since verbs have only four. Directly after a Write it is the immediate data of that Write.
func (s *Stream) receiveImmediate(a *rxSegment, info *wire.Info, msg []byte) {
	if !s.nextReceive(a) {
		return
	}
	wc := verbs.WC{Opcode: verbs.WCOpRecv, Imm: binary.BigEndian.Uint32(msg), Flags: verbs.WCWithImm}
	if s.afterWrite {
		wc.Opcode, wc.ByteLen = verbs.WCOpRecvRDMAWithImm, s.writeLen
	}
	s.counters().SendsReceived++
	s.deliver(wc, info)
}
