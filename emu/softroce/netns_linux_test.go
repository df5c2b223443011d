package softroce

import (
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/fabrictest/fabrictest/emu/link/udplink"
	"github.com/fabrictest/fabrictest/emu/link/udplink/rawbench"
	"github.com/fabrictest/fabrictest/emu/softroce/engine"
	"github.com/fabrictest/fabrictest/internal/nstest"
)

func TestMain(m *testing.M) { nstest.Main(m) }

// hosts are two network namespaces joined by a wire.
type hosts struct {
	a, b *nstest.Host
	v6   bool
	nic  engine.Config // of devices
}

func newHosts(tb testing.TB, v6 bool) *hosts {
	tb.Helper()
	a, b := nstest.Pair(tb, 9000)
	return &hosts{a: a, b: b, v6: v6}
}

// bare returns the two ends as they are without a device.
func (h *hosts) bare() (a, b rawbench.Endpoint) {
	return rawbench.Endpoint{NetNS: h.a.FD(), Addr: h.a.Addr(h.v6, 0)}, rawbench.Endpoint{NetNS: h.b.FD(), Addr: h.b.Addr(h.v6, 0)}
}

// devices opens a device on each host. They are there only while used: even an
// idle one wakes now and then, and what is compared with must not pay for that.
func (h *hosts) devices() (a, b *Device, err error) {
	open := func(host *nstest.Host) (d *Device, err error) {
		err = host.Do(func() (err error) {
			d, err = OnUDP(udplink.Config{}, Config{Addrs: []netip.Addr{host.Addr(h.v6, 0).Addr()}, NIC: h.nic})
			return err
		})
		return d, err
	}
	if a, err = open(h.a); err != nil {
		return nil, nil, err
	}
	if b, err = open(h.b); err != nil {
		a.Close()
		return nil, nil, err
	}
	return a, b, nil
}

// with runs f on two connected ends, on devices of their own.
func (h *hosts) with(f func(a, b *end) (float64, error)) (float64, error) {
	da, db, err := h.devices()
	if err != nil {
		return 0, err
	}
	defer da.Close()
	defer db.Close()
	a, b, err := pingPongEnds(da, db)
	if err != nil {
		return 0, err
	}
	return f(a, b)
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
		da, db, err := h.devices()
		if err != nil {
			t.Fatal(err)
		}
		errs := make(chan error, 2)
		listening := make(chan struct{})
		go func() { errs <- echoServer(db, 100, func() { close(listening) }) }()
		<-listening
		go func() { errs <- echoClient(da, h.b.Addr(v6, 0).Addr(), 100) }()
		for range 2 {
			if err := <-errs; err != nil {
				t.Fatal(err)
			}
		}
		da.Close()
		db.Close()
	}
}

// BenchmarkStream writes 1 MiB messages between two namespaces and compares
// with a bare sender that has GSO and does one copy and one CRC a side.
func BenchmarkStream(b *testing.B) {
	families(b, func(b *testing.B, v6 bool) {
		h := newHosts(b, v6)
		rawA, rawB := h.bare()
		const slice = 300 * time.Millisecond
		report(b, "Gb/s", func() (float64, error) {
			r, err := rawbench.Stream(rawA, rawB, rawbench.StreamConfig{Duration: slice})
			return r.Gbps(), err
		}, func() (float64, error) {
			return h.with(func(x, y *end) (float64, error) {
				bps, err := stream(x, y, 1<<20, slice)
				return bps / 1e9, err
			})
		})
	})
}

// BenchmarkPingPong sends 8 bytes there and back between two namespaces and
// compares with bare sockets that wait in the same way.
func BenchmarkPingPong(b *testing.B) {
	for _, block := range []bool{false, true} {
		b.Run(fmt.Sprintf("block=%v", block), func(b *testing.B) {
			families(b, func(b *testing.B, v6 bool) {
				h := newHosts(b, v6)
				rawA, rawB := h.bare()
				const rounds = 10_000
				report(b, "µs", func() (float64, error) {
					r, err := rawbench.PingPong(rawA, rawB, rawbench.PingPongConfig{Rounds: rounds, Bytes: 8 + 16, Block: block})
					return r.HalfMicros(), err
				}, func() (float64, error) {
					return h.with(func(x, y *end) (float64, error) {
						half, err := pingPong(x, y, rounds, block)
						return float64(half.Nanoseconds()) / 1e3, err
					})
				})
			})
		})
	}
}

// BenchmarkConfirmed is a ping-pong in which each side waits for the completion
// of its own message too, before the next: holding ACKs back can only hurt it.
// The ratio is its time with that to its time without.
func BenchmarkConfirmed(b *testing.B) {
	for _, block := range []bool{false, true} {
		b.Run(fmt.Sprintf("block=%v", block), func(b *testing.B) {
			held, free := newHosts(b, true), newHosts(b, true)
			free.nic.AckHold = -1
			play := func(h *hosts) func() (float64, error) {
				return func() (float64, error) {
					return h.with(func(x, y *end) (float64, error) {
						half, err := confirmedPingPong(x, y, 20_000, block)
						return float64(half.Nanoseconds()) / 1e3, err
					})
				}
			}
			report(b, "µs", play(free), play(held))
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
