package perf

import (
	"context"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/fabrictest/fabrictest/verbs"
)

// Bench is two hosts on which a run measures.
type Bench interface {
	// RawStream is the goodput of bare sockets in Gb/s: with a copy and a CRC on
	// each side, which is what a device does in software, or without.
	RawStream(ctx context.Context, work bool, d time.Duration) (gbps float64, err error)
	// RawPingPong is the half round trip of bare sockets in µs.
	RawPingPong(ctx context.Context, blocking bool, rounds int) (micros float64, err error)
	// Run runs a program on two devices that are opened for it. With offloaded
	// they neither compute nor check the CRC of packets.
	Run(ctx context.Context, p Program, offloaded bool) (float64, error)
	// IdleMB is the resident memory, in MB, of a host's process that has a device
	// and a connection and does nothing.
	IdleMB(ctx context.Context) (float64, error)
}

// QuickOptions are those of a short run. Zero values mean the defaults.
type QuickOptions struct {
	// Rounds is how often each comparison is made; 0 means 7.
	Rounds int
	// Slice is how long one sample of a stream or a rate takes; 0 means 120 ms.
	Slice time.Duration
	// Sizes of messages to stream; nil means 64 B to 4 MiB.
	Sizes []int
	// QPs to spread small messages over; nil means 1 to 64. The first is what the
	// others are compared with.
	QPs []int
	// Progress, if not nil, is told what is measured next, and how much of the
	// run is done.
	Progress func(doing string, done float64)
}

func (o QuickOptions) orDefault() QuickOptions {
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

// Quick is the result of a short run.
type Quick struct {
	Ratios  Ratios       `json:"ratios"`
	Rates   Rates        `json:"rates"`
	Memory  Memory       `json:"memory"`
	Streams []StreamRate `json:"streams"`
	// Noise is the worst of Noises: how much the limits differed from themselves.
	Noise   float64  `json:"noise"`
	Noises  Noises   `json:"noises"`
	Targets []Target `json:"targets"`
	Samples []Series `json:"samples"`
	Seconds float64  `json:"seconds"`
}

// Ratios compare a device with bare sockets.
type Ratios struct {
	WriteToLimit          float64 `json:"write_to_limit"`
	WriteToLimitOffloaded float64 `json:"write_to_limit_offloaded"`
	// LatencyToRaw is the worse of the two below it.
	LatencyToRaw         float64 `json:"latency_to_raw"`
	LatencyToRawSpinning float64 `json:"latency_to_raw_spinning"`
	LatencyToRawBlocking float64 `json:"latency_to_raw_blocking"`
}

// Rates are of messages of 64 bytes.
type Rates struct {
	Send64PerS float64 `json:"send64_per_s"`
	// QPsFlatness is the lowest rate at any number of queue pairs, as a fraction
	// of that at one.
	QPsFlatness float64  `json:"qps_flatness"`
	ByQPs       []QPRate `json:"by_qps"`
}

// QPRate is the rate over so many queue pairs.
type QPRate struct {
	QPs  int     `json:"qps"`
	PerS float64 `json:"per_s"`
}

// Memory is what a host's process holds.
type Memory struct {
	IdleMB float64 `json:"idle_mb"`
}

// StreamRate is the goodput of one kind of message.
type StreamRate struct {
	Op     string  `json:"op"`
	Bytes  int     `json:"bytes"`
	Gbps   float64 `json:"gbps"`
	Spread float64 `json:"spread"`
}

// Noises are the A/A differences of the comparisons of a run.
type Noises struct {
	Write    float64 `json:"write"`
	Spinning float64 `json:"spinning"`
	Blocking float64 `json:"blocking"`
	Rate     float64 `json:"rate"`
}

// run is a short run under way.
type run struct {
	Bench
	QuickOptions
	q           Quick
	steps, done int
}

// RunQuick measures everything once over: comparisons with bare sockets, the
// rate of small messages, streams of all sizes, and the memory of idle hosts.
func RunQuick(ctx context.Context, b Bench, opt QuickOptions) (*Quick, error) {
	r := &run{Bench: b, QuickOptions: opt.orDefault()}
	r.steps = 4*r.Rounds + r.Rounds + 3*len(r.Sizes) + 1
	start := time.Now()
	for _, part := range []func(context.Context) error{r.memory, r.streams, r.latencies, r.rates, r.sweep} {
		if err := part(ctx); err != nil {
			return nil, fmt.Errorf("quick run: %w", err)
		}
	}
	r.q.Noise = max(r.q.Noises.Write, r.q.Noises.Spinning, r.q.Noises.Blocking, r.q.Noises.Rate)
	r.q.Targets = r.q.judge()
	r.q.Seconds = math.Round(time.Since(start).Seconds()*10) / 10
	r.Progress("done", 1)
	return &r.q, nil
}

func (r *run) step(doing string) {
	r.Progress(doing, float64(r.done)/float64(r.steps))
	r.done++
}

func (r *run) memory(ctx context.Context) (err error) {
	r.step("memory of an idle host")
	r.q.Memory.IdleMB, err = r.IdleMB(ctx)
	return err
}

// program is the measurement of a program.
func (r *run) program(p Program, offloaded bool) Measurement {
	name := p.String()
	if offloaded {
		name += ", CRC offloaded"
	}
	return Measurement{Name: name, Unit: p.Unit(), Measure: func(ctx context.Context) (float64, error) { return r.Run(ctx, p, offloaded) }}
}

// duel compares a device with a limit, round by round.
func (r *run) duel(ctx context.Context, limit, device Measurement) (*Duel, error) {
	var d Duel
	for range r.Rounds {
		r.step(device.Name)
		if err := d.Round(ctx, limit, device); err != nil {
			return nil, err
		}
	}
	r.q.Samples = append(r.q.Samples, d.series()...)
	return &d, nil
}

// streams compares WRITEs of 1 MiB with bare sockets that do as much work.
func (r *run) streams(ctx context.Context) error {
	write := Program{Stream: &Stream{Op: verbs.OpRDMAWrite, Bytes: 1 << 20, Duration: r.Slice}}
	for _, offloaded := range []bool{false, true} {
		limit := Measurement{Name: "bare sockets, copy and CRC", Unit: "Gb/s"}
		if offloaded {
			limit.Name = "bare sockets"
		}
		limit.Measure = func(ctx context.Context) (float64, error) { return r.RawStream(ctx, !offloaded, r.Slice) }
		d, err := r.duel(ctx, limit, r.program(write, offloaded))
		if err != nil {
			return err
		}
		if offloaded {
			r.q.Ratios.WriteToLimitOffloaded = d.Ratio()
		} else {
			r.q.Ratios.WriteToLimit, r.q.Noises.Write = d.Ratio(), d.Noise()
		}
	}
	return nil
}

// latencies compares half round trips with those of bare sockets that wait in
// the same way.
func (r *run) latencies(ctx context.Context) error {
	for _, blocking := range []bool{false, true} {
		rounds := int(r.Slice / (5 * time.Microsecond))
		how := "spinning"
		if blocking {
			rounds, how = rounds/4, "blocking"
		}
		limit := Measurement{Name: "bare sockets, " + how, Unit: "µs"}
		limit.Measure = func(ctx context.Context) (float64, error) { return r.RawPingPong(ctx, blocking, rounds) }
		d, err := r.duel(ctx, limit, r.program(Program{PingPong: &PingPong{Bytes: 8, Rounds: rounds, Blocking: blocking}}, false))
		if err != nil {
			return err
		}
		if blocking {
			r.q.Ratios.LatencyToRawBlocking, r.q.Noises.Blocking = d.Ratio(), d.Noise()
		} else {
			r.q.Ratios.LatencyToRawSpinning, r.q.Noises.Spinning = d.Ratio(), d.Noise()
		}
	}
	r.q.Ratios.LatencyToRaw = max(r.q.Ratios.LatencyToRawSpinning, r.q.Ratios.LatencyToRawBlocking)
	return nil
}

// rates compares the rate over many queue pairs with that over the first of
// QPs, which is measured before and after them.
func (r *run) rates(ctx context.Context) error {
	series := make([]Series, len(r.QPs)+1)
	order := slices.Concat(r.QPs, r.QPs[:1])
	for range r.Rounds {
		r.step("rate of 64-byte sends")
		for i, qps := range order {
			m := r.program(Program{Rate: &Rate{Bytes: 64, Depth: 64, QPs: qps, Duration: r.Slice}}, false)
			if err := series[i].take(ctx, m); err != nil {
				return err
			}
		}
	}
	again := &series[len(r.QPs)]
	again.Name += ", again"
	r.q.Samples = append(r.q.Samples, series...)
	r.q.Noises.Rate = Median(differences(series[0].Values, again.Values))
	flattest := math.Inf(1)
	for i, qps := range r.QPs {
		var ratios []float64
		for k, v := range series[i].Values {
			ratios = append(ratios, v/((series[0].Values[k]+again.Values[k])/2))
		}
		if i > 0 {
			flattest = min(flattest, Median(ratios))
		}
		r.q.Rates.ByQPs = append(r.q.Rates.ByQPs, QPRate{QPs: qps, PerS: math.Round(Median(series[i].Values))})
	}
	r.q.Rates.Send64PerS = math.Round(Median(slices.Concat(series[0].Values, again.Values)))
	if len(r.QPs) == 1 {
		flattest = 1
	}
	r.q.Rates.QPsFlatness = flattest
	return nil
}

// sweepRounds is how often each size is measured. Nothing is concluded from
// these figures, so that few do.
const sweepRounds = 3

// sweep streams messages of all sizes by all operations.
func (r *run) sweep(ctx context.Context) error {
	for _, op := range []verbs.WROpcode{verbs.OpRDMAWrite, verbs.OpSend, verbs.OpRDMARead} {
		for _, n := range r.Sizes {
			m := r.program(Program{Stream: &Stream{Op: op, Bytes: n, Duration: r.Slice / 2}}, false)
			r.step(m.Name)
			var s Series
			for range sweepRounds {
				if err := s.take(ctx, m); err != nil {
					return err
				}
			}
			r.q.Samples = append(r.q.Samples, s)
			r.q.Streams = append(r.q.Streams, StreamRate{Op: opName(op), Bytes: n, Gbps: Median(s.Values), Spread: Spread(s.Values)})
		}
	}
	return nil
}
