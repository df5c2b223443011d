package ethernet

import (
	"fmt"
	"time"
	"unsafe"

	"github.com/fabrictest/fabrictest/emu/impair"
	"github.com/fabrictest/fabrictest/emu/link"
	"github.com/fabrictest/fabrictest/emu/mono"
	"github.com/fabrictest/fabrictest/netns/uswitch"
)

// Options are those of a Path.
type Options struct {
	// Dissector is what the Pipe knows of the protocol in UDP; nil if nothing.
	Dissector impair.Dissector
	// Source gives the Pipe its streams of chance, as [Sources] does.
	Source func(kind string) impair.Source
	// Start is the switch's time that is 0 to the Pipe, from which the From and
	// Until of an impair.Spec count. Before it no Spec holds.
	Start time.Duration
}

// Path is an impair.Pipe for frames: a uswitch.FrameHandler.
type Impairer struct {
	pipe  *impair.Pipe
	start time.Duration

	now     headers       // of the packet that the Pipe is at
	data    link.Datagram // the same, as the Pipe sees it
	current envelope
	out     []impair.Outcome
	frame   []byte
	held    envelopes

	overfull uint64

	explains bool // a Tap wants to know what happened
	before   impair.Counters
}

var _ uswitch.FrameHandler = (*Impairer)(nil)

// NewPath returns a Path that does what cfg says.
func NewImpairer(cfg impair.Config, opts Options) (*Impairer, error) {
	p := &Impairer{start: opts.Start}
	var d impair.Dissector
	if opts.Dissector != nil {
		d = &datagramsOnly{opts.Dissector, p}
	}
	pipe, err := impair.NewPipe(cfg, d, opts.Source)
	if err != nil {
		return nil, err
	}
	p.pipe = pipe
	for i := range cfg.Events {
		p.held.on = p.held.on || cfg.Events[i].Action.Kind == impair.Reorder
	}
	return p, nil
}

// Pipe returns what the Path is made of, for its counters and errors.
func (p *Impairer) Pipe() *impair.Pipe { return p.pipe }

// Overfull returns how many packets were lost before they came to the Pipe, because
// events that reorder held back 4095 others.
func (p *Impairer) HeldOverflow() uint64 { return p.overfull }

// datagramsOnly keeps a Dissector from taking other protocols for its own.
type datagramsOnly struct {
	impair.Dissector
	path *Impairer
}

func (d *datagramsOnly) Dissect(payload []byte) (impair.Flow, uint32, bool) {
	if d.path.now.proto != protoUDP {
		return 0, 0, false
	}
	return d.Dissector.Dissect(payload)
}

func (d *datagramsOnly) SetField(dg *link.Datagram, field string, value uint64) error {
	if d.path.now.proto != protoUDP {
		return fmt.Errorf("field %s: the packet is not UDP", field)
	}
	return d.Dissector.SetField(dg, field, value)
}

// Apply implements uswitch.FrameHandler.
func (p *Impairer) Apply(now time.Duration, f uswitch.Frame, emit uswitch.Emit) {
	if p.explains {
		p.before = p.pipe.Counters()
	}
	if !p.now.parse(f.Bytes) || p.now.passes(f.Bytes) {
		emit(0, f)
		return
	}
	p.now.datagram(f.Bytes, &p.data)
	slot := uint32(0)
	if p.held.on {
		if slot = p.held.keep(&p.now, f.Bytes, f.ChecksumPartial); slot == 0 {
			p.overfull++
			return
		}
		p.data.FlowLabel |= slot << slotShift
	}
	reordered := p.reordered()
	p.out = p.pipe.Apply(p.time(now), &p.data, p.out[:0])
	wrapped := false
	for i := range p.out {
		o := &p.out[i]
		if from := o.Datagram.FlowLabel >> slotShift; from != slot {
			p.emitHeld(from, o, emit)
			continue
		}
		if p.same(&o.Datagram) {
			emit(o.Delay, f)
			continue
		}
		if !wrapped {
			p.current.wrap(&p.now, f.Bytes, f.ChecksumPartial)
			wrapped = true
		}
		p.emit(&p.current, o, emit)
	}
	if p.held.on {
		p.held.settle(slot, p.reordered() != reordered, p.pipe.NextTimer() == mono.Never)
	}
}

func (p *Impairer) reordered() uint64 {
	if !p.held.on {
		return 0
	}
	return p.pipe.Counters().Reordered
}

// same reports whether d is the packet as it came. A Pipe changes no byte in
// place, so the payload's own place in memory says that it is untouched.
func (p *Impairer) same(d *link.Datagram) bool {
	a, b := d.Payload, p.data.Payload
	return len(a) == len(b) && unsafe.SliceData(a) == unsafe.SliceData(b) &&
		d.TClass == p.data.TClass && d.HopLimit == p.data.HopLimit && d.IPID == p.data.IPID && d.FlowLabel == p.data.FlowLabel
}

func (p *Impairer) emit(e *envelope, o *impair.Outcome, emit uswitch.Emit) {
	p.frame = e.appendFrame(p.frame[:0], &o.Datagram)
	emit(o.Delay, uswitch.Frame{Bytes: p.frame, ChecksumPartial: e.partial})
}

func (p *Impairer) emitHeld(slot uint32, o *impair.Outcome, emit uswitch.Emit) {
	if e := p.held.open(slot); e != nil {
		p.emit(e, o, emit)
	}
}

// NextTimer implements uswitch.FrameHandler.
func (p *Impairer) NextTimer() time.Duration {
	next := p.pipe.NextTimer()
	if next == mono.Never {
		return uswitch.Never
	}
	return time.Duration(next) + p.start
}

// HandleTimer implements uswitch.FrameHandler.
func (p *Impairer) HandleTimer(now time.Duration, emit uswitch.Emit) {
	if p.explains {
		p.before = p.pipe.Counters()
	}
	p.out = p.pipe.HandleTimer(p.time(now), p.out[:0])
	for i := range p.out {
		p.emitHeld(p.out[i].Datagram.FlowLabel>>slotShift, &p.out[i], emit)
	}
	p.held.settle(0, false, p.pipe.NextTimer() == mono.Never)
}

func (p *Impairer) time(now time.Duration) mono.Time { return mono.Time(now - p.start) }
