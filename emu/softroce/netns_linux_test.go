package softroce

import (
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/fabrictest/fabrictest/emu/link/udplink"
	"github.com/fabrictest/fabrictest/emu/link/udplink/rawbench"
	"github.com/fabrictest/fabrictest/internal/nstest"
)

func TestMain(m *testing.M) { nstest.Main(m) }

// hosts are two network namespaces with a device each, and bare endpoints for
// comparison.
type hosts struct {
	a, b       *Device
	rawA, rawB rawbench.Endpoint
}

func newHosts(tb testing.TB, v6 bool) *hosts {
	tb.Helper()
	na, nb := nstest.Pair(tb, 9000)
	open := func(h *nstest.Host) (d *Device) {
		err := h.Do(func() (err error) {
			d, err = OnUDP(udplink.Config{}, Config{Addrs: []netip.Addr{h.Addr(v6, 0).Addr()}})
			return err
		})
		if err != nil {
			tb.Fatal(err)
		}
		tb.Cleanup(func() { d.Close() })
		return d
	}
	return &hosts{
		a: open(na), b: open(nb),
		rawA: rawbench.Endpoint{NetNS: na.FD(), Addr: na.Addr(v6, 0)},
		rawB: rawbench.Endpoint{NetNS: nb.FD(), Addr: nb.Addr(v6, 0)},
	}
}

func families(b *testing.B, f func(b *testing.B, v6 bool)) {
	for _, v6 := range []bool{true, false} {
		name := "ipv4"
		if v6 {
			name = "ipv6"
		}
		b.Run(name, func(b *testing.B) { f(b, v6) })
	}
}

func TestEchoAcrossNamespaces(t *testing.T) {
	for _, v6 := range []bool{true, false} {
		h := newHosts(t, v6)
		errs := make(chan error, 2)
		listening := make(chan struct{})
		gid, err := h.b.QueryGID(1, 0)
		if err != nil {
			t.Fatal(err)
		}
		go func() { errs <- echoServer(h.b, 100, func() { close(listening) }) }()
		<-listening
		go func() { errs <- echoClient(h.a, gid.GID.Addr(), 100) }()
		for range 2 {
			if err := <-errs; err != nil {
				t.Fatal(err)
			}
		}
	}
}

// BenchmarkStream writes 1 MiB messages between two namespaces and compares
// with a bare sender that has GSO and does one copy and one CRC a side.
func BenchmarkStream(b *testing.B) {
	families(b, func(b *testing.B, v6 bool) {
		h := newHosts(b, v6)
		x, y, err := ends(h.a, h.b)
		if err != nil {
			b.Fatal(err)
		}
		const slice = 300 * time.Millisecond
		report(b, "Gb/s", func() (float64, error) {
			r, err := rawbench.Stream(h.rawA, h.rawB, rawbench.StreamConfig{Duration: slice})
			return r.Gbps(), err
		}, func() (float64, error) {
			bps, err := stream(x, y, 1<<20, slice)
			return bps / 1e9, err
		})
		b.ReportMetric(float64(h.a.nic.Count.Retransmits), "resent")
	})
}

// BenchmarkPingPong sends 8 bytes there and back between two namespaces and
// compares with bare sockets that wait in the same way.
func BenchmarkPingPong(b *testing.B) {
	for _, block := range []bool{false, true} {
		b.Run(fmt.Sprintf("block=%v", block), func(b *testing.B) {
			families(b, func(b *testing.B, v6 bool) {
				h := newHosts(b, v6)
				x, y, err := ends(h.a, h.b)
				if err != nil {
					b.Fatal(err)
				}
				const rounds = 10_000
				report(b, "µs", func() (float64, error) {
					r, err := rawbench.PingPong(h.rawA, h.rawB, rawbench.PingPongConfig{Rounds: rounds, Bytes: 8 + 16, Block: block})
					return r.HalfMicros(), err
				}, func() (float64, error) {
					half, err := pingPong(x, y, rounds, block)
					return float64(half.Nanoseconds()) / 1e3, err
				})
			})
		})
	}
}

// report compares ours with bare, interleaved, and reports both and the ratio.
func report(b *testing.B, unit string, bare, ours func() (float64, error)) {
	b.Helper()
	for b.Loop() {
		c, err := rawbench.Compare(5, bare, ours)
		if err != nil {
			b.Fatal(err)
		}
		b.ReportMetric(c.Base, "raw-"+unit)
		b.ReportMetric(c.Other, unit)
		b.ReportMetric(c.Ratio, "ratio")
		b.ReportMetric(c.Noise, "noise")
	}
}
