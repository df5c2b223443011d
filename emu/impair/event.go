package impair

import (
	"bytes"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"github.com/fabrictest/fabrictest/emu/link"
	"github.com/fabrictest/fabrictest/emu/mono"
)

// Event applies one action to one exact packet, or to all that match.
type Event struct {
	Match Match `json:"match" yaml:"match"`
	// Occurrence selects among the packets that match: 1 is the first, as a PSN's first
	// transmission; 2 is the second, its first retransmission; 0 is all.
	Occurrence int    `json:"time,omitempty" yaml:"time,omitempty"`
	Action     Action `json:"action" yaml:"action"`
}

// Flow identifies a flow as the Dissector reads it: in RoCEv2 the destination QP number.
type Flow uint64

// Match selects packets. Empty fields match any.
type Match struct {
	Src  netip.Addr `json:"src,omitzero" yaml:"src,omitempty"`
	Dst  netip.Addr `json:"dst,omitzero" yaml:"dst,omitempty"`
	Flow *Flow      `json:"flow,omitempty" yaml:"flow,omitempty"`
	// Seq is the protocol's sequence number, in RoCEv2 the PSN.
	Seq *uint32 `json:"seq,omitempty" yaml:"seq,omitempty"`
	// Nth is the number of the packet among those that match Src, Dst and Flow,
	// from 1. It excludes Seq and Occurrence.
	Nth *uint64 `json:"nth,omitempty" yaml:"nth,omitempty"`
}

// ActionKind is the kind of an Action.
type ActionKind string

// Action kinds.
const (
	Drop       ActionKind = "drop"
	Duplicate  ActionKind = "duplicate"   // Count copies (0: one), each Delay after the previous
	Delay      ActionKind = "delay"       // by Delay
	Reorder    ActionKind = "reorder"     // after Count (0: one) later packets of the same match, or after Delay at the latest
	CorruptBit ActionKind = "corrupt_bit" // invert Bit of the payload; counted from the end if negative
	Truncate   ActionKind = "truncate"    // to Bytes of payload
	SetECN     ActionKind = "set_ecn"     // to the codepoint ECN
	SetField   ActionKind = "set_field"   // Field to Value, with correct checksums
)

// Action is the action of an Event; the fields used depend on Kind.
type Action struct {
	Kind  ActionKind    `json:"kind" yaml:"kind"`
	Count int           `json:"count,omitempty" yaml:"count,omitempty"`
	Delay time.Duration `json:"delay,omitempty" yaml:"delay,omitempty"`
	Bit   int           `json:"bit,omitempty" yaml:"bit,omitempty"`
	Bytes int           `json:"bytes,omitempty" yaml:"bytes,omitempty"`
	ECN   uint8         `json:"ecn,omitempty" yaml:"ecn,omitempty"`
	Field string        `json:"field,omitempty" yaml:"field,omitempty"`
	Value uint64        `json:"value,omitempty" yaml:"value,omitempty"`
}

// Dissector parses the protocol of the payload for a Pipe.
type Dissector interface {
	// Dissect returns a packet's flow and sequence number; ok is false for other protocols, which
	// match no Flow and no Seq. It neither keeps nor changes payload.
	Dissect(payload []byte) (flow Flow, seq uint32, ok bool)
	// SetField sets a field and updates the checksums that cover it. It may
	// change d.Payload in place.
	SetField(d *link.Datagram, field string, value uint64) error
}

// Validate returns an error for every invalid field. Errors use the names of fields in files, where
// Occurrence is "time", as in "the second time". d is the Dissector of the Pipe; if it is nil,
// flow, seq and set_field are invalid.
func (e *Event) Validate(d Dissector) error {
	var errs []error
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	m := &e.Match
	if d == nil && (m.Flow != nil || m.Seq != nil) {
		bad("match: flow and seq need a dissector, and there is none: match by src, dst and nth")
	}
	if d == nil && e.Action.Kind == SetField {
		bad("action: set_field needs a dissector, and there is none")
	}
	if m.Nth != nil && (m.Seq != nil || e.Occurrence != 0) {
		bad(`match: nth already selects one packet: leave out "seq" and "time"`)
	}
	if m.Nth != nil && *m.Nth == 0 {
		bad("match: nth counts from 1")
	}
	if e.Occurrence < 0 {
		bad("time: %d is negative: give 1 for the first packet that matches, 0 for all", e.Occurrence)
	}
	if err := e.Action.validate(); err != nil {
		errs = append(errs, fmt.Errorf("action: %w", err))
	}
	return errors.Join(errs...)
}

// validate returns an error if the kind is unknown, if Count or Delay is out of range, or if a
// field that the kind needs is invalid.
func (a *Action) validate() error {
	if a.Count < 0 || a.Count > maxCount {
		return fmt.Errorf("count: %d is not in 0..%d", a.Count, maxCount)
	}
	if a.Delay < 0 {
		return fmt.Errorf("delay: %v is negative", a.Delay)
	}
	switch a.Kind {
	case Drop, Duplicate, CorruptBit:
	case Delay:
		if a.Delay == 0 {
			return errors.New("delay: 0 does nothing: give a longer time")
		}
	case Reorder:
		if a.Delay == 0 {
			return errors.New(`reorder: set "delay", the longest time to wait for packets that overtake`)
		}
	case Truncate:
		if a.Bytes < 0 {
			return fmt.Errorf("truncate: %d bytes is negative", a.Bytes)
		}
	case SetECN:
		if a.ECN&^uint8(link.ECN) != 0 {
			return fmt.Errorf("set_ecn: %#b is not a code point of two bits", a.ECN)
		}
	case SetField:
		if a.Field == "" {
			return errors.New(`set_field: no field named: give its name as "field"`)
		}
	default:
		return fmt.Errorf("kind %q is none of drop, duplicate, delay, reorder, corrupt_bit, truncate, set_ecn, set_field", a.Kind)
	}
	return nil
}

// maxCount limits the copies of an event and the packets that overtake.
const maxCount = 1000

// eventState is an Event and its progress.
type eventState struct {
	Event
	seen  uint64 // packets that matched
	fired uint64 // packets to which the action was applied
}

// countMatch counts a packet if it matches, and reports whether the event applies to it. If Nth or
// Occurrence is set, the event applies only to the matching packet with this number.
func (e *eventState) countMatch(d *link.Datagram, dissected dissection) bool {
	if !e.Match.matchesFlow(d, dissected) {
		return false
	}
	if e.Match.Seq != nil && (!dissected.ok || *e.Match.Seq != dissected.seq) {
		return false
	}
	e.seen++
	if e.Match.Nth != nil {
		return e.seen == *e.Match.Nth
	}
	return e.Occurrence == 0 || e.seen == uint64(e.Occurrence)
}

// exhausted reports whether the event applies to no later packet, because the matching packet with
// the number Nth or Occurrence has been counted.
func (e *eventState) exhausted() bool {
	if e.Match.Nth != nil {
		return e.seen >= *e.Match.Nth
	}
	return e.Occurrence > 0 && e.seen >= uint64(e.Occurrence)
}

// dissection is the result of Dissector.Dissect.
type dissection struct {
	flow Flow
	seq  uint32
	ok   bool
}

// matchesFlow reports whether a packet matches Src, Dst and Flow.
func (m *Match) matchesFlow(d *link.Datagram, dissected dissection) bool {
	if m.Src.IsValid() && m.Src.Unmap() != d.Src.Addr().Unmap() {
		return false
	}
	if m.Dst.IsValid() && m.Dst.Unmap() != d.Dst.Addr().Unmap() {
		return false
	}
	return m.Flow == nil || (dissected.ok && *m.Flow == dissected.flow)
}

// applyEvents applies the events to d. It appends to out d (unless an event drops or holds it), the
// copies of d, and the held packets that enough packets have overtaken now. Every event counts d,
// even if another event drops it.
func (p *Pipe) applyEvents(now mono.Time, d *link.Datagram, out []Outcome) []Outcome {
	var dissected dissection
	if p.needsDissector {
		dissected.flow, dissected.seq, dissected.ok = p.dissector.Dissect(d.Payload)
	}
	p.due = p.due[:0]
	for i := range p.events {
		if e := &p.events[i]; !e.exhausted() && e.countMatch(d, dissected) {
			p.due = append(p.due, i)
		}
	}
	heldBefore := len(p.held) // d may overtake these packets
	p.copies = p.copies[:0]
	o, pass := Outcome{Datagram: *d}, true
	for _, i := range p.due {
		if pass = p.fire(now, &p.events[i], &o); !pass {
			break
		}
	}
	if !pass { // d overtakes no held packet
		return append(out, p.copies...)
	}
	out = append(append(out, o), p.copies...)
	for i := range p.held[:heldBefore] {
		if h := &p.held[i]; h.match.matchesFlow(d, dissected) {
			h.overtakesLeft--
		}
	}
	return p.release(out, func(h *heldPacket) bool { return h.overtakesLeft <= 0 })
}

// fire applies the action of event e to packet o. Copies go to p.copies; pass is false if o itself
// is dropped or held. An action that does not fit the packet, such as a truncation to more bytes
// than it has, only counts as failed.
func (p *Pipe) fire(now mono.Time, e *eventState, o *Outcome) (pass bool) {
	e.fired++
	p.counters.EventsFired++
	d, a := &o.Datagram, &e.Action
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
		h := heldPacket{datagram: *d, match: e.Match, overtakesLeft: max(a.Count, 1), deadline: now.Add(a.Delay)}
		h.datagram.Payload = bytes.Clone(d.Payload)
		p.held = append(p.held, h)
		p.counters.Reordered++
		return false
	case CorruptBit:
		bit, total := a.Bit, len(d.Payload)*8
		if bit < 0 { // counted from the end
			bit += total
		}
		if bit < 0 || bit >= total {
			p.fail(e, fmt.Errorf("there is no bit %d in a payload of %d bits", a.Bit, total))
			break
		}
		p.flipBit(d, bit)
		p.counters.Corrupted++
	case Truncate:
		if a.Bytes >= len(d.Payload) {
			p.fail(e, fmt.Errorf("%d bytes is not less than the payload of %d", a.Bytes, len(d.Payload)))
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
			p.fail(e, fmt.Errorf("%s = %#x: %w", a.Field, a.Value, err))
			break
		}
		*d = changed
	}
	return true
}

// fail counts an action of event e that could not be applied, and keeps the first error for Err.
func (p *Pipe) fail(e *eventState, err error) {
	p.counters.EventsFailed++
	if p.err == nil {
		p.err = fmt.Errorf("event %s, matching packet %d: %w", e.Action.Kind, e.seen, err)
	}
}

// release moves the held packets for which done returns true to out, oldest first.
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
