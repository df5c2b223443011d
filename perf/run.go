// Package perf measures a pair of RDMA devices:
//
//   - Programs over verbs, each with a client and a server side that may be two
//     processes: a one-way stream ([Stream]), one message at a time ([Latency]), many small
//     messages over many queue pairs ([Rate]), and the registration of memory ([Registration]).
//   - Paired measurements ([PairedSeries]): a device and its baseline are measured in
//     turns, because on a shared machine only the ratio of two such figures is meaningful.
//   - Complete runs ([RunQuick], [RunIWARP]) with a [Result]: all samples, the noise, and
//     whether the targets are met.
//
// The programs are the same for RC, iWARP connections and UD; [Service] has the
// differences. The package opens no device, network or process: a [Side] has the
// device and the exchange with the other side, and a [Bench] the baselines. It can
// measure emulators and real NICs.
//
// A Side is used by one goroutine at a time. Programs read the machine's clock, unless the Side has
// another.
package perf

import (
	"cmp"
	"context"
	"math"
	"slices"
	"time"

	"github.com/fabrictest/fabrictest/verbs"
)

// run is the state of a run.
type run struct {
	Bench
	Options
	baseline    string // name of the baseline
	result      Result
	steps, done int
}

// part is a part of a run, with its number of steps for the progress.
type part struct {
	steps int
	do    func(context.Context) error
}

// measure runs all parts in order, and stores the highest noise and the duration in the result.
// r.steps is the number of steps of all parts, from which step computes the progress.
func (r *run) measure(ctx context.Context, parts []part) error {
	for _, p := range parts {
		r.steps += p.steps
	}
	start := time.Now()
	for _, p := range parts {
		if err := p.do(ctx); err != nil {
			return err
		}
	}
	n := &r.result.Noises
	r.result.Noise = max(n.Write, n.Spinning, n.Blocking, n.Rate, n.Datagrams)
	r.result.Seconds = math.Round(time.Since(start).Seconds()*10) / 10
	r.Progress("done", 1)
	return nil
}

// step reports that the named measurement starts, and the share of all steps that is done.
func (r *run) step(name string) {
	r.Progress(name, float64(r.done)/float64(r.steps))
	r.done++
}

// measureMemory measures the resident memory of an idle host.
func (r *run) measureMemory(ctx context.Context) (err error) {
	r.step("memory of an idle host")
	r.result.Memory.IdleMB, err = r.IdleMB(ctx)
	return err
}

// withCRC is the argument offloaded of measurements of devices that compute CRCs.
const withCRC = false

// deviceMeasurement returns the measurement of a program on the devices of a bench (two hosts with
// a device each). With offloaded, the devices neither compute nor check the CRC.
func deviceMeasurement(b Bench, p Program, offloaded bool) Measurement {
	name := p.String()
	if offloaded {
		name += ", CRC offloaded"
	}
	return Measurement{Name: name, Unit: p.Unit(), Measure: func(ctx context.Context) (float64, error) { return b.Run(ctx, p, offloaded) }}
}

// compare measures a device against a baseline, and adds all samples to the result.
func (r *run) compare(ctx context.Context, rounds int, baseline, device Measurement) (*PairedSeries, error) {
	var d PairedSeries
	for range rounds {
		r.step(device.Name)
		if err := d.Round(ctx, baseline, device); err != nil {
			return nil, err
		}
	}
	r.result.Samples = append(r.result.Samples, d.Baseline, d.Device, d.BaselineAgain)
	return &d, nil
}

// compareWrite measures WRITEs against plain sockets, which copy and compute CRCs, too. With
// offloaded, the devices compute no CRCs, and the sockets neither copy nor compute CRCs. slice is
// the duration of each sample.
func (r *run) compareWrite(ctx context.Context, bytes int, offloaded bool, rounds int, slice time.Duration) (*PairedSeries, error) {
	baseline := Measurement{Name: r.baseline + ", copy and CRC", Unit: "Gb/s"}
	if offloaded {
		baseline.Name = r.baseline
	}
	baseline.Measure = func(ctx context.Context) (float64, error) { return r.RawStream(ctx, bytes, !offloaded, slice) }
	p := Program{Stream: &Stream{Op: verbs.OpRDMAWrite, Bytes: bytes, Duration: slice}}
	return r.compare(ctx, rounds, baseline, deviceMeasurement(r.Bench, p, offloaded))
}

// pingBatch is the number of round trips that are timed together, as those of plain sockets are.
const pingBatch = 50

// trips returns how many round trips take about r.Slice, at 5 µs each, or 20 µs if blocking.
func (r *run) trips(blocking bool) int {
	n := int(r.Slice / (5 * time.Microsecond))
	if blocking {
		n /= 4 // a blocking side has to be woken
	}
	return n
}

// compareLatency measures half round trips against plain sockets that wait in the same way,
// blocking or spinning. It stores the highest ratio and noise of all sizes in the result.
func (r *run) compareLatency(ctx context.Context, bytes int, blocking bool) (*PairedSeries, error) {
	trips, how := r.trips(blocking), "spinning"
	if blocking {
		how = "blocking"
	}
	baseline := Measurement{Name: r.baseline + ", " + how, Unit: "µs"}
	baseline.Measure = func(ctx context.Context) (float64, error) { return r.RawPingPong(ctx, bytes, blocking, trips) }
	p := Program{Latency: &Latency{Op: verbs.OpSend, Bytes: bytes, Batch: pingBatch, Load: Load{Iterations: trips, Events: blocking}}}
	d, err := r.compare(ctx, r.Rounds, baseline, deviceMeasurement(r.Bench, p, withCRC))
	if err != nil {
		return nil, err
	}
	ratio, noise := &r.result.Ratios.LatencyToRawSpinning, &r.result.Noises.Spinning
	if blocking {
		ratio, noise = &r.result.Ratios.LatencyToRawBlocking, &r.result.Noises.Blocking
	}
	*ratio, *noise = max(*ratio, d.Ratio()), max(*noise, d.Noise())
	r.result.Ratios.LatencyToRaw = max(r.result.Ratios.LatencyToRaw, *ratio)
	return d, nil
}

// measureRates measures the message rate over each number of queue pairs; the first of QPs is
// measured before and after the others. It stores the rates, and the lowest of the ratios to the
// rate of the first (QPsFlatness), in the result.
func (r *run) measureRates(ctx context.Context) error {
	series := make([]Series, len(r.QPs)+1)
	order := slices.Concat(r.QPs, r.QPs[:1])
	for range r.Rounds {
		r.step("rate of 64-byte sends")
		for i, qps := range order {
			m := deviceMeasurement(r.Bench, Program{Rate: &Rate{Bytes: 64, Depth: 64, QPs: qps, Duration: r.Slice}}, withCRC)
			if err := series[i].measure(ctx, m); err != nil {
				return err
			}
		}
	}
	again := &series[len(r.QPs)]
	again.Name += ", again"
	r.result.Samples = append(r.result.Samples, series...)
	r.result.Noises.Rate = Median(differences(series[0].Values, again.Values))
	lowest := math.Inf(1) // ratio of a rate to that of the first of QPs
	for i, qps := range r.QPs {
		var ratios []float64
		for k, v := range series[i].Values {
			ratios = append(ratios, v/((series[0].Values[k]+again.Values[k])/2))
		}
		if i > 0 {
			lowest = min(lowest, Median(ratios))
		}
		r.result.Rates.ByQPs = append(r.result.Rates.ByQPs, QPRate{QPs: qps, PerS: math.Round(Median(series[i].Values))})
	}
	r.result.Rates.Send64PerS = math.Round(Median(slices.Concat(series[0].Values, again.Values)))
	if len(r.QPs) == 1 {
		lowest = 1
	}
	r.result.Rates.QPsFlatness = lowest
	return nil
}

// sweepRounds is the number of samples for sizes without a target.
const sweepRounds = 3

// measureStreams measures streams of all message sizes for each operation.
func (r *run) measureStreams(ctx context.Context, ops ...verbs.WROpcode) error {
	for _, op := range ops {
		for _, n := range r.Sizes {
			// No target depends on these rates, so half of the usual duration is precise enough.
			m := deviceMeasurement(r.Bench, Program{Stream: &Stream{Op: op, Bytes: n, Duration: r.Slice / 2}}, withCRC)
			r.step(m.Name)
			var s Series
			for range sweepRounds {
				if err := s.measure(ctx, m); err != nil {
					return err
				}
			}
			r.result.Samples = append(r.result.Samples, s)
			r.addStream(op, n, s.Values)
		}
	}
	return nil
}

// addStream adds the goodput of a stream to the result, from its samples in Gb/s.
func (r *run) addStream(op verbs.WROpcode, bytes int, gbps []float64) {
	r.result.Streams = append(r.result.Streams, StreamRate{Op: opNames[op], Bytes: bytes, Gbps: Median(gbps), Spread: Spread(gbps)})
}

// Bench is two hosts with devices of one kind, and plain sockets of the transport below them.
type Bench interface {
	// RawStream returns the goodput of plain sockets in Gb/s. With work, each side copies and
	// computes a CRC, as a software device does. Over TCP, messages have this size.
	RawStream(ctx context.Context, bytes int, work bool, d time.Duration) (gbps float64, err error)
	// RawPingPong returns the half round trip of plain sockets in µs, with the
	// packet size of a device for a message of this size.
	RawPingPong(ctx context.Context, bytes int, blocking bool, rounds int) (micros float64, err error)
	// Run runs a program on two new devices. With offloaded they neither compute
	// nor check the CRC.
	Run(ctx context.Context, p Program, offloaded bool) (float64, error)
	// IdleMB returns the resident memory, in MB, of a process with a device and an idle connection.
	IdleMB(ctx context.Context) (float64, error)
}

// Options are the options of a run. Zero values mean the defaults.
type Options struct {
	// Rounds is the number of rounds of each comparison; 0 means 7.
	Rounds int
	// Slice is the duration of one sample of a stream or rate; 0 means 120 ms.
	Slice time.Duration
	// Sizes are the message sizes of streams; nil means 64 B to 4 MiB.
	Sizes []int
	// QPs are the numbers of queue pairs for small messages; nil means 1 to 64. The
	// first is the reference.
	QPs []int
	// Progress, if not nil, is called with the next measurement and the part that is done.
	Progress func(doing string, done float64)
}

// orDefault returns the options with defaults instead of zero values.
func (o Options) orDefault() Options {
	o.Rounds = cmp.Or(o.Rounds, 7)
	o.Slice = cmp.Or(o.Slice, 120*time.Millisecond)
	if o.Sizes == nil {
		for n := 64; n <= 4<<20; n *= 4 {
			o.Sizes = append(o.Sizes, n)
		}
	}
	if o.QPs == nil {
		o.QPs = []int{1, 2, 4, 8, 16, 32, 64}
	}
	if o.Progress == nil {
		o.Progress = func(string, float64) {}
	}
	return o
}
