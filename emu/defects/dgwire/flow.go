package dgwire

import (
	"github.com/fabrictest/fabrictest/emu/dgiwarp/wire"
	ddp "github.com/fabrictest/fabrictest/emu/iwarp/wire"
	"github.com/fabrictest/fabrictest/emu/link"
)

// flow is what an Edge has seen of the flow to a peer.
type flow struct {
	epoch   wire.Epoch
	next    wire.Seq // the first packet that was not sent
	begun   bool     // a packet with the start flag has left
	lastAck wire.Ack // that was given to the peer last

	// NumbersGoOn: the last number of each queue, in this flow and in all before.
	last, before [2]ddp.MSN
}

func (e *Edge) flowTo(k peer) *flow {
	f := e.flows[k]
	if f == nil {
		f = new(flow)
		e.flows[k] = f
	}
	return f
}

// noteFlow keeps up with what the NIC sends.
func noteFlow(e *Edge, p *packet) bool {
	if !p.has(wire.FlagData) {
		return true
	}
	f := e.flowTo(p.to())
	if f.epoch != p.Data.Epoch {
		for q := range f.last {
			f.before[q] += f.last[q]
		}
		f.epoch, f.next, f.begun, f.last = p.Data.Epoch, 0, false, [2]ddp.MSN{}
	}
	if !p.Data.Seq.Less(f.next) {
		f.next = p.Data.Seq.Add(1)
	}
	return true
}

// startOnce (StartFlagOnce) takes the start flag off all but the first packet.
func startOnce(e *Edge, p *packet) bool {
	if p.has(wire.FlagData | wire.FlagStart) {
		f := e.flowTo(p.to())
		if f.begun {
			p.Flags &^= wire.FlagStart
		}
		f.begun = true
	}
	return true
}

// noChallenge (ChallengeIgnored) and noRefusal (RefusalIgnored) lose what the NIC
// should answer to.
func noChallenge(_ *Edge, p *packet) bool { return p.Kind != wire.KindChallenge }
func noRefusal(_ *Edge, p *packet) bool   { return p.Kind != wire.KindRefusal }

// sameLife (IncarnationsIgnored) has all peers be in their first life.
func sameLife(_ *Edge, p *packet) bool {
	p.Challenge.Incarnation, p.Data.Incarnation = 1, 1
	return true
}

// knowsEverything (UnknownFlowSilent) keeps Refusals of unknown flows back.
func knowsEverything(_ *Edge, p *packet) bool {
	return p.Kind != wire.KindRefusal || p.Refusal.Reason != wire.ReasonUnknown
}

// refuse (RefusesEverything) answers what has no data and is about another flow
// than the NIC's.
func refuse(e *Edge, p *packet) bool {
	var about wire.Epoch
	switch {
	case p.Kind == wire.KindChallenge:
		about = p.Challenge.Epoch
	case p.Kind == wire.KindRefusal:
		about = p.Refusal.Epoch
	case p.has(wire.FlagAck) && !p.has(wire.FlagData):
		about = p.Ack.Epoch
	default:
		return true
	}
	if f := e.flows[p.from()]; !p.toGroup() && (f == nil || f.epoch != about) {
		a := p.answer(wire.KindRefusal)
		a.Refusal = wire.Refusal{Epoch: about, Reason: wire.ReasonUnknown}
		e.queue = append(e.queue, a)
	}
	return true
}

// staleAck (AckRidesStale) has an acknowledgement that rides on data say what the
// one before it said.
func staleAck(e *Edge, p *packet) bool {
	if !p.has(wire.FlagAck) {
		return true
	}
	f, fresh := e.flowTo(p.to()), p.Ack
	if p.has(wire.FlagData) {
		p.Ack.Next, p.Ack.Words, p.Ack.Sack = 0, 0, [wire.MaxSackWords]uint32{}
		if f.lastAck.Epoch == fresh.Epoch {
			p.Ack.Next, p.Ack.Words, p.Ack.Sack = f.lastAck.Next, f.lastAck.Words, f.lastAck.Sack
		}
	}
	f.lastAck = fresh
	return true
}

// noAckNow (NeverAsksNow) asks for nothing.
func noAckNow(_ *Edge, p *packet) bool {
	if p.Kind == wire.KindRD {
		p.Flags &^= wire.FlagAckNow
	}
	return true
}

// withinSent (GhostAckTaken) cuts an acknowledgement down to what was sent.
func withinSent(e *Edge, p *packet) bool {
	f := e.flows[p.from()]
	if f == nil || !p.has(wire.FlagAck) || p.Ack.Epoch != f.epoch {
		return true
	}
	a := &p.Ack
	if f.next.Less(a.Next) {
		a.Next, a.Words, a.Sack = f.next, 0, [wire.MaxSackWords]uint32{}
	}
	for i := range int32(a.Words) * 32 {
		if !a.Next.Add(1 + i).Less(f.next) {
			a.Sack[i/32] &^= 1 << (i % 32)
		}
	}
	return true
}

// noRepeats (RepeatsUnheeded) hides that something was sent for nothing.
func noRepeats(_ *Edge, p *packet) bool {
	if p.Kind == wire.KindRD {
		p.Flags &^= wire.FlagDuplicate
	}
	return true
}

// noMarks (MarksIgnored) lets nobody know of marks, coming or going.
func noMarks(_ *Edge, p *packet) bool {
	if p.Kind == wire.KindRD {
		p.TClass &^= link.ECN
		p.Flags &^= wire.FlagMarked
	}
	return true
}

// goOn (NumbersGoOn) counts messages on where the flow before ended.
func goOn(e *Edge, p *packet) bool {
	h, body, ok := p.segment()
	if !ok || !p.has(wire.FlagData) || h.Control.Tagged || h.Untagged.QN > ddp.QueueReadRequest {
		return true
	}
	f, queue := e.flowTo(p.to()), h.Untagged.QN
	if int32(h.Untagged.MSN-f.last[queue]) > 0 {
		f.last[queue] = h.Untagged.MSN
	}
	h.Untagged.MSN += f.before[queue]
	p.setSegment(&h, body)
	return true
}
