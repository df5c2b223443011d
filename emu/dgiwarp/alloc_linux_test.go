package dgiwarp

import (
	"fmt"
	"net/netip"
	"runtime"
	"testing"
	"time"

	"github.com/fabrictest/fabrictest/emu/link/udplink"
)

// onLoopback makes a duel on loopback, with receives posted.
func onLoopback(tb testing.TB, opt QPOptions, size int, block bool) duel {
	tb.Helper()
	d, err := datagrams(func(int) (*Device, error) {
		return OnUDP(udplink.Config{}, Config{Addrs: []netip.Addr{loopbackAddr()}, QP: opt})
	}, opt)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(d.close)
	for _, p := range []*player{d.a, d.b} {
		if err := p.prepare(size, block); err != nil {
			tb.Fatal(err)
		}
	}
	return d
}

// BenchmarkLoopback has the ping-pong and the stream by themselves, to see what
// they allocate, and where time goes.
func BenchmarkLoopback(b *testing.B) {
	for name, opt := range map[string]QPOptions{"UD": unreliable, "RD": reliable} {
		for _, c := range contests {
			b.Run(name+"/"+c.name, func(b *testing.B) {
				d := onLoopback(b, opt, c.size, c.block)
				b.ReportAllocs()
				b.ResetTimer()
				n := max(b.N, 1000)
				if c.unit == "µs" {
					half, err := pingPong(d.a, d.b, n)
					if err != nil {
						b.Fatal(err)
					}
					b.ReportMetric(float64(half.Nanoseconds())/1e3, "µs/half")
					return
				}
				bps, err := stream(d.a, d.b, c.size, n)
				if err != nil {
					b.Fatal(err)
				}
				b.ReportMetric(bps/1e9, "Gb/s")
			})
		}
	}
}

// Once everything has grown to its size, nothing is allocated on the way of a
// message. A program that sleeps is left out: to wait takes a timer.
func TestSteadyStateDoesNotAllocate(t *testing.T) {
	for _, opt := range []QPOptions{unreliable, reliable} {
		for _, c := range contests {
			if c.block {
				continue
			}
			t.Run(fmt.Sprint(c.name, opt.Reliable), func(t *testing.T) {
				d := onLoopback(t, opt, c.size, c.block)
				const rounds = 3000
				play := func() error {
					if c.unit == "µs" {
						_, err := pingPong(d.a, d.b, rounds)
						return err
					}
					_, err := stream(d.a, d.b, c.size, rounds/grant*grant)
					return err
				}
				if err := play(); err != nil {
					t.Fatal(err)
				}
				var before, after runtime.MemStats
				runtime.ReadMemStats(&before)
				start := time.Now()
				if err := play(); err != nil {
					t.Fatal(err)
				}
				runtime.ReadMemStats(&after)
				// The test itself allocates a few: goroutines, results. And so do the
				// background goroutines of the devices, which look after them every
				// millisecond, with a timer.
				allowed := rounds/20 + 10*uint64(time.Since(start).Milliseconds())
				if n := after.Mallocs - before.Mallocs; n > allowed {
					t.Errorf("%d allocations for %d messages", n, rounds)
				}
			})
		}
	}
}
