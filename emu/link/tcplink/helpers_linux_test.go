package tcplink

import (
	"net/netip"
	"testing"
	"time"

	"github.com/fabrictest/fabrictest/emu/link"
	"github.com/fabrictest/fabrictest/internal/must"
)

func listenOn(tb testing.TB, n *Net, addr netip.Addr) *Listener {
	tb.Helper()
	l := must.Get(n.Listen(netip.AddrPortFrom(addr, 0), 64))(tb)
	return l.(*Listener)
}

func dialTo(tb testing.TB, n *Net, to netip.AddrPort) *Stream {
	tb.Helper()
	s := must.Get(n.Dial(1, netip.AddrPort{}, to))(tb)
	return s.(*Stream)
}

// eventually waits until done returns true.
func eventually(tb testing.TB, what string, done func() bool) {
	tb.Helper()
	for until := time.Now().Add(30 * time.Second); !done(); time.Sleep(50 * time.Microsecond) {
		if time.Now().After(until) {
			tb.Fatalf("not within 30 s: %s", what)
		}
	}
}

func acceptFrom(tb testing.TB, l *Listener) (s *Stream) {
	tb.Helper()
	eventually(tb, "a stream to accept", func() bool {
		got := must.Get(l.Accept(1))(tb)
		if got != nil {
			s = got.(*Stream)
		}
		return got != nil
	})
	return s
}

// connectStreams returns streams between two nets.
func connectStreams(tb testing.TB, a, b *Net, count int) (dialed, accepted []*Stream) {
	tb.Helper()
	l := listenOn(tb, b, families[0].addr)
	for range count {
		d := dialTo(tb, a, l.Addr())
		accepted = append(accepted, acceptFrom(tb, l))
		eventually(tb, "connected", func() bool { return d.Connected(1) })
		dialed = append(dialed, d)
	}
	return dialed, accepted
}

// drainReady drops all pending events.
func drainReady(n *Net) {
	var ready [64]link.StreamReady
	for range 3 {
		n.Ready(ready[:])
		n.WaitReady(0)
	}
	n.Ready(ready[:])
}
