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

// Apply implements uswitch.FrameHandler. If the Pipe may hold packets to reorder them, a slot of
// im.held keeps the frame's headers until the Pipe returns the packet; the unused upper bits of the
// packet's flow label carry the slot's number.
func (im *Impairer) Apply(now time.Duration, f uswitch.Frame, emit uswitch.Emit) {
	im.before = im.Pipe.Counters()
	if !im.headers.parse(f.Bytes) || im.headers.alwaysPasses(f.Bytes) {
		emit(0, f) // without delay
		return
	}
	im.headers.datagram(f.Bytes, &im.data)
	slot := uint32(0)
	if im.held.enabled {
		if slot = im.held.store(&im.headers, f.Bytes, f.ChecksumPartial); slot == 0 {
			im.HeldOverflow++ // no slot is free: drop the frame
			return
		}
		im.data.FlowLabel |= slot << slotShift
	}
	reordered := im.reorderCount()
	im.out = im.Pipe.Apply(im.time(now), &im.data, im.out[:0])
	currentSet := false
	for i := range im.out {
		o := &im.out[i]
		if outSlot := o.Datagram.FlowLabel >> slotShift; outSlot != slot {
			im.emitHeld(outSlot, o, emit)
			continue
		}
		if im.unchanged(&o.Datagram) {
			emit(o.Delay, f)
			continue
		}
		if !currentSet {
			im.current.set(&im.headers, f.Bytes, f.ChecksumPartial)
			currentSet = true
		}
		im.emit(&im.current, o, emit)
	}
	switch {
	case !im.held.enabled:
	case im.Pipe.NextTimer() == mono.Never: // the Pipe holds no packet
		im.held.releaseAll()
	case im.reorderCount() == reordered: // the Pipe does not hold this packet
		im.held.release(slot)
	}
}

// reorderCount returns how many packets the Pipe has reordered. It returns 0 if no event of the
// configuration has the action Reorder: the Pipe then holds no packets back.
func (im *Impairer) reorderCount() uint64 {
	if !im.held.enabled {
		return 0
	}
	return im.Pipe.Counters().Reordered
}

// unchanged reports whether d, which the Pipe has returned, equals the received packet. A Pipe
// never changes bytes in place, so comparing the payload's address suffices.
func (im *Impairer) unchanged(d *link.Datagram) bool {
	a, b := d.Payload, im.data.Payload
	return len(a) == len(b) && unsafe.SliceData(a) == unsafe.SliceData(b) &&
		d.TClass == im.data.TClass && d.HopLimit == im.data.HopLimit && d.IPID == im.data.IPID && d.FlowLabel == im.data.FlowLabel
}

// emit emits an output of the Pipe as a frame with the headers of template t.
func (im *Impairer) emit(t *frameTemplate, o *impair.Outcome, emit uswitch.Emit) {
	im.frame = t.appendFrame(im.frame[:0], &o.Datagram)
	emit(o.Delay, uswitch.Frame{Bytes: im.frame, ChecksumPartial: t.partial})
}

// emitHeld emits a packet that the Pipe has returned, with the frame headers that im.held keeps for
// it in this slot. Slots count from 1; a packet with an invalid slot is dropped.
func (im *Impairer) emitHeld(slot uint32, o *impair.Outcome, emit uswitch.Emit) {
	if slot > 0 && int(slot) <= len(im.held.all) {
		im.emit(im.held.all[slot-1], o, emit)
	}
}

// NextTimer implements uswitch.FrameHandler. The Pipe's clock is 0 when the switch's is im.start.
func (im *Impairer) NextTimer() time.Duration {
	next := im.Pipe.NextTimer()
	if next == mono.Never {
		return uswitch.Never
	}
	return time.Duration(next) + im.start
}

// HandleTimer implements uswitch.FrameHandler. It emits the packets that the Pipe held until now.
func (im *Impairer) HandleTimer(now time.Duration, emit uswitch.Emit) {
	im.before = im.Pipe.Counters()
	im.out = im.Pipe.HandleTimer(im.time(now), im.out[:0])
	for i := range im.out {
		im.emitHeld(im.out[i].Datagram.FlowLabel>>slotShift, &im.out[i], emit)
	}
	if im.Pipe.NextTimer() == mono.Never { // the Pipe holds no packet
		im.held.releaseAll()
	}
}

// time converts switch time to the time of the Pipe.
func (im *Impairer) time(now time.Duration) mono.Time { return mono.Time(now - im.start) }
