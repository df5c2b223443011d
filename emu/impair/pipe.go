package impair

import (
	"errors"
	"fmt"
	"time"

	"github.com/fabrictest/fabrictest/emu/link"
	"github.com/fabrictest/fabrictest/emu/mono"
)

// Config configures a Pipe: events apply first, then each Spec. The zero Config has no effect.
type Config struct {
	Specs  []Spec  `json:"specs,omitempty" yaml:"specs,omitempty"`
	Events []Event `json:"events,omitempty" yaml:"events,omitempty"`
}

// Validate returns all errors of c. d is the Dissector of the Pipe, or nil.
func (c *Config) Validate(d Dissector) error {
	var errs []error
	for i := range c.Specs {
		if err := c.Specs[i].Validate(); err != nil {
			errs = append(errs, fmt.Errorf("specs[%d]: %w", i, err))
		}
	}
	for i := range c.Events {
		if err := c.Events[i].Validate(d); err != nil {
			errs = append(errs, fmt.Errorf("events[%d]: %w", i, err))
		}
	}
	return errors.Join(errs...)
}

// Outcome is a packet that leaves a Pipe Delay after it arrived. Its payload is
// valid until the next call of Apply or HandleTimer.
type Outcome struct {
	Delay    time.Duration
	Datagram link.Datagram
}

// Counters are the counters of a Pipe.
type Counters struct {
	Offered, Emitted uint64

	Lost, LostInBurst, Overflowed uint64
	Duplicated, Reordered         uint64
	Corrupted, Truncated, Marked  uint64

	EventsFired   uint64
	EventsDropped uint64 // packets dropped by an Event
	EventsFailed  uint64 // actions that could not be applied: see Err
}

// Pipe impairs the packets of one direction of one link.
type Pipe struct {
	stages         []*stage
	events         []eventState
	dissector      Dissector
	newSource      func(kind string) Source
	sources        map[string]Source // by name: a Spec that is set again continues its streams
	needsDissector bool              // some event matches by flow or sequence number
	counters       Counters
	err            error

	held    []heldPacket
	arena   []byte // payloads changed since the last call
	scratch []Outcome
	copies  []Outcome
	due     []int // indexes of the events that apply to the current packet
}

// heldPacket is a packet that a reorder event holds.
type heldPacket struct {
	datagram      link.Datagram
	match         Match
	overtakesLeft int // packets that must still overtake
	deadline      mono.Time
}

// NewPipe returns a Pipe for cfg. d, which parses packets for events, may be nil if no event needs
// it. source is called once for each enabled kind of impairment, with a name such as "0/loss"
// (index of the Spec, kind), and must return independent streams for different names; it may be nil
// if there are no Specs.
func NewPipe(cfg Config, d Dissector, source func(kind string) Source) (*Pipe, error) {
	if err := cfg.Validate(d); err != nil {
		return nil, err
	}
	p := &Pipe{dissector: d, newSource: source}
	p.setStages(cfg.Specs)
	for _, e := range cfg.Events {
		p.events = append(p.events, eventState{Event: e})
		p.needsDissector = p.needsDissector || e.Match.Flow != nil || e.Match.Seq != nil
	}
	return p, nil
}

// setStages creates a stage for each Spec that has an effect. Its random streams have the names
// "index/kind", with the index of the Spec.
func (p *Pipe) setStages(specs []Spec) {
	p.stages = nil
	for i, spec := range specs {
		if !spec.transparent() {
			p.stages = append(p.stages, newStage(spec, func(kind string) Source {
				return p.sourceFor(fmt.Sprintf("%d/%s", i, kind))
			}))
		}
	}
}

// sourceFor returns the random source called name, which it creates on first use.
func (p *Pipe) sourceFor(name string) Source {
	s, ok := p.sources[name]
	if !ok {
		if p.sources == nil {
			p.sources = make(map[string]Source)
		}
		s = p.newSource(name)
		p.sources[name] = s
	}
	return s
}

// SetSpecs replaces the random impairments from the next packet on. Counters and events are kept.
// An impairment keeps its random stream if earlier Specs had the same kind at the same index. Burst
// states and queues are reset.
func (p *Pipe) SetSpecs(specs []Spec) error {
	c := Config{Specs: specs}
	if err := c.Validate(nil); err != nil {
		return err
	}
	p.setStages(specs)
	return nil
}

// Transparent reports whether the Pipe never has an effect, so that a caller may bypass it.
func (p *Pipe) Transparent() bool { return len(p.stages) == 0 && len(p.events) == 0 }

// Counters returns the Pipe's counters.
func (p *Pipe) Counters() Counters { return p.counters }

// Err returns the first error of an event whose action could not be applied,
// such as a missing field or a bit beyond the end. The packet passed unchanged.
func (p *Pipe) Err() error { return p.err }

// Fired returns how often each event has fired, in the order of Config.Events.
func (p *Pipe) Fired() []uint64 {
	all := make([]uint64, len(p.events))
	for i := range p.events {
		all[i] = p.events[i].fired
	}
	return all
}

// Apply impairs d and appends the resulting packets to out: d, perhaps changed or delayed, unless
// it is lost or held; its duplicates; and packets held by reorder events that enough packets have
// now overtaken. It does not change the bytes of d's payload.
func (p *Pipe) Apply(now mono.Time, d *link.Datagram, out []Outcome) []Outcome {
	p.counters.Offered++
	p.arena = p.arena[:0] // the payloads of the last call's outcomes are no longer valid
	start := len(out)
	if len(p.events) > 0 {
		out = p.applyEvents(now, d, out)
	} else {
		out = append(out, Outcome{Datagram: *d})
	}
	return p.applyStages(now, out, start)
}

// NextTimer returns when HandleTimer must next be called; mono.Never if not at all.
func (p *Pipe) NextTimer() mono.Time {
	next := mono.Never
	for i := range p.held {
		next = min(next, p.held[i].deadline)
	}
	return next
}

// HandleTimer releases the packets that a reorder event has held until their deadline: it applies
// the random impairments to them and appends them to out.
func (p *Pipe) HandleTimer(now mono.Time, out []Outcome) []Outcome {
	p.arena = p.arena[:0]
	start := len(out)
	out = p.release(out, func(h *heldPacket) bool { return h.deadline <= now })
	return p.applyStages(now, out, start)
}

// applyStages applies every Spec that is active now to out[start:], one after the
// other, and counts the packets that remain as emitted.
func (p *Pipe) applyStages(now mono.Time, out []Outcome, start int) []Outcome {
	for _, s := range p.stages {
		if !s.spec.active(now) {
			continue
		}
		p.scratch = append(p.scratch[:0], out[start:]...)
		out = out[:start]
		for _, o := range p.scratch {
			out = p.applyStage(s, now, o, out)
		}
	}
	p.counters.Emitted += uint64(len(out) - start)
	return out
}

// copyPayload replaces d's payload by a copy, which may be changed. The arena holds such copies
// until the next Apply or HandleTimer.
func (p *Pipe) copyPayload(d *link.Datagram) {
	start := len(p.arena)
	p.arena = append(p.arena, d.Payload...)
	d.Payload = p.arena[start:len(p.arena):len(p.arena)]
}

// flipBit inverts a bit of a copy of d's payload; bit 0 is the most significant bit of byte 0.
func (p *Pipe) flipBit(d *link.Datagram, bit int) {
	p.copyPayload(d)
	d.Payload[bit/8] ^= 0x80 >> (bit % 8)
}
