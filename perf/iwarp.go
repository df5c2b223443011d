package perf

import (
	"context"
	"fmt"

	"github.com/fabrictest/fabrictest/verbs"
)

// Message sizes of the comparison of datagrams with connections.
const (
	datagramPing   = 64
	datagramStream = 2 << 10
)

// pingSizes are the message sizes of ping-pongs.
var pingSizes = []int{8, 64}

// RunIWARP compares WRITEs of all sizes and half round trips of iWARP devices with plain TCP, and
// measures the rate of small messages, the bandwidth of SENDs and READs, and idle memory. connected
// measures a pair of iWARP devices over TCP. Unless datagrams is nil, it measures a pair of
// datagram-iWARP devices, and RunIWARP compares the two pairs.
func RunIWARP(ctx context.Context, connected, datagrams Bench, opt Options) (*Result, error) {
	r := &run{Bench: connected, Options: opt.orDefault(), baseline: "plain TCP"}
	w := &iwarpRun{run: r, datagrams: datagrams}
	writeSteps := 0 // with and without CRC
	for _, n := range r.Sizes {
		writeSteps += 2 * w.writeRounds(n)
	}
	parts := []part{ // each with its number of steps for the progress
		{1, r.measureMemory},
		{writeSteps, w.compareWrites},
		{2 * len(pingSizes) * r.Rounds, w.comparePings},
		{r.Rounds, r.measureRates},
		{2 * len(r.Sizes), func(ctx context.Context) error { return r.measureStreams(ctx, verbs.OpSend, verbs.OpRDMARead) }},
	}
	if datagrams != nil {
		parts = append(parts, part{4 * r.Rounds, w.compareDatagrams})
	}
	if err := r.measure(ctx, parts); err != nil {
		return nil, fmt.Errorf("iWARP run: %w", err)
	}
	r.result.Targets = withVerdicts(append(w.targets, r.result.memoryTarget()))
	return &r.result, nil
}

// iwarpRun is the state of RunIWARP.
type iwarpRun struct {
	*run
	datagrams Bench
	targets   []Target
}

// addComparison adds a comparison of a device with a baseline to the result. name and baseline are
// their names. Each round has measured the baseline twice, before and after the device: Limit is
// the mean of both medians.
func (w *iwarpRun) addComparison(name, baseline string, d *PairedSeries) {
	w.result.Comparisons = append(w.result.Comparisons, Comparison{
		Name: name, To: baseline, Unit: d.Device.Unit, Ratio: d.Ratio(), Noise: d.Noise(),
		Got: Median(d.Device.Values), Limit: (Median(d.Baseline.Values) + Median(d.BaselineAgain.Values)) / 2,
	})
}

// writeRounds returns how often WRITEs of a size are compared; less often for sizes without target.
func (w *iwarpRun) writeRounds(bytes int) int {
	if bytes == targetWriteBytes {
		return w.Rounds
	}
	return min(w.Rounds, sweepRounds)
}

// compareWrites compares WRITEs of all sizes with plain TCP, with CRC and with the CRC offloaded.
// Only the size targetWriteBytes, with CRC, has a target.
func (w *iwarpRun) compareWrites(ctx context.Context) error {
	for _, offloaded := range []bool{false, true} {
		for _, n := range w.Sizes {
			slice := w.Slice
			if n != targetWriteBytes { // no target: a shorter sample will do
				slice /= 2
			}
			d, err := w.compareWrite(ctx, n, offloaded, w.writeRounds(n), slice)
			if err != nil {
				return err
			}
			w.addComparison(d.Device.Name, d.Baseline.Name, d)
			if !offloaded {
				w.addStream(verbs.OpRDMAWrite, n, d.Device.Values)
			}
			if n != targetWriteBytes {
				continue
			}
			w.setWriteRatio(d, offloaded)
			if !offloaded {
				w.targets = append(w.targets, Target{Name: "write of 1 MiB to plain TCP, copy and CRC", Got: d.Ratio(), Want: minWriteRatio, Noise: d.Noise()})
			}
		}
	}
	return nil
}

// comparePings compares half round trips with plain TCP, spinning and blocking; each has a target.
func (w *iwarpRun) comparePings(ctx context.Context) error {
	for _, blocking := range []bool{false, true} {
		for _, n := range pingSizes {
			d, err := w.compareLatency(ctx, n, blocking)
			if err != nil {
				return err
			}
			w.addComparison(d.Device.Name, d.Baseline.Name, d)
			w.targets = append(w.targets, Target{
				Name: d.Device.Name + ", to plain TCP", Got: d.Ratio(), Want: maxLatencyRatio, IsMax: true, Noise: d.Noise(),
			})
		}
	}
	return nil
}

// compareDatagrams runs the same ping-pongs and streams of SENDs on datagram-iWARP devices and, as
// the baseline, on iWARP connections. Latency must be at most 0.85 of that of connections, and the
// bandwidth of single posts at least 1.2 times theirs; the other two ratios have no target.
func (w *iwarpRun) compareDatagrams(ctx context.Context) error {
	var got DatagramRatios
	const spinning, blocking, singly, bursts = false, true, 1, 0 // of stream: messages posted in a call; 0 is the default
	ping := func(block bool) Program {
		return Program{Latency: &Latency{Op: verbs.OpSend, Bytes: datagramPing, Batch: pingBatch, Load: Load{Iterations: w.trips(block), Events: block}}}
	}
	stream := func(postList int) Program {
		return Program{Stream: &Stream{Op: verbs.OpSend, Bytes: datagramStream, Duration: w.Slice, Load: Load{PostList: postList}}}
	}
	for _, c := range []struct {
		p      Program
		ratio  *float64
		target Target // none if it has no name
	}{
		{ping(spinning), &got.LatencySpinning, Target{Name: "64 B half round trip, datagrams / connections", Want: 0.85, IsMax: true}},
		{ping(blocking), &got.LatencyBlocking, Target{}},
		{stream(singly), &got.Bandwidth, Target{Name: "2 KiB send, singly, datagrams / connections", Want: 1.2}},
		{stream(bursts), &got.BandwidthBursts, Target{}},
	} {
		baseline, device := deviceMeasurement(w.Bench, c.p, withCRC), deviceMeasurement(w.datagrams, c.p, withCRC)
		baseline.Name, device.Name = baseline.Name+", connection", device.Name+", datagrams"
		d, err := w.compare(ctx, w.Rounds, baseline, device)
		if err != nil {
			return err
		}
		w.addComparison(d.Device.Name, d.Baseline.Name, d)
		*c.ratio = d.Ratio()
		w.result.Noises.Datagrams = max(w.result.Noises.Datagrams, d.Noise())
		if c.target.Name != "" {
			c.target.Got, c.target.Noise = d.Ratio(), d.Noise()
			w.targets = append(w.targets, c.target)
		}
	}
	w.result.Ratios.Datagrams = &got
	return nil
}

// targetWriteBytes is the size of WRITEs with a target.
const targetWriteBytes = 1 << 20

// RunQuick compares devices with plain sockets, and measures the rate of small
// messages, streams of all sizes, and idle memory.
func RunQuick(ctx context.Context, b Bench, opt Options) (*Result, error) {
	r := &run{Bench: b, Options: opt.orDefault(), baseline: "bare sockets"}
	err := r.measure(ctx, []part{ // each with its number of steps for the progress
		{1, r.measureMemory},
		{2 * r.Rounds, r.compareBigWrites},
		{2 * r.Rounds, r.compareLatencies},
		{r.Rounds, r.measureRates},
		{3 * len(r.Sizes), func(ctx context.Context) error {
			return r.measureStreams(ctx, verbs.OpRDMAWrite, verbs.OpSend, verbs.OpRDMARead)
		}},
	})
	if err != nil {
		return nil, fmt.Errorf("quick run: %w", err)
	}
	r.result.Targets = withVerdicts(r.result.quickTargets())
	return &r.result, nil
}

// compareBigWrites compares WRITEs of 1 MiB with plain sockets, first with the CRC computed, then
// with the CRC offloaded, and stores both ratios in the result.
func (r *run) compareBigWrites(ctx context.Context) error {
	for _, offloaded := range []bool{false, true} {
		d, err := r.compareWrite(ctx, targetWriteBytes, offloaded, r.Rounds, r.Slice)
		if err != nil {
			return err
		}
		r.setWriteRatio(d, offloaded)
	}
	return nil
}

// setWriteRatio stores the ratio of WRITEs of 1 MiB to the baseline (the limit) in the result.
// offloaded is set if the devices computed no CRC; the noise is stored only with CRC.
func (r *run) setWriteRatio(d *PairedSeries, offloaded bool) {
	if offloaded {
		r.result.Ratios.WriteToLimitOffloaded = d.Ratio()
	} else {
		r.result.Ratios.WriteToLimit, r.result.Noises.Write = d.Ratio(), d.Noise()
	}
}

// compareLatencies compares half round trips of 8 bytes with plain sockets, spinning and blocking.
// compareLatency stores both ratios in the result.
func (r *run) compareLatencies(ctx context.Context) error {
	const bytes = 8
	for _, blocking := range []bool{false, true} {
		if _, err := r.compareLatency(ctx, bytes, blocking); err != nil {
			return err
		}
	}
	return nil
}
