package sim

import (
	"net/netip"
	"slices"
	"testing"

	"github.com/fabrictest/fabrictest/emu/link"
	"github.com/fabrictest/fabrictest/internal/must"
)

// A program that was killed while it was paused does not run when it is resumed, and its number is
// that of the next program.
func TestKilledProgramDoesNotBecomeRunnable(t *testing.T) {
	w := New(Config{})
	var ran []string
	victim := w.Go("victim", func(*Proc) error { ran = append(ran, "victim"); return nil })
	victim.Pause() // it was runnable
	must.Do(t, victim.Kill())
	w.Go("next", func(*Proc) error { ran = append(ran, "next"); return nil })
	victim.Resume()
	must.Do(t, w.Run())
	if !slices.Equal(ran, []string{"next"}) || len(w.ready.procs) != 1 || len(w.ready.free) != 1 {
		t.Errorf("ran %v, with numbers for %d programs, %d of them free", ran, len(w.ready.procs), len(w.ready.free))
	}
}

// Packets go to the port that has their destination now, not to the one that had it before.
func TestPacketsFollowAnAddress(t *testing.T) {
	w := New(Config{})
	n := must.Get(NewNet(w, NetConfig{}))(t)
	attach := func(addr string) *Port {
		return must.Get(n.Attach(PortConfig{Addrs: []netip.Addr{netip.MustParseAddr(addr)}}))(t)
	}
	from, first, second := attach("fd00::1"), attach("fd00::2"), attach("fd00::3")
	moving := netip.MustParseAddr("fd00::2")
	send := func() {
		d := link.Datagram{Src: netip.AddrPortFrom(from.Addrs()[0], 1), Dst: netip.AddrPortFrom(moving, 1), Payload: []byte("x")}
		must.Get(from.Send(w.Now(), []link.Datagram{d}))(t)
		must.Do(t, w.Run())
	}
	send()
	must.Do(t, first.RemoveAddr(moving))
	send() // to nobody
	must.Do(t, second.AddAddr(moving))
	send()
	must.Do(t, second.Close())
	send() // to nobody
	if a, b, lost := first.Stats().Delivered, second.Stats().Delivered, from.Stats().Drops.NoRoute; a != 1 || b != 1 || lost != 2 {
		t.Errorf("delivered to the first port: %d, to the second: %d, without a route: %d, want 1, 1 and 2", a, b, lost)
	}
}
