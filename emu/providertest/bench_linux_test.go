package providertest

import (
	"context"
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/fabrictest/fabrictest/emu/softroce"
	"github.com/fabrictest/fabrictest/internal/must"
	"github.com/fabrictest/fabrictest/lab/perflab"
	"github.com/fabrictest/fabrictest/perf"
)

// benchCase is a measurement of several providers.
type benchCase struct {
	name  string
	size  int
	block bool
	unit  string
	run   func(count int) func(a, b *Messenger) (float64, error)
	count int
}

var benchCases = []benchCase{
	{"pingpong64/poll", 64, false, "µs", halfRoundTrip, 10_000},
	{"pingpong64/block", 64, true, "µs", halfRoundTrip, 10_000},
	{"stream2K", 2048, false, "Gb/s", messages, 100_000},
}

// report compares ours with base, interleaved, and reports both and the ratio.
func report(b *testing.B, unit, baseName string, rounds int, base, ours func() (float64, error)) {
	b.Helper()
	for b.Loop() {
		var d perf.PairedSeries
		measurement := func(measure func() (float64, error)) perf.Measurement {
			return perf.Measurement{Unit: unit, Measure: func(context.Context) (float64, error) { return measure() }}
		}
		for range rounds {
			must.Do(b, d.Round(b.Context(), measurement(base), measurement(ours)))
		}
		b.ReportMetric(perf.Median(d.Baseline.Values), baseName+"-"+unit)
		b.ReportMetric(perf.Median(d.Device.Values), unit)
		b.ReportMetric(d.Ratio(), "ratio")
		b.ReportMetric(d.Noise(), "noise")
	}
}

// forEachIPVersion runs a benchmark between two hosts, over IPv6 and IPv4.
func forEachIPVersion(b *testing.B, f func(b *testing.B, h *hosts)) {
	for name, v6 := range map[string]bool{"ipv6": true, "ipv4": false} {
		b.Run(name, func(b *testing.B) { f(b, newHosts(b, v6)) })
	}
}

// rawEndpoints returns the two hosts for a comparison with bare sockets.
func (h *hosts) rawEndpoints() (a, b perflab.RawEndpoint) {
	return perflab.RawEndpoint{NetNS: h.a.FD(), Addr: h.a.Addr(h.v6, 0)}, perflab.RawEndpoint{NetNS: h.b.FD(), Addr: h.b.Addr(h.v6, 0)}
}

// BenchmarkStream writes 1 MiB messages between two namespaces and compares with bare
// sockets that do one copy and one CRC a side.
func BenchmarkStream(b *testing.B) {
	const slice = 300 * time.Millisecond
	for _, c := range []deviceConfig{roce, iwarp} {
		b.Run(c.name, func(b *testing.B) {
			forEachIPVersion(b, func(b *testing.B, h *hosts) {
				report(b, "Gb/s", "raw", 5, func() (float64, error) {
					x, y := h.rawEndpoints()
					if c.name == iwarp.name {
						return perflab.RawTCPStream(x, y, perflab.RawStreamConfig{Bytes: 1 << 20, CopyAndCRC: true, Duration: slice})
					}
					r, err := perflab.RawUDPStream(x, y, perflab.RawStreamConfig{Bytes: 4096, CopyAndCRC: true, Duration: slice})
					return r.Gbps(), err
				}, func() (float64, error) { return h.runMessengers(b, c, 64, false, writes(slice)) })
			})
		})
	}
}

// BenchmarkPingPong sends 64 bytes back and forth between two namespaces and compares with bare
// sockets that poll or block alike.
func BenchmarkPingPong(b *testing.B) {
	const rounds, size = 10_000, 64
	for _, c := range []deviceConfig{roce, iwarp} {
		for _, block := range []bool{false, true} {
			b.Run(fmt.Sprintf("%s/block=%v", c.name, block), func(b *testing.B) {
				forEachIPVersion(b, func(b *testing.B, h *hosts) {
					report(b, "µs", "raw", 5, func() (float64, error) {
						x, y := h.rawEndpoints()
						if c.name == iwarp.name {
							return perflab.RawTCPPingPong(x, y, perflab.RawPingPongConfig{Bytes: size, Rounds: rounds, Block: block})
						}
						return perflab.RawUDPPingPong(x, y, perflab.RawPingPongConfig{Bytes: size + 16, Rounds: rounds, Block: block})
					}, func() (float64, error) { return h.runMessengers(b, c, size, block, halfRoundTrip(rounds)) })
				})
			})
		}
	}
}

// BenchmarkSignaledPingPong is a ping-pong of soft-RoCE in which each side also waits for the
// completion of its send, which delayed acknowledgements can only slow down. The ratio is its
// time with them to its time without.
func BenchmarkSignaledPingPong(b *testing.B) {
	prompt := softroce.Config{}
	prompt.NIC.AckDelay = -1
	for _, block := range []bool{false, true} {
		b.Run(fmt.Sprintf("block=%v", block), func(b *testing.B) {
			h := newHosts(b, true)
			run := func(c deviceConfig) func() (float64, error) {
				return func() (float64, error) { return h.runMessengers(b, c, 8, block, signaledPingPong(20_000)) }
			}
			report(b, "µs", "prompt", 5, run(newRoCE("prompt", prompt)), run(roce))
		})
	}
}

// BenchmarkLoopback runs each case without a comparison, for profiles.
func BenchmarkLoopback(b *testing.B) {
	for _, c := range []deviceConfig{roce, iwarp, unreliable, reliable} {
		for _, x := range benchCases {
			b.Run(c.name+"/"+x.name, func(b *testing.B) {
				b.ReportAllocs()
				got, err := new(hosts).runMessengers(b, c, x.size, x.block, func(p, q *Messenger) (float64, error) {
					b.ResetTimer()
					return x.run(max(b.N, 1000))(p, q)
				})
				must.Do(b, err)
				b.ReportMetric(got, x.unit)
			})
		}
	}
}

// BenchmarkAgainstStreams compares datagram-iWARP with soft-iWARP, on loopback and between
// two namespaces.
func BenchmarkAgainstStreams(b *testing.B) {
	for name, h := range map[string]*hosts{"loopback": {}, "wire": newHosts(b, true)} {
		for _, c := range []deviceConfig{unreliable, reliable} {
			for _, x := range benchCases {
				b.Run(name+"/"+c.name+"/"+x.name, func(b *testing.B) {
					run := func(c deviceConfig) func() (float64, error) {
						return func() (float64, error) { return h.runMessengers(b, c, x.size, x.block, x.run(x.count)) }
					}
					report(b, x.unit, iwarp.name, 3, run(iwarp), run(c))
				})
			}
		}
	}
}

// After a warm-up messages cause no allocation. Blocking programs are excluded: a wait
// allocates a timer.
func TestMessagesDoNotAllocate(t *testing.T) {
	for _, c := range []deviceConfig{roce, iwarp, unreliable, reliable} {
		for _, x := range benchCases {
			if x.block {
				continue
			}
			t.Run(c.name+"/"+x.name, func(t *testing.T) {
				const rounds = 3008 // a multiple of grant
				var before, after runtime.MemStats
				var start time.Time
				_, err := new(hosts).runMessengers(t, c, x.size, x.block, func(a, b *Messenger) (float64, error) {
					if _, err := x.run(rounds)(a, b); err != nil {
						return 0, err
					}
					runtime.ReadMemStats(&before)
					start = time.Now()
					r, err := x.run(rounds)(a, b)
					runtime.ReadMemStats(&after)
					return r, err
				})
				must.Do(t, err)
				// The test allocates goroutines and results, and the background goroutines of
				// the devices allocate a timer every millisecond.
				allowed := rounds/20 + 10*uint64(time.Since(start).Milliseconds())
				if n := after.Mallocs - before.Mallocs; n > allowed {
					t.Errorf("%d allocations for %d messages", n, rounds)
				}
			})
		}
	}
}
