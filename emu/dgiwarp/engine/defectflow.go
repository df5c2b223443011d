package engine

import (
	"bytes"
	"encoding/binary"

	"github.com/fabrictest/fabrictest/emu/dgiwarp/rd"
	"github.com/fabrictest/fabrictest/emu/internal/iwarp"
	ddp "github.com/fabrictest/fabrictest/emu/softiwarp/wire"
	"github.com/fabrictest/fabrictest/verbs"
)

// takesAnyway reports whether what begins a Send is looked at even if there is no
// receive for it: the defects that do so decide in takeDefective.
func (n *NIC) takesAnyway() bool {
	q := &n.cfg.Defects
	return q.BusyAcknowledges || q.ReceiveTakenWrong || q.SourcesMixed
}

// takeDefective is what becomes of a segment that would be handed to h.
func (p *peer) takeDefective(h *half, d *ddp.Header, segment []byte) bool {
	q := p.qp
	defects := &q.nic.cfg.Defects
	send := h != nil && h == p.serve && !d.Control.Tagged && d.Untagged.QN == ddp.QueueSend
	switch {
	case defects.ErrorQPGoesOn && q.state == verbs.QPStateErr:
		return true
	case defects.BusyHoldsWrites && q.receivesLeft() == 0:
		return false
	case defects.BusyAcknowledges && send:
		return p.loseBusy(h, d, segment)
	case defects.ReceiveTakenWrong && send:
		return p.gatherFirst(h, d, segment)
	case defects.SourcesMixed && send:
		return p.mix(h, d, segment)
	}
	p.hand(h, segment)
	if defects.ErrorsSilent && h != nil {
		h.stream.Forgive()
	}
	return true
}

// lostSends (BusyAcknowledges) is how many Sends of a flow were dropped, and
// whether one is being dropped now.
type lostSends struct {
	count ddp.MSN
	now   bool
}

// loseBusy drops a Send that finds no receive. Those behind it are made to count
// as if it had never been.
func (p *peer) loseBusy(h *half, d *ddp.Header, segment []byte) bool {
	f := p.qp.nic.defects
	l := f.lost[h]
	if l == nil {
		l = new(lostSends)
		f.lost[h] = l
	}
	if d.Untagged.MO == 0 && h.stream.Live() {
		l.now = p.qp.receivesLeft() == 0
	}
	if !l.now {
		return p.hand(h, renumbered(segment, d.Untagged.MSN-l.count, d.Untagged.MO))
	}
	if d.Control.Last {
		l.now = false
		l.count++
	}
	return true
}

// gatherFirst (ReceiveTakenWrong) keeps the segments of a Send until the last has
// come, and only then needs a receive.
func (p *peer) gatherFirst(h *half, d *ddp.Header, segment []byte) bool {
	f := p.qp.nic.defects
	if !d.Control.Last {
		f.early[h] = append(f.early[h], bytes.Clone(segment))
		return true
	}
	if p.qp.receivesLeft() == 0 {
		return false
	}
	for _, s := range f.early[h] {
		p.hand(h, s)
	}
	delete(f.early, h)
	return p.hand(h, segment)
}

// mix (SourcesMixed) appends a segment to the message that the QP is putting
// together, whoever that is of.
func (p *peer) mix(h *half, d *ddp.Header, segment []byte) bool {
	f := p.qp.nic.defects
	into := f.assembling[p.qp]
	if into == nil || !into.stream.Live() {
		if d.Untagged.MO == 0 && h.stream.Live() && p.qp.receivesLeft() == 0 {
			return false
		}
		into = h
	}
	msn, mo := into.stream.Expected()
	f.assembling[p.qp] = into
	if d.Control.Last {
		delete(f.assembling, p.qp)
	}
	return into.peer.hand(into, renumbered(segment, msn, mo))
}

// renumbered is an untagged segment with another MSN and MO.
func renumbered(segment []byte, msn ddp.MSN, mo uint32) []byte {
	s := bytes.Clone(segment)
	binary.BigEndian.PutUint32(s[ddp.ControlLen+8:], uint32(msn))
	binary.BigEndian.PutUint32(s[ddp.ControlLen+12:], mo)
	return s
}

// presume (RDCompletesAtOnce) completes what has left to a peer.
func (n *NIC) presume(r *rd.Peer) {
	if p, ok := r.Owner.(*peer); ok && p.asks != nil && !r.Unsent() && p.asks.stream.Live() {
		p.asks.stream.Presume()
	}
}

// find returns the request that a stream calls r.
func (p *peer) find(r *iwarp.Request) *request {
	for x := p.first; x != nil; x = x.next {
		if &x.Request == r {
			return x
		}
	}
	panic("engine: a stream completes what was not posted to it")
}

// pushOrigin notes which half a segment is of. Without a window (Flows.NoWindow)
// there may be more of them than a flow should have.
func (p *peer) pushOrigin(serve bool) {
	if !p.qp.nic.cfg.Defects.Flows.NoWindow {
		p.origin.push(serve)
		return
	}
	f := p.qp.nic.defects
	o := f.origins[p]
	o.Push(serve)
	f.origins[p] = o
}

func (p *peer) popOrigin() (serve bool) {
	if !p.qp.nic.cfg.Defects.Flows.NoWindow {
		return p.origin.pop()
	}
	f := p.qp.nic.defects
	o := f.origins[p]
	serve, _ = o.Pop()
	f.origins[p] = o
	return serve
}
