package rocewire

import (
	"encoding/binary"
	"slices"

	"github.com/fabrictest/fabrictest/emu/softroce/wire"
	"github.com/fabrictest/fabrictest/verbs"
)

// read is a READ as the peer first asked for it.
type read struct {
	span
	wire.RETH
}

// rightFor is what a QP must allow for a request to be executed; 0 if nothing.
func rightFor(c wire.Class) verbs.Access {
	switch {
	case !c.Has(wire.Request | wire.Start):
		return 0
	case c.Has(wire.Read):
		return verbs.AccessRemoteRead
	case c.Has(wire.Atomic):
		return verbs.AccessRemoteAtomic
	case c&(wire.Write|wire.AtomicWrite) != 0:
		return verbs.AccessRemoteWrite
	}
	return 0
}

// noDuplicateRead (DupReadDropped) loses READs that were executed before.
func noDuplicateRead(e *Edge, p *packet) bool {
	_, q, ok := e.talkIn(p)
	return !ok || !p.is(wire.OpReadRequest) || p.psn().Sub(q.Expected) >= 0
}

// wholeRead (SubReadWhole) has the engine see the original of a READ where a part
// of it is asked for again.
func wholeRead(e *Edge, p *packet) bool {
	t, q, ok := e.talkIn(p)
	r, isRead := p.reth()
	if !ok || !isRead || !p.is(wire.OpReadRequest) {
		return true
	}
	psn := p.psn()
	if psn == q.Expected {
		t.asked = remember(t.asked, read{span{psn, psn.Add(q.packets(r.DMALen) - 1)}, r})
		return true
	}
	for _, was := range slices.Backward(t.asked) {
		if was.has(psn) {
			was.RETH.Append(p.header(wire.HasRETH)[:0])
			p.setPSN(was.first)
			break
		}
	}
	return true
}

// lastAtomicOnly (ReplayKeepsOne) loses duplicates of all atomics but the last.
func lastAtomicOnly(e *Edge, p *packet) bool {
	t, q, ok := e.talkIn(p)
	if !ok || !p.class().Has(wire.Request|wire.Atomic) {
		return true
	}
	psn := p.psn()
	switch ahead := psn.Sub(q.Expected); {
	case ahead == 0:
		t.atomic = &psn
	case ahead < 0:
		return t.atomic != nil && *t.atomic == psn
	}
	return true
}

// noteUnasked (ReadNeedsAckReq) notes READs and atomics that do not ask for an
// acknowledgement; onlyAsked then loses what answers them.
func noteUnasked(e *Edge, p *packet) bool {
	t, q, ok := e.talkIn(p)
	if !ok || !p.class().Has(wire.Request) || p.class()&(wire.Read|wire.Atomic) == 0 {
		return true
	}
	psn, n := p.psn(), int32(1)
	if r, ok := p.reth(); ok {
		n = q.packets(r.DMALen)
	}
	t.unasked = slices.DeleteFunc(t.unasked, func(s span) bool { return s.has(psn) })
	if p.Payload[8]&ackReq == 0 {
		t.unasked = remember(t.unasked, span{psn, psn.Add(n - 1)})
	}
	return true
}

func onlyAsked(e *Edge, p *packet) bool {
	if !p.reliable() || !p.class().Has(wire.Response) || p.class()&(wire.Read|wire.Atomic) == 0 {
		return true
	}
	return !slices.ContainsFunc(e.talkOut(p).unasked, func(s span) bool { return s.has(p.psn()) })
}

// reservedNAK (ReservedNAKIsAck) shows the engine an ACK in place of a NAK whose
// code says nothing.
func reservedNAK(_ *Edge, p *packet) bool {
	if s, ok := p.syndrome(); ok && s.Kind() == wire.SyndromeNak && s.Value() > uint8(wire.NakInvalidRD) {
		p.setSyndrome(wire.Ack(wire.CreditUnlimited))
	}
	return true
}

// sequenceNAK (NAKWaitsForTimer) shows the engine only what a sequence NAK
// acknowledges. That more is missing, its timer finds out.
func sequenceNAK(_ *Edge, p *packet) bool {
	if s, ok := p.syndrome(); ok && s == wire.Nak(wire.NakPSNSequence) {
		p.setSyndrome(wire.Ack(wire.CreditUnlimited))
		p.setPSN(p.psn().Add(-1))
	}
	return true
}

// noteEarlyAck (EarlyAckCounts) notes the ACK that comes to a QP in RTR; ackEarly
// has it acknowledge requests once they leave.
func noteEarlyAck(e *Edge, p *packet) bool {
	s, ok := p.syndrome()
	if !ok || s.Kind() != wire.SyndromeAck {
		return true
	}
	if t, q, ok := e.talkIn(p); ok && q.State == verbs.QPStateRTR {
		psn := p.psn()
		t.early = &psn
	}
	return true
}

// ackEarly gives the device an acknowledgement of its own request at once, as if the peer had
// sent it, up to the PSN that early holds. The request itself is sent as it is.
func ackEarly(e *Edge, p *packet) bool {
	if !p.reliable() || !p.class().Has(wire.Request) {
		return true
	}
	upTo := e.talkOut(p).early
	q, ok := e.sentFrom(p)
	if !ok || upTo == nil || p.psn().Sub(*upTo) > 0 {
		return true
	}
	ack := e.made(p, q.Peer, q.Own, &wire.Packet{
		BTH: wire.BTH{
			Opcode: wire.MakeOpcode(q.Service, wire.OpAcknowledge), DestQP: q.Num, PSN: p.psn(),
			PKey: binary.BigEndian.Uint16(p.Payload[2:]) | fullMember,
		},
		AETH: wire.AETH{Syndrome: wire.Ack(wire.CreditUnlimited)},
	})
	e.hand(&ack)
	return true
}

const fullMember = 0x8000
