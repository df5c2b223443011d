package impair

import (
	"bytes"
	"fmt"
	"time"

	"github.com/fabrictest/fabrictest/emu/link"
	"github.com/fabrictest/fabrictest/emu/mono"
)

// applyEvents applies the exact events to d and appends the resulting packets
// to out. Every event counts the packet, even if another event drops it.
func (p *Pipe) applyEvents(now mono.Time, d *link.Datagram, out []Outcome) []Outcome {
	var id dissection
	if p.needsDissector {
		id.flow, id.seq, id.ok = p.dissector.Dissect(d.Payload)
	}
	p.due = p.due[:0]
	for i := range p.events {
		if x := &p.events[i]; !x.exhausted() && x.observe(d, id) {
			p.due = append(p.due, i)
		}
	}
	waiting := len(p.held) // packets held before, which this one may overtake
	p.copies = p.copies[:0]
	o, alive := Outcome{Datagram: *d}, true
	for _, i := range p.due {
		if alive = p.fire(now, &p.events[i], &o); !alive {
			break
		}
	}
	if !alive {
		return append(out, p.copies...)
	}
	out = append(append(out, o), p.copies...)
	for i := range p.held[:waiting] {
		if h := &p.held[i]; h.match.matchesFlow(d, id) {
			h.overtakesLeft--
		}
	}
	return p.release(out, func(h *heldPacket) bool { return h.overtakesLeft <= 0 })
}

// fire applies x's action to o. Copies go to p.copies; alive is false if o
// itself is dropped or held.
func (p *Pipe) fire(now mono.Time, x *eventState, o *Outcome) (alive bool) {
	x.fired++
	p.counters.EventsFired++
	d, a := &o.Datagram, &x.Action
	switch a.Kind {
	case Drop:
		p.counters.EventsDropped++
		return false
	case Duplicate:
		for i := range max(a.Count, 1) {
			c := *o
			c.Delay += a.Delay * time.Duration(i+1)
			p.copies = append(p.copies, c)
			p.counters.Duplicated++
		}
	case Delay:
		o.Delay += a.Delay
	case Reorder:
		h := heldPacket{datagram: *d, match: x.Match, overtakesLeft: max(a.Count, 1), deadline: now.Add(a.Delay)}
		h.datagram.Payload = bytes.Clone(d.Payload)
		p.held = append(p.held, h)
		p.counters.Reordered++
		return false
	case CorruptBit:
		bit, total := a.Bit, len(d.Payload)*8
		if bit < 0 {
			bit += total
		}
		if bit < 0 || bit >= total {
			p.fail(x, fmt.Errorf("bit %d of a payload of %d bits", a.Bit, total))
			break
		}
		p.flipBit(d, bit)
		p.counters.Corrupted++
	case Truncate:
		if a.Bytes >= len(d.Payload) {
			p.fail(x, fmt.Errorf("to %d bytes of a payload of %d", a.Bytes, len(d.Payload)))
			break
		}
		d.Payload = d.Payload[:a.Bytes]
		p.counters.Truncated++
	case SetECN:
		d.TClass = d.TClass&^link.ECN | a.ECN
		p.counters.Marked++
	case SetField:
		changed := *d
		p.copyPayload(&changed)
		if err := p.dissector.SetField(&changed, a.Field, a.Value); err != nil {
			p.fail(x, fmt.Errorf("%s = %#x: %w", a.Field, a.Value, err))
			break
		}
		*d = changed
	}
	return true
}

func (p *Pipe) fail(x *eventState, err error) {
	p.counters.EventsFailed++
	if p.err == nil {
		p.err = fmt.Errorf("event %s, packet %d that matched: %w", x.Action.Kind, x.seen, err)
	}
}

// release appends the held packets for which done is true to out, oldest first.
func (p *Pipe) release(out []Outcome, done func(*heldPacket) bool) []Outcome {
	keep := p.held[:0]
	for i := range p.held {
		if h := p.held[i]; done(&h) {
			out = append(out, Outcome{Datagram: h.datagram})
		} else {
			keep = append(keep, h)
		}
	}
	clear(p.held[len(keep):])
	p.held = keep
	return out
}
