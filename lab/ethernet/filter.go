package ethernet

import (
	"encoding/binary"
	"net/netip"
	"time"

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

// Apply implements uswitch.FrameHandler.
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

// addresses returns the source and destination of an IP packet or ARP message.
func addresses(b []byte) (src, dst netip.Addr, ok bool) {
	var h headers
	if h.parse(b) {
		src, dst = h.addrs(b)
		return src, dst, true
	}
	at, typ, ok := etherPayload(b)
	if arp := b[min(at, len(b)):]; ok && typ == etherARP && len(arp) >= 28 && binary.BigEndian.Uint16(arp[2:]) == etherIPv4 {
		return netip.AddrFrom4([4]byte(arp[14:18])), netip.AddrFrom4([4]byte(arp[24:28])), true
	}
	return src, dst, false
}

// passThrough forwards all frames unchanged.
type passThrough struct{}

func (passThrough) Apply(_ time.Duration, f uswitch.Frame, emit uswitch.Emit) { emit(0, f) }
func (passThrough) NextTimer() time.Duration                                  { return uswitch.Never }
func (passThrough) HandleTimer(time.Duration, uswitch.Emit)                   {}

func orPassThrough(p uswitch.FrameHandler) uswitch.FrameHandler {
	if p == nil {
		return passThrough{}
	}
	return p
}
