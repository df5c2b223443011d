package sim

import (
	"net/netip"
	"strconv"
	"testing"
	"time"

	"github.com/fabrictest/fabrictest/emu/link"
	"github.com/fabrictest/fabrictest/emu/mono"
	"github.com/fabrictest/fabrictest/internal/must"
)

// echo sends every received packet back, until remaining is 0.
type echo struct {
	port      *Port
	ds        [8]link.Datagram
	remaining int
}

func (e *echo) HandleEvent(now mono.Time, _ uint64) {
	n, _ := e.port.Recv(now, e.ds[:])
	for i := range e.ds[:n] {
		if e.remaining--; e.remaining < 0 {
			return
		}
		d := e.ds[i]
		d.Src, d.Dst, d.HopLimit = d.Dst, d.Src, 0
		_, _ = e.port.Send(now, []link.Datagram{d})
	}
}

func benchmarkEcho(b *testing.B, cfg NetConfig, l LinkConfig) {
	w := New(Config{Seed: 1})
	n := must.Get(NewNet(w, cfg))(b)
	benchmarkNet(b, n, l, nil, nil)
}

// benchmarkNet echoes packets between two new ports, on switches if any.
func benchmarkNet(b *testing.B, n *Net, l LinkConfig, s0, s1 *Switch) {
	w := n.w
	a0, a1 := netip.MustParseAddr("fd00::1"), netip.MustParseAddr("fd00::2")
	p0 := must.Get(n.Attach(PortConfig{Addrs: []netip.Addr{a0}, Link: l, Switch: s0}))(b)
	p1 := must.Get(n.Attach(PortConfig{Addrs: []netip.Addr{a1}, Link: l, Switch: s1}))(b)
	e0, e1 := &echo{port: p0}, &echo{port: p1}
	p0.OnReadable(e0, 0)
	p1.OnReadable(e1, 0)
	start := func(hops int) {
		e0.remaining, e1.remaining = hops/2, hops/2
		d := link.Datagram{Src: netip.AddrPortFrom(a0, 4791), Dst: netip.AddrPortFrom(a1, 4791), Payload: make([]byte, 64)}
		for range 4 {
			_, _ = p0.Send(w.Now(), []link.Datagram{d})
		}
		must.Do(b, w.Run())
	}
	start(100)
	b.ReportAllocs()
	b.ResetTimer()
	start(b.N)
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "packets/s")
}

func BenchmarkEchoSwitch(b *testing.B) {
	benchmarkEcho(b, NetConfig{}, LinkConfig{RateBps: 100e9, Latency: time.Microsecond})
}

func BenchmarkEchoCable(b *testing.B) {
	benchmarkEcho(b, NetConfig{Cable: true}, LinkConfig{RateBps: 100e9, Latency: time.Microsecond})
}

func BenchmarkEchoTree(b *testing.B) {
	l := LinkConfig{RateBps: 100e9, Latency: time.Microsecond}
	f := fatTree(b, New(Config{Seed: 1}), 2, 4, 0, l)
	benchmarkNet(b, f.Net, l, f.leaves[0], f.leaves[1])
}

func BenchmarkSleepAlone(b *testing.B) {
	w := New(Config{})
	w.Go("p", func(p *Proc) error {
		for range b.N {
			p.Sleep(50)
		}
		return nil
	})
	b.ReportAllocs()
	b.ResetTimer()
	must.Do(b, w.Run())
}

func BenchmarkSleepInterleaved(b *testing.B) {
	for _, n := range []int{2, 64, 1024} {
		b.Run(strconv.Itoa(n), func(b *testing.B) {
			w := New(Config{})
			for i := range n {
				w.Go("p", func(p *Proc) error {
					p.Sleep(time.Duration(i + 1))
					for range b.N / n {
						p.Sleep(2000)
					}
					return nil
				})
			}
			b.ReportAllocs()
			b.ResetTimer()
			must.Do(b, w.Run())
		})
	}
}

func BenchmarkTimerReset(b *testing.B) {
	w := New(Config{})
	h := HandlerFunc(func(mono.Time, uint64) {})
	var timers [64]*Timer
	for i := range timers {
		timers[i] = w.NewTimer(h, 0)
	}
	b.ReportAllocs()
	for i := range b.N {
		timers[i%64].Reset(mono.Time(1000 + i))
	}
}
