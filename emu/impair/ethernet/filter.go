package ethernet

import (
	"encoding/binary"
	"net/netip"
	"time"

	"github.com/fabrictest/fabrictest/netns/uswitch"
)

// Filter is a Path that keeps addresses apart: a partition of a network.
type Filter struct {
	next    uswitch.FrameHandler
	blocked func(src, dst netip.Addr) bool
	count   uint64
	last    bool // the last frame was blocked
}

var _ uswitch.FrameHandler = (*Filter)(nil)

// Block returns a Path that loses every IP packet, and every ARP message, from src
// to dst for which blocked says so, and puts the rest through next; nil passes
// everything.
func NewFilter(next uswitch.FrameHandler, blocked func(src, dst netip.Addr) bool) *Filter {
	return &Filter{next: orTransparent(next), blocked: blocked}
}

// Blocked returns how many frames were lost here.
func (f *Filter) Blocked() uint64 { return f.count }

// Apply implements uswitch.FrameHandler.
func (f *Filter) Apply(now time.Duration, frame uswitch.Frame, emit uswitch.Emit) {
	src, dst, ok := addresses(frame.Bytes)
	if f.last = ok && f.blocked(src, dst); f.last {
		f.count++
		return
	}
	f.next.Apply(now, frame, emit)
}

// NextTimer implements uswitch.FrameHandler.
func (f *Filter) NextTimer() time.Duration { return f.next.NextTimer() }

// HandleTimer implements uswitch.FrameHandler.
func (f *Filter) HandleTimer(now time.Duration, emit uswitch.Emit) { f.next.HandleTimer(now, emit) }

// addresses returns who speaks to whom in a frame.
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

// transparent is the Path that does nothing.
type transparent struct{}

func (transparent) Apply(_ time.Duration, f uswitch.Frame, emit uswitch.Emit) { emit(0, f) }
func (transparent) NextTimer() time.Duration                                  { return uswitch.Never }
func (transparent) HandleTimer(time.Duration, uswitch.Emit)                   {}

func orTransparent(p uswitch.FrameHandler) uswitch.FrameHandler {
	if p == nil {
		return transparent{}
	}
	return p
}
