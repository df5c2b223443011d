package impair

import (
	"errors"
	"fmt"
	"time"

	"github.com/fabrictest/fabrictest/emu/link"
	"github.com/fabrictest/fabrictest/emu/mono"
)

// Config is what a Pipe does: the exact events first, then each Spec in turn.
// The zero Config does nothing.
type Config struct {
	Specs  []Spec  `json:"specs,omitempty" yaml:"specs,omitempty"`
	Events []Event `json:"events,omitempty" yaml:"events,omitempty"`
}

// Validate reports every mistake in c with its place. d is the Dissector that
// the Pipe will have; nil if none.
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

// Outcome is a packet that leaves a Pipe, Delay after it came. Its payload may
// be the caller's own bytes or the Pipe's; either way it is valid until the next
// call of Apply or HandleTimer.
type Outcome struct {
	Delay    time.Duration
	Datagram link.Datagram
}

// Counters says what a Pipe has done.
type Counters struct {
	Offered, Emitted uint64

	Lost, LostInBurst, Overflowed uint64
	Duplicated, Reordered         uint64
	Corrupted, Truncated, Marked  uint64

	EventsFired   uint64
	EventsDropped uint64 // packets lost to an Event
	EventsFailed  uint64 // events whose packet did not have what they were to change: see Err
}

// Pipe impairs the packets of one direction of one link.
type Pipe struct {
	stages    []*stage
	events    []expectation
	dissector Dissector
	source    func(kind string) Source
	streams   map[string]Source // asked for so far: those of a Spec that returns go on
	dissects  bool              // some event needs to know the flow or the sequence number
	counters  Counters
	err       error

	held    []held
	arena   []byte // payloads changed since the last call
	scratch []Outcome
	copies  []Outcome
	due     []int
}

// held is a packet that an Event keeps back for others to overtake.
type held struct {
	datagram link.Datagram
	match    Match
	behind   int // packets still to be let by
	deadline mono.Time
}

// NewPipe returns a Pipe for cfg. d may be nil where no event needs it. source
// is asked once for each kind of impairment that is on, by a name that stays the
// same; it must return independent streams for different names, and may be nil
// where there are no Specs.
func NewPipe(cfg Config, d Dissector, source func(kind string) Source) (*Pipe, error) {
	if err := cfg.Validate(d); err != nil {
		return nil, err
	}
	p := &Pipe{dissector: d, source: source}
	p.setStages(cfg.Specs)
	for _, e := range cfg.Events {
		p.events = append(p.events, expectation{Event: e})
		p.dissects = p.dissects || e.Match.Flow != nil || e.Match.Seq != nil
	}
	return p, nil
}

func (p *Pipe) setStages(specs []Spec) {
	p.stages = nil
	for i, spec := range specs {
		if !spec.transparent() {
			p.stages = append(p.stages, newStage(spec, func(kind string) Source {
				return p.stream(fmt.Sprintf("%d/%s", i, kind))
			}))
		}
	}
}

// stream returns the source of that name, which is asked for once.
func (p *Pipe) stream(name string) Source {
	s, ok := p.streams[name]
	if !ok {
		if p.streams == nil {
			p.streams = make(map[string]Source)
		}
		s = p.source(name)
		p.streams[name] = s
	}
	return s
}

// SetSpecs replaces what happens by chance, from the next packet on. Counters
// and exact events go on as they were, and so does the random stream of a kind
// that a Spec at the same place had before; a burst or a queue starts anew.
func (p *Pipe) SetSpecs(specs []Spec) error {
	c := Config{Specs: specs}
	if err := c.Validate(nil); err != nil {
		return err
	}
	p.setStages(specs)
	return nil
}

// Transparent reports that the Pipe passes everything as it is; then a caller
// may go past it.
func (p *Pipe) Transparent() bool { return len(p.stages) == 0 && len(p.events) == 0 }

// Counters returns what the Pipe has done so far.
func (p *Pipe) Counters() Counters { return p.counters }

// Err returns the first failure of an event to do what it says: a field that the
// packet does not have, a bit beyond its end. The packet passed unchanged.
func (p *Pipe) Err() error { return p.err }

// Unfired returns the events that have not happened yet. A test that ends with
// any has not tested what it meant to.
func (p *Pipe) Unfired() []Event {
	var all []Event
	for i := range p.events {
		if p.events[i].fired == 0 {
			all = append(all, p.events[i].Event)
		}
	}
	return all
}

// Fired returns how often each event has happened, in the order of Config.Events.
func (p *Pipe) Fired() []uint64 {
	all := make([]uint64, len(p.events))
	for i := range p.events {
		all[i] = p.events[i].fired
	}
	return all
}

// Apply appends to out what becomes of d, offered now: nothing, d as it is, or
// changed, delayed, more than once; and packets held back before it whose time
// has come with it. It does not change the bytes of d's payload.
func (p *Pipe) Apply(now mono.Time, d *link.Datagram, out []Outcome) []Outcome {
	p.counters.Offered++
	p.arena = p.arena[:0]
	start := len(out)
	if len(p.events) > 0 {
		out = p.applyEvents(now, d, out)
	} else {
		out = append(out, Outcome{Datagram: *d})
	}
	return p.applyStages(now, out, start)
}

// NextTimer is when HandleTimer must next be called; mono.Never if not at all.
func (p *Pipe) NextTimer() mono.Time {
	next := mono.Never
	for i := range p.held {
		next = min(next, p.held[i].deadline)
	}
	return next
}

// HandleTimer appends to out the packets that were held back for others to
// overtake and have waited as long as they may.
func (p *Pipe) HandleTimer(now mono.Time, out []Outcome) []Outcome {
	p.arena = p.arena[:0]
	start := len(out)
	out = p.release(out, func(h *held) bool { return h.deadline <= now })
	return p.applyStages(now, out, start)
}

// applyStages puts out[start:] through every Spec that holds now.
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

// own gives d a payload of the Pipe's, to be changed.
func (p *Pipe) own(d *link.Datagram) {
	start := len(p.arena)
	p.arena = append(p.arena, d.Payload...)
	d.Payload = p.arena[start:len(p.arena):len(p.arena)]
}

// flip inverts a bit of a copy of d's payload; bit 0 is the top bit of byte 0.
func (p *Pipe) flip(d *link.Datagram, bit int) {
	p.own(d)
	d.Payload[bit/8] ^= 0x80 >> (bit % 8)
}
