package engine

import (
	"github.com/fabrictest/fabrictest/emu/internal/nic"
	"github.com/fabrictest/fabrictest/emu/softroce/wire"
	"github.com/fabrictest/fabrictest/verbs"
)

// What responders do that execute requests out of their turn, or twice, or though
// they may not.

// forceOrder makes of a packet one that may follow what came before it
// (Defects.OpcodeOrderIgnored). It reports true for the rest of a WRITE that has
// not begun, which is good for an acknowledgement only.
func (q *QP) forceOrder(p *wire.Packet) bool {
	const toWrite = wire.OpWriteFirst - wire.OpSendFirst
	r, c, op := &q.resp, classOf(p), p.BTH.Opcode.Operation()
	switch {
	case c.Has(wire.Start):
		r.open = messageNone
	case r.open == messageNone && c.Has(wire.Write):
		r.advance()
		if c.Has(wire.End) {
			q.countMessage()
		}
		return true
	case r.open == messageNone && op == wire.OpSendMiddle:
		op = wire.OpSendFirst
	case r.open == messageNone && op == wire.OpSendLastInv:
		op = wire.OpSendOnlyInv
	case r.open == messageNone:
		op += wire.OpSendOnly - wire.OpSendLast
	case r.open == messageWrite && op == wire.OpSendLastInv:
		op = wire.OpWriteLast
	case r.open == messageWrite && c.Has(wire.Send):
		op += toWrite
	case r.open == messageSend && c.Has(wire.Write):
		op -= toWrite
	}
	p.BTH.Opcode = wire.MakeOpcode(q.transport(), op)
	return false
}

// executeAside carries out a SEND of one packet, or a WRITE whose class has all of
// which, without counting it: the message under way and what is expected next stay
// as they are.
func (q *QP) executeAside(p *wire.Packet, which wire.Class) {
	c := classOf(p)
	if !c.Has(wire.Send|wire.Only) && !c.Has(wire.Write|which) {
		return
	}
	r := &q.resp
	expected, ackPSN, msn, open, held, write := r.expected, r.ackPSN, r.msn, r.open, r.held, r.write
	r.open, r.held = messageNone, heldRecv{}
	q.execute(p)
	r.expected, r.ackPSN, r.msn, r.open, r.held, r.write = expected, ackPSN, msn, open, held, write
}

// receiveAgain completes the next receive with the immediate data of a duplicate,
// and places nothing (Defects.DuplicateImmReceives).
func (q *QP) receiveAgain(p *wire.Packet) {
	r := &q.resp
	if q.typ == verbs.QPTypeXRCRecv && !q.selectSRQ(p.XRCETH.SRQN) {
		return
	}
	op := verbs.WCOpRecv
	if classOf(p).Has(wire.Write) {
		op = verbs.WCOpRecvRDMAWithImm
	}
	underWay := r.held
	r.held = heldRecv{}
	taken := q.hold()
	id := r.held.wrID
	r.held = underWay
	if taken {
		q.pushRecv(&verbs.WC{WRID: id, Opcode: op, Flags: verbs.WCWithImm, Imm: uint32(p.Imm), SrcQP: q.attr.DestQPN})
	}
}

// atomicAgain executes a duplicate atomic, which may ask for something else than
// the original did.
func (q *QP) atomicAgain(p *wire.Packet, e *replay) {
	switch c := classOf(p); {
	case c.Has(wire.Atomic):
		q.runAtomic(p, e)
	case c.Has(wire.AtomicWrite):
		q.runAtomicWrite(p)
	}
}

// placeAnyway writes the payload of a WRITE to where its key leads, whatever the
// region grants (Defects.PlacedBeforeCheck).
func (q *QP) placeAnyway(p *wire.Packet) {
	n := uint64(len(p.Payload))
	if mem, at, err := q.remote(p.RETH.RKey, p.RETH.VA, n, 0); err == nil && n > 0 {
		_ = mem.WriteAt(p.Payload, at) // the request is refused in any case
	}
}

// useOwnWord puts back what the QP itself has stored at an address, as if nobody
// else could have changed it since (Defects.AtomicsPerQP).
func (q *QP) useOwnWord(mem nic.Memory, at, va uint64) {
	if own, ok := q.resp.ownWords[va]; ok {
		_, _ = mem.Update(at, func(uint64) uint64 { return own }) // the atomic will find out
	}
}

// keepOwnWord remembers what an atomic of the QP has stored.
func (q *QP) keepOwnWord(va, value uint64) {
	if q.resp.ownWords == nil {
		q.resp.ownWords = map[uint64]uint64{}
	}
	q.resp.ownWords[va] = value
}
