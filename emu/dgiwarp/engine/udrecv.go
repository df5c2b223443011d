package engine

import (
	"encoding/binary"
	"errors"

	"github.com/fabrictest/fabrictest/emu/dgiwarp/wire"
	"github.com/fabrictest/fabrictest/emu/internal/nic"
	ddp "github.com/fabrictest/fabrictest/emu/iwarp/wire"
	"github.com/fabrictest/fabrictest/verbs"
)

// receiveSegment checks the headers of a segment on UD, and handles the segment by its opcode.
func (q *QP) receiveSegment(in *inbound) {
	c := &in.header.Control
	switch op := c.Opcode; {
	case c.DDPVersion != ddp.DDPVersion && c.Tagged:
		q.refuseSegment(in, ddp.TermTaggedVersion)
	case c.DDPVersion != ddp.DDPVersion:
		q.refuseSegment(in, ddp.TermUntaggedVersion)
	case c.RDMAPVersion != ddp.RDMAPVersion:
		q.refuseSegment(in, ddp.TermOpVersion)
	case c.Tagged && op == ddp.OpWrite:
		if q.place(in, in.header.Tagged.TO, in.body) && c.Last {
			q.nic.layer.Count.WritesReceived++
		}
	case c.Tagged && op == wire.OpWriteRecord:
		q.takeWriteRecord(in)
	case !c.Tagged && (op == ddp.OpSend || op == ddp.OpSendSE || op == ddp.OpImmediate || op == ddp.OpImmediateSE):
		q.takeUntagged(in)
	default:
		q.refuseSegment(in, ddp.TermOpOpcode)
	}
}

// place writes the payload of a tagged segment to memory, and reports whether that is allowed. If
// not, it refuses the segment. The parameter to is the tagged offset (TO).
func (q *QP) place(in *inbound, to uint64, payload []byte) bool {
	if len(payload) == 0 {
		return true // STag and TO of an empty segment are not checked
	}
	if to+uint64(len(payload))-1 < to {
		q.refuseSegment(in, ddp.TermTaggedWrap)
		return false
	}
	mem, at, err := q.nic.Mem.Remote(uint32(in.header.Tagged.STag), nic.TargetQP{PD: q.PD, QPN: q.QPN}, to, uint64(len(payload)), verbs.AccessRemoteWrite)
	if err == nil {
		err = mem.WriteAt(payload, at)
	}
	if err != nil {
		q.refuseSegment(in, placementError(err))
		return false
	}
	return true
}

// placementError returns the Terminate error for a failed memory check.
func placementError(err error) ddp.TermError {
	switch {
	case errors.Is(err, nic.ErrBounds):
		return ddp.TermTaggedBounds
	case errors.Is(err, nic.ErrPD), errors.Is(err, nic.ErrOwner):
		return ddp.TermTaggedStream
	case errors.Is(err, nic.ErrRights):
		return ddp.TermProtAccess
	default:
		return ddp.TermTaggedSTag
	}
}

// takeUntagged handles immediate data or a segment of a Send. It delivers the message of a Send
// when no segment is missing.
func (q *QP) takeUntagged(in *inbound) {
	u, c := &in.header.Untagged, &in.header.Control
	immediate := c.Opcode == ddp.OpImmediate || c.Opcode == ddp.OpImmediateSE
	end := uint64(u.MO) + uint64(len(in.body))
	switch {
	case u.QN != ddp.QueueSend:
		q.refuseSegment(in, ddp.TermUntaggedQN)
	case immediate && (len(in.body) != ddp.ImmediateLen || u.MO != 0 || !c.Last):
		q.refuseSegment(in, ddp.TermOpUnspecified)
	case end > MaxUDSend:
		q.refuseSegment(in, ddp.TermUntaggedTooLong)
	case immediate:
		q.deliver(in, nil, &verbs.WC{Opcode: verbs.WCOpRecv, Flags: verbs.WCWithImm, Imm: binary.BigEndian.Uint32(in.body)})
	case u.MO == 0 && c.Last:
		q.deliver(in, in.body, &verbs.WC{Opcode: verbs.WCOpRecv})
	default:
		if m := q.nic.gatherMessage(q, in); m != nil {
			q.deliver(in, m.buf[:m.total], &verbs.WC{Opcode: verbs.WCOpRecv})
			q.nic.messages.remove(m)
		}
	}
}

// deliver writes the sender's address, in place of a GRH, and a complete message to the next
// receive, and completes the receive with wc. Without a receive it drops the message. It refuses a
// message longer than the receive, which stays posted if peers' errors are isolated.
func (q *QP) deliver(in *inbound, message []byte, wc *verbs.WC) {
	n := q.nic
	w, pd := q.PeekReceive()
	if w == nil {
		n.Count.DropNoReceive++
		return
	}
	total := uint32(verbs.GRHLen + len(message))
	if w.Length < total {
		if !q.isolate {
			q.TakeReceive()
			q.push(q.RecvCQ, &verbs.WC{WRID: w.WRID, Status: verbs.WCLocLenErr, Opcode: verbs.WCOpRecv}, notSolicited)
		}
		q.refuseSegment(in, ddp.TermUntaggedTooLong)
		return
	}
	in.from.fillGRH(&n.grh, len(message))
	err := n.Scatter(w.SGL, pd, 0, n.grh[:])
	if err == nil {
		err = n.Scatter(w.SGL, pd, verbs.GRHLen, message)
	}
	wc.WRID, wc.ByteLen, wc.SrcQP = w.WRID, total, verbs.QPN(in.from.qp)
	wc.Flags |= verbs.WCWithGRH
	solicited := in.header.Control.Opcode == ddp.OpSendSE || in.header.Control.Opcode == ddp.OpImmediateSE
	q.TakeReceive()
	if err != nil {
		// The program's memory is invalid: that is no error of the peer.
		q.push(q.RecvCQ, &verbs.WC{WRID: w.WRID, Status: verbs.WCLocProtErr, Opcode: verbs.WCOpRecv}, notSolicited)
		q.fail()
		return
	}
	n.layer.Count.SendsReceived++
	q.push(q.RecvCQ, wc, solicited)
}
