package perflab

import (
	"context"
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/fabrictest/fabrictest/emu/link"
	"github.com/fabrictest/fabrictest/emu/link/udplink"
	"github.com/fabrictest/fabrictest/internal/must"
	"github.com/fabrictest/fabrictest/internal/testutil"
	"github.com/fabrictest/fabrictest/perf"
)

// wire is a veth pair with plain sockets and links on both ends.
type wire struct {
	a, b         RawEndpoint
	linkA, linkB *udplink.Link
}

func newWire(tb testing.TB, v6 bool) *wire {
	tb.Helper()
	a, b := testutil.HostPair(tb, 9000)
	open := func(h *testutil.Host) *udplink.Link {
		var l *udplink.Link
		must.Do(tb, h.Do(func() (err error) {
			l, err = udplink.Open(udplink.Config{Local: h.Addr(v6, 4791), PatchIPID: func([]byte, uint16) {}})
			return err
		}))
		tb.Cleanup(func() { l.Close() })
		return l
	}
	return &wire{
		a: RawEndpoint{NetNS: a.FD(), Addr: a.Addr(v6, 0)}, b: RawEndpoint{NetNS: b.FD(), Addr: b.Addr(v6, 0)},
		linkA: open(a), linkB: open(b),
	}
}

func (w *wire) stream(cfg RawStreamConfig) (float64, error) {
	return goodput(RawUDPStream(w.a, w.b, cfg))
}

func (w *wire) linkStream(cfg RawStreamConfig, scattered bool) (float64, error) {
	tx := newLinkSender(w.linkA, w.linkB.Info().Local, cfg.Bytes, scattered)
	return goodput(LinkStream(tx, w.linkB, cfg))
}

// goodput returns the goodput, and fails if segments were lost.
func goodput(r RawUDPStreamResult, err error) (float64, error) {
	if err == nil && (r.Received != r.Sent || r.Received == 0) {
		err = fmt.Errorf("segments were lost: %+v", r)
	}
	return r.Gbps(), err
}

func (w *wire) pingPong(cfg RawPingPongConfig) (float64, error) {
	return RawUDPPingPong(w.a, w.b, cfg)
}

func (w *wire) linkPingPong(cfg RawPingPongConfig) (float64, error) {
	return LinkPingPong(w.linkA, w.linkB, w.linkA.Info().Local, w.linkB.Info().Local, cfg)
}

var families = []struct {
	name string
	v6   bool
}{{"ipv6", true}, {"ipv4", false}}

func TestMeasurementsOnVeth(t *testing.T) {
	for _, f := range families {
		w := newWire(t, f.v6)
		stream := RawStreamConfig{Bytes: 4096, CopyAndCRC: true, Duration: 20 * time.Millisecond}
		for name, measure := range map[string]func() (float64, error){
			"stream":           func() (float64, error) { return w.stream(stream) },
			"link stream":      func() (float64, error) { return w.linkStream(stream, false) },
			"scattered stream": func() (float64, error) { return w.linkStream(stream, true) },
			"spin":             func() (float64, error) { return w.pingPong(RawPingPongConfig{Bytes: 64, Rounds: 100}) },
			"block":            func() (float64, error) { return w.pingPong(RawPingPongConfig{Bytes: 64, Rounds: 100, Block: true}) },
			"link spin":        func() (float64, error) { return w.linkPingPong(RawPingPongConfig{Bytes: 64, Rounds: 100}) },
			"link block":       func() (float64, error) { return w.linkPingPong(RawPingPongConfig{Bytes: 64, Rounds: 100, Block: true}) },
		} {
			if v, err := measure(); err != nil || v <= 0 {
				t.Errorf("%s over %s: %v, %v", name, f.name, v, err)
			}
		}
		if s := w.linkA.Stats(); s.GSOPackets == 0 || s.GSOPackets*15 > s.SentDatagrams {
			t.Errorf("%s: %d super-packets for %d datagrams", f.name, s.GSOPackets, s.SentDatagrams)
		}
	}
}

func TestMeasurementWithoutPeerFails(t *testing.T) {
	// The measurement opens both plain sockets, but a link may send to a wrong address.
	l := must.Get(udplink.Open(udplink.Config{Local: netip.MustParseAddrPort("127.0.0.2:0")}))(t)
	defer l.Close()
	stream := RawStreamConfig{Bytes: 4096, Duration: time.Millisecond}
	if _, err := LinkStream(newLinkSender(l, netip.MustParseAddrPort("127.0.0.3:1"), stream.Bytes, false), l, stream); err == nil {
		t.Error("a stream without a receiver succeeded")
	}
	if _, err := RawUDPStream(RawEndpoint{Addr: netip.MustParseAddrPort("192.0.2.1:0")}, RawEndpoint{}, stream); err == nil {
		t.Error("a stream from a foreign address succeeded")
	}
	if _, err := LinkPingPong(plain{l}, l, l.Info().Local, l.Info().Local, RawPingPongConfig{Bytes: 64, Rounds: 50, Block: true}); err == nil {
		t.Error("a link that cannot block was accepted")
	}
}

// plain hides the methods of link.Waiter.
type plain struct{ link.PacketLink }

// BenchmarkStream compares the goodput of bare sockets and links, with and without a copy
// and a CRC on both sides.
func BenchmarkStream(b *testing.B) {
	for _, f := range families {
		for _, work := range []struct {
			name      string
			cfg       RawStreamConfig
			scattered bool
		}{
			{name: "copy and crc", cfg: RawStreamConfig{Bytes: 4096, CopyAndCRC: true}},
			{name: "copy and crc, scattered", cfg: RawStreamConfig{Bytes: 4096, CopyAndCRC: true}, scattered: true},
			{name: "copy and crc, 1 KiB", cfg: RawStreamConfig{Bytes: 1024, CopyAndCRC: true}},
			{name: "bare", cfg: RawStreamConfig{Bytes: 4096}},
		} {
			b.Run(f.name+"/"+work.name, func(b *testing.B) {
				w := newWire(b, f.v6)
				work.cfg.Duration = 100 * time.Millisecond
				compare(b, "Gb/s",
					func() (float64, error) { return w.stream(work.cfg) },
					func() (float64, error) { return w.linkStream(work.cfg, work.scattered) })
			})
		}
	}
}

// BenchmarkPingPong compares half round trips of 64 bytes in µs.
func BenchmarkPingPong(b *testing.B) {
	for _, f := range families {
		for _, mode := range []struct {
			name string
			cfg  RawPingPongConfig
		}{
			{"spin", RawPingPongConfig{Bytes: 64, Rounds: 2000}},
			{"block", RawPingPongConfig{Bytes: 64, Rounds: 2000, Block: true}},
		} {
			b.Run(f.name+"/"+mode.name, func(b *testing.B) {
				w := newWire(b, f.v6)
				compare(b, "µs",
					func() (float64, error) { return w.pingPong(mode.cfg) },
					func() (float64, error) { return w.linkPingPong(mode.cfg) })
			})
		}
	}
}

// compare runs one round per iteration and reports medians.
func compare(b *testing.B, unit string, base, other func() (float64, error)) {
	b.Helper()
	var d perf.PairedSeries
	measurement := func(measure func() (float64, error)) perf.Measurement {
		return perf.Measurement{Unit: unit, Measure: func(context.Context) (float64, error) { return measure() }}
	}
	for range max(5, b.N) {
		must.Do(b, d.Round(b.Context(), measurement(base), measurement(other)))
	}
	b.ReportMetric(perf.Median(d.Baseline.Values), "raw-"+unit)
	b.ReportMetric(perf.Median(d.Device.Values), "link-"+unit)
	b.ReportMetric(d.Ratio(), "link/raw")
	b.ReportMetric(d.Noise(), "noise")
	b.ReportMetric(0, "ns/op")
}
