package engine

import (
	"github.com/fabrictest/fabrictest/emu/internal/nic"
	"github.com/fabrictest/fabrictest/emu/softroce/wire"
	"github.com/fabrictest/fabrictest/verbs"
)

// responder is the receiving side of a connected QP.
type responder struct {
	expected wire.PSN
	ackPSN   wire.PSN // PSN of the last SEND, WRITE or atomic executed
	msn      wire.MSN

	open         message // type of the unfinished message
	discarding   bool    // UC: the responder drops the rest of the message
	gapInMessage bool    // a packet of the open message was lost
	recv         recvInProgress
	write        struct {
		va        uint64
		rkey      uint32
		remaining uint32
		length    uint32 // length of the message
	}
	causeReported bool // the receive completed with the cause; the fatal NAK reports no event
	solicited     bool // the next completion is solicited

	established bool // COMM_EST was reported
	seqNAKed    bool // a sequence NAK was sent for expected
	rnrNAKed    bool // an RNR NAK was sent for expected

	pending          bool // answer must be sent
	answer           answer
	requestSentFirst bool // a request was sent ahead of the pending ACK
	hold             ackDelay
	fatal            bool // answer is a NAK to send although the QP is in ERR
	reading          bool // replays has unsent responses
	requestTurn      bool // interleaveRequest: the next packet is a request
	replays          replayRing

	xrcSRQ *nic.SRQ // SRQ of the current XRC packet
	xrcCQ  *nic.CQ
}

// message is the type of an unfinished message.
type message uint8

const (
	messageNone message = iota
	messageSend
	messageWrite
)

// answer is an ACK or NAK.
type answer struct {
	psn      wire.PSN
	syndrome wire.Syndrome
	ack      bool // ACK: the syndrome is computed when it is sent
}

// recvInProgress is the receive that the unfinished message fills.
type recvInProgress struct {
	active bool
	wrID   uint64
	sges   []verbs.SGE
	length uint32
	filled uint32
	pd     nic.PD
}

// verdict is the result of executing a request packet.
type verdict uint8

const (
	accepted verdict = iota
	refusedInvalid
	refusedAccess
	refusedOperational
	notReady
	silentlyFailed // the QP failed and sends no NAK
)

// handleRequest handles a request packet. known is false for undefined opcodes.
func (q *QP) handleRequest(p *wire.Packet, known bool) {
	r := &q.resp
	q.communicationEstablished()
	if !q.reliable() {
		q.handleUC(p, known)
		return
	}
	ahead := p.BTH.PSN.Sub(r.expected)
	switch {
	case ahead > 0:
		q.outOfSequence()
		return
	case ahead < 0 && !known:
		q.nic.Count.DropOpcode++
		return
	case ahead < 0:
		q.duplicate(p)
		return
	}
	r.seqNAKed = false
	v := refusedInvalid
	if known {
		v = q.execute(p)
	}
	q.respondToRequest(p, v)
}

// communicationEstablished raises COMM_EST for the first packet of a QP in RTR.
func (q *QP) communicationEstablished() {
	if q.state == verbs.QPStateRTR && !q.resp.established {
		q.resp.established = true
		q.nic.Report(nic.Event{Type: verbs.EventCommEst, QP: q})
	}
}

// outOfSequence sends one sequence NAK for a gap. After an RNR NAK it sends none,
// because the peer will retransmit.
func (q *QP) outOfSequence() {
	r := &q.resp
	q.nic.Count.OutOfSequence++
	if r.seqNAKed || r.rnrNAKed && !q.nic.policy.SeqNAKAfterRNR {
		return
	}
	r.seqNAKed = true
	q.nic.Count.SeqNAKsSent++
	q.respond(answer{psn: r.expected, syndrome: wire.Nak(wire.NakPSNSequence)})
}

// respondToRequest schedules the ACK or NAK for a request with the expected PSN.
func (q *QP) respondToRequest(p *wire.Packet, v verdict) {
	r := &q.resp
	psn := p.BTH.PSN
	switch v {
	case accepted:
		r.rnrNAKed = false
		if r.pending && !r.answer.ack {
			// The missing packet has arrived before the NAK was sent. Send an ACK instead.
			r.answer = answer{psn: r.ackPSN, ack: true}
		}
		q.notePeerContinued()
		switch {
		case isReadLike(p.BTH.Opcode):
			// Its response acknowledges it.
		case p.BTH.AckReq:
			q.respond(answer{psn: r.ackPSN, ack: true})
			// Applications may answer SENDs, and WRITEs to memory that they poll.
			if classOf(p).Has(wire.Start | wire.End) {
				r.hold.eligible = true
				r.hold.covers++
			}
		}
	case notReady:
		r.rnrNAKed = true
		q.nic.Count.RNRNAKsSent++
		q.respond(answer{psn: psn, syndrome: wire.RNRNak(q.attr.MinRNRTimer)})
	case refusedInvalid:
		q.sendFatalNAK(psn, wire.NakInvalidRequest, verbs.WCRemInvReqErr, verbs.EventQPReqErr)
	case refusedAccess:
		q.sendFatalNAK(psn, wire.NakRemoteAccess, verbs.WCRemAccessErr, verbs.EventQPAccessErr)
	case refusedOperational:
		q.sendFatalNAK(psn, wire.NakRemoteOperational, verbs.WCLocQPOpErr, verbs.EventQPFatal)
	}
}

// sendFatalNAK schedules a fatal NAK and fails the QP. The claimed receive
// completes with status; without one, the event is raised.
func (q *QP) sendFatalNAK(psn wire.PSN, code wire.NakCode, status verbs.WCStatus, event verbs.AsyncEventType) {
	r := &q.resp
	switch {
	case r.recv.active:
		q.completeRecvInError(status)
	case !r.causeReported:
		q.nic.Report(nic.Event{Type: event, QP: q})
	}
	q.nic.Count.FatalNAKsSent++
	q.respond(answer{psn: psn, syndrome: wire.Nak(code)})
	r.fatal = true
	q.fail()
}

// completeRecvInError completes the claimed receive with an error status.
func (q *QP) completeRecvInError(status verbs.WCStatus) {
	h := &q.resp.recv
	h.active = false
	q.pushRecv(&verbs.WC{WRID: h.wrID, Status: status})
}

// respond schedules an ACK or NAK. It replaces an earlier pending one, which it
// implies.
func (q *QP) respond(a answer) {
	r := &q.resp
	if r.pending && !r.answer.ack && a.ack && a.psn.Sub(r.answer.psn) < 0 {
		return // an ACK of earlier packets must not replace a NAK
	}
	q.releaseAck()
	r.pending, r.answer, r.hold.eligible = true, a, false
	q.wake()
}

func isReadLike(op wire.Opcode) bool {
	info, _ := op.Info()
	return info.Class&(wire.Read|wire.Atomic|wire.Flush|wire.AtomicWrite) != 0
}

func classOf(p *wire.Packet) wire.Class {
	info, _ := p.BTH.Opcode.Info()
	return info.Class
}

// countMessage increments the MSN after a request was executed completely.
func (q *QP) countMessage() {
	q.resp.msn = q.resp.msn.Next()
}

// advance moves past a PSN that was executed and that an ACK acknowledges.
func (r *responder) advance() {
	r.ackPSN = r.expected
	r.expected = r.expected.Add(1)
}

func (q *QP) remoteMemoryIn(pd nic.PD, rkey uint32, va, n uint64, need verbs.Access) (nic.Memory, uint64, error) {
	if n == 0 {
		return nil, 0, nil
	}
	return q.nic.Mem.Remote(rkey, pd, q.num, va, n, need)
}
