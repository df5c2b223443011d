package ethernet

import (
	"encoding/binary"
	"net/netip"
	"strings"
	"time"

	"github.com/fabrictest/fabrictest/emu/link"
	"github.com/fabrictest/fabrictest/netns/uswitch"
)

// Filter is a FrameHandler that drops packets between partitioned addresses.
type Filter struct {
	next        uswitch.FrameHandler
	blocked     func(src, dst netip.Addr) bool
	count       uint64
	lastBlocked bool // the last frame was dropped here
}

var _ uswitch.FrameHandler = (*Filter)(nil)

// NewFilter returns a Filter that drops every IP packet and ARP message for
// which blocked is true, and passes the rest to next; a nil next forwards them
// unchanged.
func NewFilter(next uswitch.FrameHandler, blocked func(src, dst netip.Addr) bool) *Filter {
	return &Filter{next: orPassThrough(next), blocked: blocked}
}

// Blocked returns the number of dropped frames.
func (f *Filter) Blocked() uint64 { return f.count }

// Apply implements uswitch.FrameHandler. It drops blocked frames.
func (f *Filter) Apply(now time.Duration, frame uswitch.Frame, emit uswitch.Emit) {
	src, dst, ok := addresses(frame.Bytes)
	if f.lastBlocked = ok && f.blocked(src, dst); f.lastBlocked {
		f.count++
		return
	}
	f.next.Apply(now, frame, emit)
}

// NextTimer implements uswitch.FrameHandler.
func (f *Filter) NextTimer() time.Duration { return f.next.NextTimer() }

// HandleTimer implements uswitch.FrameHandler.
func (f *Filter) HandleTimer(now time.Duration, emit uswitch.Emit) { f.next.HandleTimer(now, emit) }

// addresses returns the source and destination of an IP packet or of an ARP message for IPv4;
// ok is false for other frames.
func addresses(b []byte) (src, dst netip.Addr, ok bool) {
	var h headers
	if h.parse(b) {
		src, dst = link.IPAddrs(b[h.l3:])
		return src, dst, true
	}
	at, typ, ok := etherPayload(b)
	if arp := b[min(at, len(b)):]; ok && typ == etherARP && len(arp) >= 28 && binary.BigEndian.Uint16(arp[2:]) == link.EtherTypeIPv4 {
		return netip.AddrFrom4([4]byte(arp[14:18])), netip.AddrFrom4([4]byte(arp[24:28])), true
	}
	return src, dst, false
}

// passThrough forwards all frames unchanged.
type passThrough struct{}

func (passThrough) Apply(_ time.Duration, f uswitch.Frame, emit uswitch.Emit) { emit(0, f) }
func (passThrough) NextTimer() time.Duration                                  { return uswitch.Never }
func (passThrough) HandleTimer(time.Duration, uswitch.Emit)                   {}

// orPassThrough returns h, or passThrough if h is nil.
func orPassThrough(h uswitch.FrameHandler) uswitch.FrameHandler {
	if h == nil {
		return passThrough{}
	}
	return h
}

// explainer is a FrameHandler that can describe what it did to the last frame.
type explainer interface {
	// enableExplanation must be called before explanation is used.
	enableExplanation()
	// explanation is empty if the frame was unchanged or only delayed.
	explanation() string
}

// enableExplanation implements explainer. From now on p keeps its counters of before each frame.
func (p *Impairer) enableExplanation() { p.explainEnabled = true }

// explanation lists the effects whose counters in the Pipe have grown since the last frame
// arrived. "event" is listed only without another effect, which then is that of the event.
func (p *Impairer) explanation() string {
	after, before := p.pipe.Counters(), &p.before
	var effects []string
	for _, c := range []struct {
		effect string
		grown  bool
	}{
		{"lost", after.Lost != before.Lost},
		{"lost in a burst", after.LostInBurst != before.LostInBurst},
		{"lost: queue full", after.Overflowed != before.Overflowed},
		{"lost by an event", after.EventsDropped != before.EventsDropped},
		{"duplicated", after.Duplicated != before.Duplicated},
		{"reordered", after.Reordered != before.Reordered},
		{"corrupted", after.Corrupted != before.Corrupted},
		{"truncated", after.Truncated != before.Truncated},
		{"marked", after.Marked != before.Marked},
		{"event", after.EventsFired != before.EventsFired},
	} {
		if c.grown && (c.effect != "event" || len(effects) == 0) {
			effects = append(effects, c.effect)
		}
	}
	return strings.Join(effects, ", ")
}

// enableExplanation implements explainer, for the next handler.
func (f *Filter) enableExplanation() {
	if e, ok := f.next.(explainer); ok {
		e.enableExplanation()
	}
}

// explanation implements explainer.
func (f *Filter) explanation() string {
	if f.lastBlocked {
		return "lost: partitioned"
	}
	return explanation(f.next)
}

// explanation returns what a handler did to the last frame, for its comment in the capture; empty
// if the handler is no explainer.
func explanation(h uswitch.FrameHandler) string {
	if e, ok := h.(explainer); ok {
		return e.explanation()
	}
	return ""
}
