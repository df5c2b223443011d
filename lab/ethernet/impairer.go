package ethernet

import (
	"fmt"
	"time"
	"unsafe"

	"github.com/fabrictest/fabrictest/emu/impair"
	"github.com/fabrictest/fabrictest/emu/link"
	"github.com/fabrictest/fabrictest/emu/mono"
	"github.com/fabrictest/fabrictest/emu/sim"
	"github.com/fabrictest/fabrictest/netns/uswitch"
)

// Options configure an Impairer.
type Options struct {
	// Dissector parses the protocol in UDP; may be nil.
	Dissector impair.Dissector
	// Source returns the random streams of the Pipe; see [Sources].
	Source func(kind string) impair.Source
	// Start is the switch time at which the time of the Pipe is 0, from which
	// From and Until of an impair.Spec count. Before it no Spec applies.
	Start time.Duration
}

// Impairer is an impair.Pipe as a uswitch.FrameHandler.
type Impairer struct {
	pipe  *impair.Pipe
	start time.Duration

	headers headers       // of the current packet
	data    link.Datagram // the current packet as the Pipe sees it
	current frameTemplate
	out     []impair.Outcome
	frame   []byte
	held    templateStore

	heldOverflow uint64

	explainEnabled bool // a Tap calls explanation
	before         impair.Counters
}

var _ uswitch.FrameHandler = (*Impairer)(nil)

// NewImpairer returns an Impairer for cfg.
func NewImpairer(cfg impair.Config, opts Options) (*Impairer, error) {
	p := &Impairer{start: opts.Start}
	var d impair.Dissector
	if opts.Dissector != nil {
		d = &udpDissector{opts.Dissector, p}
	}
	pipe, err := impair.NewPipe(cfg, d, opts.Source)
	if err != nil {
		return nil, err
	}
	p.pipe = pipe
	for i := range cfg.Events {
		p.held.enabled = p.held.enabled || cfg.Events[i].Action.Kind == impair.Reorder
	}
	return p, nil
}

// Pipe returns the underlying Pipe, for its counters and errors.
func (p *Impairer) Pipe() *impair.Pipe { return p.pipe }

// HeldOverflow returns the number of packets dropped because reorder events
// held 4095 others.
func (p *Impairer) HeldOverflow() uint64 { return p.heldOverflow }

// udpDissector restricts a Dissector to UDP packets.
type udpDissector struct {
	impair.Dissector
	impairer *Impairer
}

func (d *udpDissector) Dissect(payload []byte) (impair.Flow, uint32, bool) {
	if d.impairer.headers.proto != protoUDP {
		return 0, 0, false
	}
	return d.Dissector.Dissect(payload)
}

func (d *udpDissector) SetField(dg *link.Datagram, field string, value uint64) error {
	if d.impairer.headers.proto != protoUDP {
		return fmt.Errorf("field %s: the packet is not UDP", field)
	}
	return d.Dissector.SetField(dg, field, value)
}

// Apply implements uswitch.FrameHandler.
func (p *Impairer) Apply(now time.Duration, f uswitch.Frame, emit uswitch.Emit) {
	if p.explainEnabled {
		p.before = p.pipe.Counters()
	}
	if !p.headers.parse(f.Bytes) || p.headers.alwaysPasses(f.Bytes) {
		emit(0, f)
		return
	}
	p.headers.datagram(f.Bytes, &p.data)
	slot := uint32(0)
	if p.held.enabled {
		if slot = p.held.store(&p.headers, f.Bytes, f.ChecksumPartial); slot == 0 {
			p.heldOverflow++
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
		if p.unchanged(&o.Datagram) {
			emit(o.Delay, f)
			continue
		}
		if !wrapped {
			p.current.set(&p.headers, f.Bytes, f.ChecksumPartial)
			wrapped = true
		}
		p.emit(&p.current, o, emit)
	}
	if p.held.enabled {
		p.held.release(slot, p.reordered() != reordered, p.pipe.NextTimer() == mono.Never)
	}
}

func (p *Impairer) reordered() uint64 {
	if !p.held.enabled {
		return 0
	}
	return p.pipe.Counters().Reordered
}

// unchanged reports whether d is the received packet. A Pipe never changes
// bytes in place, so comparing the payload's address suffices.
func (p *Impairer) unchanged(d *link.Datagram) bool {
	a, b := d.Payload, p.data.Payload
	return len(a) == len(b) && unsafe.SliceData(a) == unsafe.SliceData(b) &&
		d.TClass == p.data.TClass && d.HopLimit == p.data.HopLimit && d.IPID == p.data.IPID && d.FlowLabel == p.data.FlowLabel
}

func (p *Impairer) emit(e *frameTemplate, o *impair.Outcome, emit uswitch.Emit) {
	p.frame = e.appendFrame(p.frame[:0], &o.Datagram)
	emit(o.Delay, uswitch.Frame{Bytes: p.frame, ChecksumPartial: e.partial})
}

func (p *Impairer) emitHeld(slot uint32, o *impair.Outcome, emit uswitch.Emit) {
	if e := p.held.get(slot); e != nil {
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
	if p.explainEnabled {
		p.before = p.pipe.Counters()
	}
	p.out = p.pipe.HandleTimer(p.time(now), p.out[:0])
	for i := range p.out {
		p.emitHeld(p.out[i].Datagram.FlowLabel>>slotShift, &p.out[i], emit)
	}
	p.held.release(0, false, p.pipe.NextTimer() == mono.Never)
}

func (p *Impairer) time(now time.Duration) mono.Time { return mono.Time(now - p.start) }

// Direction is the direction of packets at a host's port.
type Direction string

// Directions, named as in package sim.
const (
	Up   Direction = "up"   // from the host: uswitch.In at its port
	Down Direction = "down" // to the host: uswitch.Out
)

// Sources returns the random streams that a port has in a simulation with that
// seed, net and port name: the same packets in the same order get the same
// decisions.
func Sources(seed uint64, net, port string, dir Direction) func(kind string) impair.Source {
	w := sim.New(sim.Config{Seed: seed})
	return func(kind string) impair.Source {
		return w.Rand(net + "/" + port + "/" + string(dir) + "/" + kind)
	}
}
