package ethernet

import (
	"encoding/binary"
	"net/netip"
	"strings"
	"time"

	"github.com/fabrictest/fabrictest/emu/impair"
	"github.com/fabrictest/fabrictest/emu/link"
	"github.com/fabrictest/fabrictest/netns/uswitch"
)

// Filter is a FrameHandler that drops every IP packet and ARP message between two addresses for
// which Blocked is true, and passes the rest to Next.
type Filter struct {
	Next        uswitch.FrameHandler
	Blocked     func(src, dst netip.Addr) bool
	Dropped     uint64 // number of frames
	lastBlocked bool   // the last frame was dropped here
}

// Apply implements uswitch.FrameHandler. It drops frames between addresses that a partition
// separates, as Blocked reports, and passes the others to Next.
func (f *Filter) Apply(now time.Duration, frame uswitch.Frame, emit uswitch.Emit) {
	src, dst, ok := addresses(frame.Bytes)
	if f.lastBlocked = ok && f.Blocked(src, dst); f.lastBlocked {
		f.Dropped++
		return
	}
	f.Next.Apply(now, frame, emit)
}

// NextTimer implements uswitch.FrameHandler.
func (f *Filter) NextTimer() time.Duration { return f.Next.NextTimer() }

// HandleTimer implements uswitch.FrameHandler.
func (f *Filter) HandleTimer(now time.Duration, emit uswitch.Emit) { f.Next.HandleTimer(now, emit) }

// addresses returns the source and destination of an IP packet or of an ARP message for IPv4;
// ok is false for other frames.
func addresses(b []byte) (src, dst netip.Addr, ok bool) {
	var h headers
	if h.parse(b) {
		src, dst = link.IPAddrs(b[h.l3:])
		return src, dst, true
	}
	at, typ, ok := etherPayload(b)
	if !ok || typ != etherARP {
		return src, dst, false
	}
	const arpLen = 28 // of a message for IPv4
	arp := b[at:]
	if len(arp) < arpLen || binary.BigEndian.Uint16(arp[2:]) != link.EtherTypeIPv4 { // the protocol type
		return src, dst, false
	}
	sender, target := netip.AddrFrom4([4]byte(arp[14:18])), netip.AddrFrom4([4]byte(arp[24:28]))
	return sender, target, true
}

// explainer is a FrameHandler that can describe what it did to the last frame.
type explainer interface {
	// explanation is empty if the frame was unchanged or only delayed.
	explanation() string
}

// explanation lists what the Pipe did to the last frame.
func (im *Impairer) explanation() string { return Explain(im.before, im.Pipe.Counters()) }

// Explain lists what a Pipe did to a packet: the effects whose counters have grown. An event, an
// action on a single packet, usually causes another effect, and is listed only if it did not.
func Explain(before, after impair.Counters) string {
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

// explanation says why the last frame was lost or what changed it.
func (f *Filter) explanation() string {
	if f.lastBlocked {
		return "lost: partitioned"
	}
	return explanation(f.Next)
}

// explanation returns what a handler did to the last frame, for its comment in the capture; empty
// if the handler is no explainer.
func explanation(h uswitch.FrameHandler) string {
	if e, ok := h.(explainer); ok {
		return e.explanation()
	}
	return ""
}
