package rocewire

import (
	"encoding/binary"
	"slices"

	"github.com/fabrictest/fabrictest/emu/softroce/wire"
)

// nextPSN (AckPSNOff) has acknowledgements name the next packet.
func nextPSN(_ *Edge, p *packet) bool {
	if p.is(wire.OpAcknowledge) {
		p.setPSN(p.psn().Next())
	}
	return true
}

// noAck (NoAcks) loses positive acknowledgements.
func noAck(_ *Edge, p *packet) bool {
	s, ok := p.syndrome()
	return !ok || s.Kind() != wire.SyndromeAck
}

// noRNR (RNRSilent) loses RNR NAKs.
func noRNR(_ *Edge, p *packet) bool {
	s, ok := p.syndrome()
	return !ok || s.Kind() != wire.SyndromeRNR
}

// fixedRNR (RNRTimerIgnored) asks for the shortest wait.
func fixedRNR(_ *Edge, p *packet) bool {
	if s, ok := p.syndrome(); ok && s.Kind() == wire.SyndromeRNR {
		p.setSyndrome(wire.RNRNak(1))
	}
	return true
}

// inventCredits (CreditsInvented) promises 32 receives in every answer.
func inventCredits(_ *Edge, p *packet) bool {
	const of32 = 10
	if h := p.header(wire.HasAETH); h != nil && wire.Syndrome(h[0]).Kind() == wire.SyndromeAck {
		p.setSyndrome(wire.Ack(of32))
	}
	return true
}

// lateMSN (MSNLate) sends ACKs with an MSN that is one too low.
func lateMSN(_ *Edge, p *packet) bool {
	h := p.header(wire.HasAETH)
	if h == nil || wire.Syndrome(h[0]).Kind() != wire.SyndromeAck {
		return true
	}
	v := binary.BigEndian.Uint32(h)
	if wire.MSN(v)&wire.MSNMask > 0 {
		binary.BigEndian.PutUint32(h, v-1)
		p.changed = true
	}
	return true
}

// operationalNAK (BadRecvKeyIsAccess) turns a NAK for a receive that could not be
// filled into one for access.
func operationalNAK(_ *Edge, p *packet) bool {
	if s, ok := p.syndrome(); ok && s == wire.Nak(wire.NakRemoteOperational) {
		p.setSyndrome(wire.Nak(wire.NakRemoteAccess))
	}
	return true
}

// noteHuge (HugeLengthIsAccess) notes where a request is longer than any may be;
// hugeNAK then takes that for an access error.
func noteHuge(e *Edge, p *packet) bool {
	const longest = 1 << 31
	if r, ok := p.reth(); ok && r.DMALen > longest {
		if t, _, ok := e.talkIn(p); ok {
			psn := p.psn()
			t.huge = &psn
		}
	}
	return true
}

func hugeNAK(e *Edge, p *packet) bool {
	s, ok := p.syndrome()
	if at := e.talkOut(p).huge; ok && s == wire.Nak(wire.NakInvalidRequest) && at != nil && *at == p.psn() {
		p.setSyndrome(wire.Nak(wire.NakRemoteAccess))
	}
	return true
}

// noteNeed (AccessNAKsSwapped) notes where a request needs a right that its QP
// does not have; swapNAK then names the other of the two causes.
func noteNeed(e *Edge, p *packet) bool {
	t, q, ok := e.talkIn(p)
	if need := rightFor(p.class()); ok && need != 0 {
		t.barred = nil
		if psn := p.psn(); q.Access&need == 0 {
			t.barred = &psn
		}
	}
	return true
}

func swapNAK(e *Edge, p *packet) bool {
	s, _ := p.syndrome()
	at := e.talkOut(p).barred
	switch {
	case s == wire.Nak(wire.NakRemoteAccess):
		p.setSyndrome(wire.Nak(wire.NakInvalidRequest))
	case s == wire.Nak(wire.NakInvalidRequest) && at != nil && *at == p.psn():
		p.setSyndrome(wire.Nak(wire.NakRemoteAccess))
	}
	return true
}

// samePSN (ReadPSNStuck) gives all responses of a READ the first one's PSN.
func samePSN(e *Edge, p *packet) bool {
	switch t := e.talkOut(p); {
	case p.is(wire.OpReadResponseFirst):
		t.readPSN = p.psn()
	case p.is(wire.OpReadResponseMiddle), p.is(wire.OpReadResponseLast):
		p.setPSN(t.readPSN)
	}
	return true
}

// aethInMiddle (AETHInMiddle) gives MIDDLE responses the AETH of the first, at
// the cost of four bytes each, which the LAST brings.
func aethInMiddle(e *Edge, p *packet) bool {
	t, n := e.talkOut(p), p.info().HeaderLen
	switch {
	case p.is(wire.OpReadResponseFirst):
		t.aeth, t.carry = slices.Clone(p.header(wire.HasAETH)), nil
	case p.is(wire.OpReadResponseMiddle) && len(t.aeth) > 0:
		room := len(p.data()) - wire.AETHLen
		all := slices.Concat(t.carry, p.data())
		t.carry = all[room:]
		p.setData(slices.Concat(p.Payload[:n], t.aeth), all[:room])
	case p.is(wire.OpReadResponseLast) && len(t.carry) > 0:
		p.setData(p.Payload[:n:n], slices.Concat(t.carry, p.data()))
		t.carry = nil
	}
	return true
}

// acksFirst (AckOvertakesRead) puts acknowledgements before READ responses that
// have not left yet.
func (e *Edge) acksFirst() {
	for i := range e.queue {
		for j := i; j > 0 && e.queue[j].is(wire.OpAcknowledge); j-- {
			before := &e.queue[j-1]
			if !before.class().Has(wire.Response|wire.Read) || before.Dst != e.queue[j].Dst || before.destQP() != e.queue[j].destQP() {
				break
			}
			e.queue[j], e.queue[j-1] = e.queue[j-1], e.queue[j]
		}
	}
}
