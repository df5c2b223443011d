package perf

import (
	"context"
	"fmt"

	"github.com/fabrictest/fabrictest/verbs"
)

// Sizes that are promised something of.
const (
	datagramPing   = 64
	datagramStream = 2 << 10
)

// pingSizes are the messages of which half round trips are compared.
var pingSizes = []int{8, 64}

// RunIWARP measures devices that speak iWARP over connections beside plain TCP:
// WRITEs of all sizes, half round trips, the rate of small messages, and the
// memory of idle hosts; and, unless datagrams is nil, devices that send datagrams
// beside those with connections.
func RunIWARP(ctx context.Context, streams, datagrams Bench, opt Options) (*Result, error) {
	r := &run{Bench: streams, Options: opt.orDefault(), limit: "plain TCP"}
	w := &iwarpRun{run: r, datagrams: datagrams}
	parts := []part{
		{1, r.memory},
		{w.writeSteps(), w.writes},
		{2 * len(pingSizes) * r.Rounds, w.pings},
		{r.Rounds, r.rates},
		{2 * len(r.Sizes), func(ctx context.Context) error { return r.sweep(ctx, verbs.OpSend, verbs.OpRDMARead) }},
	}
	if datagrams != nil {
		parts = append(parts, part{4 * r.Rounds, w.compareDatagrams})
	}
	if err := r.measure(ctx, parts); err != nil {
		return nil, fmt.Errorf("iWARP run: %w", err)
	}
	r.q.Targets = judge(append(w.targets, r.q.memoryTarget()))
	return &r.q, nil
}

// iwarpRun is a run of RunIWARP under way.
type iwarpRun struct {
	*run
	datagrams Bench
	targets   []Target
}

// compared notes a comparison.
func (w *iwarpRun) compared(name, to string, d *Duel) {
	w.q.Comparisons = append(w.q.Comparisons, Comparison{
		Name: name, To: to, Unit: d.Device.Unit, Ratio: d.Ratio(), Noise: d.Noise(),
		Got: Median(d.Device.Values), Limit: (Median(d.Limit.Values) + Median(d.Again.Values)) / 2,
	})
}

func (w *iwarpRun) writeSteps() (steps int) {
	for _, n := range w.Sizes {
		steps += 2 * w.writeRounds(n)
	}
	return steps
}

// writeRounds is how often WRITEs of a size are compared: those that nothing is
// concluded from less often.
func (w *iwarpRun) writeRounds(bytes int) int {
	if bytes == bigWrite {
		return w.Rounds
	}
	return min(w.Rounds, sweepRounds)
}

func (w *iwarpRun) writes(ctx context.Context) error {
	for _, offloaded := range []bool{false, true} {
		for _, n := range w.Sizes {
			slice := w.Slice
			if n != bigWrite {
				slice /= 2
			}
			d, err := w.write(ctx, n, offloaded, w.writeRounds(n), slice)
			if err != nil {
				return err
			}
			w.compared(d.Device.Name, d.Limit.Name, d)
			if !offloaded {
				w.stream(verbs.OpRDMAWrite, n, d.Device.Values)
			}
			if n != bigWrite {
				continue
			}
			if w.noteBigWrite(d, offloaded); !offloaded {
				w.targets = append(w.targets, Target{Name: "write of 1 MiB to plain TCP, copy and CRC", Got: d.Ratio(), Want: 0.6, Noise: d.Noise()})
			}
		}
	}
	return nil
}

func (w *iwarpRun) pings(ctx context.Context) error {
	for _, blocking := range []bool{false, true} {
		for _, n := range pingSizes {
			d, err := w.latency(ctx, n, blocking)
			if err != nil {
				return err
			}
			w.compared(d.Device.Name, d.Limit.Name, d)
			w.targets = append(w.targets, Target{
				Name: d.Device.Name + ", to plain TCP", Got: d.Ratio(), Want: 1.6, Most: true, Noise: d.Noise(),
			})
		}
	}
	return nil
}

// compareDatagrams sets datagrams against connections, in programs that are the
// same.
func (w *iwarpRun) compareDatagrams(ctx context.Context) error {
	var got DatagramRatios
	ping := func(blocking bool) Program {
		return Program{PingPong: &PingPong{Bytes: datagramPing, Rounds: w.trips(blocking), Blocking: blocking}}
	}
	stream := func(singly bool) Program {
		return Program{Stream: &Stream{Op: verbs.OpSend, Bytes: datagramStream, Duration: w.Slice, Singly: singly}}
	}
	for _, c := range []struct {
		p      Program
		ratio  *float64
		target Target // without a name, none
	}{
		{ping(false), &got.LatencySpinning, Target{Name: "half round trip of 64 B of datagrams to connections", Want: 0.85, Most: true}},
		{ping(true), &got.LatencyBlocking, Target{}},
		{stream(true), &got.Bandwidth, Target{Name: "send of 2 KiB of datagrams to connections, singly", Want: 1.2}},
		{stream(false), &got.BandwidthBursts, Target{}},
	} {
		limit, device := program(w.Bench, c.p, false), program(w.datagrams, c.p, false)
		limit.Name, device.Name = limit.Name+", connection", device.Name+", datagrams"
		d, err := w.duel(ctx, w.Rounds, limit, device)
		if err != nil {
			return err
		}
		w.compared(d.Device.Name, d.Limit.Name, d)
		*c.ratio = d.Ratio()
		w.q.Noises.Datagrams = max(w.q.Noises.Datagrams, d.Noise())
		if c.target.Name != "" {
			c.target.Got, c.target.Noise = d.Ratio(), d.Noise()
			w.targets = append(w.targets, c.target)
		}
	}
	w.q.Ratios.Datagrams = &got
	return nil
}
