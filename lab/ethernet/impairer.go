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

// Options configure an Impairer.
type Options struct {
	// Dissector parses the protocol in UDP; may be nil.
	Dissector impair.Dissector
	// Source returns the random streams of the Pipe; see impair.RandSources.
	Source func(kind string) impair.Source
	// Start is the switch time at which the time of the Pipe is 0, from which
	// From and Until of an impair.Spec count. Before it no Spec applies.
	Start time.Duration
}

// Impairer is an impair.Pipe as a uswitch.FrameHandler.
type Impairer struct {
	Pipe *impair.Pipe
	// HeldOverflow counts the packets dropped because the store for packets that reorder events may
	// hold back was full (maxSlots).
	HeldOverflow uint64

	start time.Duration

	headers headers       // of the current packet
	data    link.Datagram // the current packet as the Pipe sees it
	current frameTemplate
	out     []impair.Outcome
	frame   []byte
	held    templateStore

	before impair.Counters // when the current frame arrived, for explanation
}

// NewImpairer returns an Impairer with a new Pipe for cfg. opts.Dissector, by which events select
// packets, sees the payload of UDP packets only.
func NewImpairer(cfg impair.Config, opts Options) (*Impairer, error) {
	p := &Impairer{start: opts.Start}
	var d impair.Dissector
	if opts.Dissector != nil {
		d = &udpDissector{opts.Dissector, p}
	}
	var err error
	if p.Pipe, err = impair.NewPipe(cfg, d, opts.Source); err != nil {
		return nil, err
	}
	for i := range cfg.Events { // only reorder events hold packets back
		p.held.enabled = p.held.enabled || cfg.Events[i].Action.Kind == impair.Reorder
	}
	return p, nil
}

// udpDissector restricts a Dissector to UDP packets.
type udpDissector struct {
	impair.Dissector
	impairer *Impairer
}

// Dissect implements impair.Dissector. It returns false unless the current packet is UDP.
func (d *udpDissector) Dissect(payload []byte) (impair.Flow, uint32, bool) {
	if d.impairer.headers.proto != link.ProtocolUDP {
		return 0, 0, false
	}
	return d.Dissector.Dissect(payload)
}

// SetField implements impair.Dissector. It returns an error unless the current packet is UDP.
func (d *udpDissector) SetField(dg *link.Datagram, field string, value uint64) error {
	if d.impairer.headers.proto != link.ProtocolUDP {
		return fmt.Errorf("field %s: the packet is not UDP", field)
	}
	return d.Dissector.SetField(dg, field, value)
}

// Apply implements uswitch.FrameHandler. A Pipe that reorders may hold the packet and return it
// later. The frame's headers are then stored in a slot of p.held, and the unused upper bits of the
// packet's flow label carry the slot's number. Without a free slot the frame is dropped.
func (p *Impairer) Apply(now time.Duration, f uswitch.Frame, emit uswitch.Emit) {
	p.before = p.Pipe.Counters()
	if !p.headers.parse(f.Bytes) || p.headers.alwaysPasses(f.Bytes) {
		emit(0, f) // without delay
		return
	}
	p.headers.datagram(f.Bytes, &p.data)
	slot := uint32(0)
	if p.held.enabled {
		if slot = p.held.store(&p.headers, f.Bytes, f.ChecksumPartial); slot == 0 {
			p.HeldOverflow++
			return
		}
		p.data.FlowLabel |= slot << slotShift
	}
	reordered := p.reorderCount()
	p.out = p.Pipe.Apply(p.time(now), &p.data, p.out[:0])
	currentSet := false
	for i := range p.out {
		o := &p.out[i]
		if outSlot := o.Datagram.FlowLabel >> slotShift; outSlot != slot {
			p.emitHeld(outSlot, o, emit)
			continue
		}
		if p.unchanged(&o.Datagram) {
			emit(o.Delay, f)
			continue
		}
		if !currentSet {
			p.current.set(&p.headers, f.Bytes, f.ChecksumPartial)
			currentSet = true
		}
		p.emit(&p.current, o, emit)
	}
	switch {
	case !p.held.enabled:
	case p.Pipe.NextTimer() == mono.Never: // the Pipe holds no packet
		p.held.releaseAll()
	case p.reorderCount() == reordered: // the Pipe does not hold this packet
		p.held.release(slot)
	}
}

// reorderCount returns how many packets the Pipe has reordered; 0 if no event reorders.
func (p *Impairer) reorderCount() uint64 {
	if !p.held.enabled {
		return 0
	}
	return p.Pipe.Counters().Reordered
}

// unchanged reports whether d, which the Pipe has returned, equals the received packet. A Pipe
// never changes bytes in place, so comparing the payload's address suffices.
func (p *Impairer) unchanged(d *link.Datagram) bool {
	a, b := d.Payload, p.data.Payload
	return len(a) == len(b) && unsafe.SliceData(a) == unsafe.SliceData(b) &&
		d.TClass == p.data.TClass && d.HopLimit == p.data.HopLimit && d.IPID == p.data.IPID && d.FlowLabel == p.data.FlowLabel
}

// emit emits an output of the Pipe as a frame with the headers of template t.
func (p *Impairer) emit(t *frameTemplate, o *impair.Outcome, emit uswitch.Emit) {
	p.frame = t.appendFrame(p.frame[:0], &o.Datagram)
	emit(o.Delay, uswitch.Frame{Bytes: p.frame, ChecksumPartial: t.partial})
}

// emitHeld emits a packet that the Pipe has returned, with the frame headers that p.held keeps for
// it in this slot. Slots count from 1; a packet with an invalid slot is dropped.
func (p *Impairer) emitHeld(slot uint32, o *impair.Outcome, emit uswitch.Emit) {
	if slot > 0 && int(slot) <= len(p.held.all) {
		p.emit(p.held.all[slot-1], o, emit)
	}
}

// NextTimer implements uswitch.FrameHandler. The Pipe's clock is 0 when the switch's is p.start.
func (p *Impairer) NextTimer() time.Duration {
	next := p.Pipe.NextTimer()
	if next == mono.Never {
		return uswitch.Never
	}
	return time.Duration(next) + p.start
}

// HandleTimer implements uswitch.FrameHandler. It emits the packets that the Pipe held until now.
func (p *Impairer) HandleTimer(now time.Duration, emit uswitch.Emit) {
	p.before = p.Pipe.Counters()
	p.out = p.Pipe.HandleTimer(p.time(now), p.out[:0])
	for i := range p.out {
		p.emitHeld(p.out[i].Datagram.FlowLabel>>slotShift, &p.out[i], emit)
	}
	if p.Pipe.NextTimer() == mono.Never { // the Pipe holds no packet
		p.held.releaseAll()
	}
}

// time converts switch time to the time of the Pipe.
func (p *Impairer) time(now time.Duration) mono.Time { return mono.Time(now - p.start) }
