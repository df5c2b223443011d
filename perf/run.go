// Package perf measures a pair of RDMA devices:
//
//   - Programs over verbs, each with a client and a server side that may be two
//
// processes: a one-way stream ([Stream]), a ping-pong ([PingPong]), and many small
// messages over many queue pairs ([Rate]).
//   - Paired measurements ([PairedSeries]): a device and its baseline are measured
//
// in turns, because on a shared machine only the ratio of two such figures is
// meaningful.
//   - Complete runs ([RunQuick], [RunIWARP]) with a [Result]: all samples, the
//
// noise, and whether the targets are met.
//
// The programs are the same for RC, iWARP connections and UD; [Service] has the
// differences. The package opens no device, network or process: a [Side] has the
// device and the exchange with the other side, and a [Bench] the baselines. It can
// measure emulators and real NICs.
//
// A Side is used by one goroutine at a time. Programs read the machine's clock.
package perf

import (
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
	limit       string // name of the baseline
	result      Result
	steps, done int
}

// part is a part of a run, with its number of steps for the progress.
type part struct {
	steps int
	do    func(context.Context) error
}

// measure runs all parts in order.
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
	r.result.Noise = r.result.Noises.worst()
	r.result.Seconds = math.Round(time.Since(start).Seconds()*10) / 10
	r.Progress("done", 1)
	return nil
}

func (r *run) step(doing string) {
	r.Progress(doing, float64(r.done)/float64(r.steps))
	r.done++
}

func (r *run) memory(ctx context.Context) (err error) {
	r.step("memory of an idle host")
	r.result.Memory.IdleMB, err = r.IdleMB(ctx)
	return err
}

// deviceMeasurement measures a program on the devices of a bench.
func deviceMeasurement(b Bench, p Program, offloaded bool) Measurement {
	name := p.String()
	if offloaded {
		name += ", CRC offloaded"
	}
	return Measurement{Name: name, Unit: p.Unit(), Measure: func(ctx context.Context) (float64, error) { return b.Run(ctx, p, offloaded) }}
}

// compare measures a device against a baseline.
func (r *run) compare(ctx context.Context, rounds int, limit, device Measurement) (*PairedSeries, error) {
	var d PairedSeries
	for range rounds {
		r.step(device.Name)
		if err := d.Round(ctx, limit, device); err != nil {
			return nil, err
		}
	}
	r.result.Samples = append(r.result.Samples, d.series()...)
	return &d, nil
}

// write measures WRITEs against plain sockets that copy and compute CRCs, or
// neither if the device leaves out the CRC.
func (r *run) write(ctx context.Context, bytes int, offloaded bool, rounds int, slice time.Duration) (*PairedSeries, error) {
	limit := Measurement{Name: r.limit + ", copy and CRC", Unit: "Gb/s"}
	if offloaded {
		limit.Name = r.limit
	}
	limit.Measure = func(ctx context.Context) (float64, error) { return r.RawStream(ctx, bytes, !offloaded, slice) }
	p := Program{Stream: &Stream{Op: verbs.OpRDMAWrite, Bytes: bytes, Duration: slice}}
	return r.compare(ctx, rounds, limit, deviceMeasurement(r.Bench, p, offloaded))
}

// trips returns the number of round trips for a slice.
func (r *run) trips(blocking bool) int {
	n := int(r.Slice / (5 * time.Microsecond))
	if blocking {
		n /= 4
	}
	return n
}

// latency measures half round trips against plain sockets that wait in the same
// way.
func (r *run) latency(ctx context.Context, bytes int, blocking bool) (*PairedSeries, error) {
	rounds, how := r.trips(blocking), "spinning"
	if blocking {
		how = "blocking"
	}
	limit := Measurement{Name: r.limit + ", " + how, Unit: "µs"}
	limit.Measure = func(ctx context.Context) (float64, error) { return r.RawPingPong(ctx, bytes, blocking, rounds) }
	d, err := r.compare(ctx, r.Rounds, limit, deviceMeasurement(r.Bench, Program{PingPong: &PingPong{Bytes: bytes, Rounds: rounds, Blocking: blocking}}, false))
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

// rates measures the message rate over each number of queue pairs, relative to the
// first of QPs, which is measured before and after.
func (r *run) rates(ctx context.Context) error {
	series := make([]Series, len(r.QPs)+1)
	order := slices.Concat(r.QPs, r.QPs[:1])
	for range r.Rounds {
		r.step("rate of 64-byte sends")
		for i, qps := range order {
			m := deviceMeasurement(r.Bench, Program{Rate: &Rate{Bytes: 64, Depth: 64, QPs: qps, Duration: r.Slice}}, false)
			if err := series[i].measure(ctx, m); err != nil {
				return err
			}
		}
	}
	again := &series[len(r.QPs)]
	again.Name += ", again"
	r.result.Samples = append(r.result.Samples, series...)
	r.result.Noises.Rate = Median(differences(series[0].Values, again.Values))
	flattest := math.Inf(1)
	for i, qps := range r.QPs {
		var ratios []float64
		for k, v := range series[i].Values {
			ratios = append(ratios, v/((series[0].Values[k]+again.Values[k])/2))
		}
		if i > 0 {
			flattest = min(flattest, Median(ratios))
		}
		r.result.Rates.ByQPs = append(r.result.Rates.ByQPs, QPRate{QPs: qps, PerS: math.Round(Median(series[i].Values))})
	}
	r.result.Rates.Send64PerS = math.Round(Median(slices.Concat(series[0].Values, again.Values)))
	if len(r.QPs) == 1 {
		flattest = 1
	}
	r.result.Rates.QPsFlatness = flattest
	return nil
}

// sweepRounds is the number of samples for sizes without a target.
const sweepRounds = 3

// sweep measures streams of all message sizes for each operation.
func (r *run) sweep(ctx context.Context, ops ...verbs.WROpcode) error {
	for _, op := range ops {
		for _, n := range r.Sizes {
			m := deviceMeasurement(r.Bench, Program{Stream: &Stream{Op: op, Bytes: n, Duration: r.Slice / 2}}, false)
			r.step(m.Name)
			var s Series
			for range sweepRounds {
				if err := s.measure(ctx, m); err != nil {
					return err
				}
			}
			r.result.Samples = append(r.result.Samples, s)
			r.stream(op, n, s.Values)
		}
	}
	return nil
}

// stream adds the goodput of a stream to the result.
func (r *run) stream(op verbs.WROpcode, bytes int, gbps []float64) {
	r.result.Streams = append(r.result.Streams, StreamRate{Op: opName(op), Bytes: bytes, Gbps: Median(gbps), Spread: Spread(gbps)})
}

// Bench is two hosts with devices of one kind, and plain sockets of the transport
// below them.
type Bench interface {
	// RawStream returns the goodput of plain sockets in Gb/s. With work, each side
	// copies and computes a CRC, as a software device does. Over TCP, messages have
	// this size.
	RawStream(ctx context.Context, bytes int, work bool, d time.Duration) (gbps float64, err error)
	// RawPingPong returns the half round trip of plain sockets in µs, with the
	// packet size of a device for a message of this size.
	RawPingPong(ctx context.Context, bytes int, blocking bool, rounds int) (micros float64, err error)
	// Run runs a program on two new devices. With offloaded they neither compute
	// nor check the CRC.
	Run(ctx context.Context, p Program, offloaded bool) (float64, error)
	// IdleMB returns the resident memory, in MB, of a process with a device and an
	// idle connection.
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
	// Progress, if not nil, is called with the next measurement and the part of the
	// run that is done.
	Progress func(doing string, done float64)
}

func (o Options) orDefault() Options {
	o.Rounds = orElse(o.Rounds, 7)
	o.Slice = orElse(o.Slice, 120*time.Millisecond)
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
