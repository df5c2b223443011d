package perf

import (
	"context"
	"math"
	"slices"
	"time"

	"github.com/fabrictest/fabrictest/verbs"
)

// run is a run under way.
type run struct {
	Bench
	Options
	limit       string // what bare sockets are called
	q           Result
	steps, done int
}

// part is a part of a run: how many steps it has, and what it does.
type part struct {
	steps int
	do    func(context.Context) error
}

// measure does all parts in order.
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
	r.q.Noise = r.q.Noises.worst()
	r.q.Seconds = math.Round(time.Since(start).Seconds()*10) / 10
	r.Progress("done", 1)
	return nil
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

// program is the measurement of a program on devices of a bench.
func program(b Bench, p Program, offloaded bool) Measurement {
	name := p.String()
	if offloaded {
		name += ", CRC offloaded"
	}
	return Measurement{Name: name, Unit: p.Unit(), Measure: func(ctx context.Context) (float64, error) { return b.Run(ctx, p, offloaded) }}
}

// duel compares a device with a limit, round by round.
func (r *run) duel(ctx context.Context, rounds int, limit, device Measurement) (*Duel, error) {
	var d Duel
	for range rounds {
		r.step(device.Name)
		if err := d.Round(ctx, limit, device); err != nil {
			return nil, err
		}
	}
	r.q.Samples = append(r.q.Samples, d.series()...)
	return &d, nil
}

// write compares WRITEs with bare sockets that do as much work, or where the
// device leaves the CRC out, none.
func (r *run) write(ctx context.Context, bytes int, offloaded bool, rounds int, slice time.Duration) (*Duel, error) {
	limit := Measurement{Name: r.limit + ", copy and CRC", Unit: "Gb/s"}
	if offloaded {
		limit.Name = r.limit
	}
	limit.Measure = func(ctx context.Context) (float64, error) { return r.RawStream(ctx, bytes, !offloaded, slice) }
	p := Program{Stream: &Stream{Op: verbs.OpRDMAWrite, Bytes: bytes, Duration: slice}}
	return r.duel(ctx, rounds, limit, program(r.Bench, p, offloaded))
}

// trips is how many round trips fill a slice.
func (r *run) trips(blocking bool) int {
	n := int(r.Slice / (5 * time.Microsecond))
	if blocking {
		n /= 4
	}
	return n
}

// latency compares half round trips with those of bare sockets that wait in the
// same way.
func (r *run) latency(ctx context.Context, bytes int, blocking bool) (*Duel, error) {
	rounds, how := r.trips(blocking), "spinning"
	if blocking {
		how = "blocking"
	}
	limit := Measurement{Name: r.limit + ", " + how, Unit: "µs"}
	limit.Measure = func(ctx context.Context) (float64, error) { return r.RawPingPong(ctx, bytes, blocking, rounds) }
	d, err := r.duel(ctx, r.Rounds, limit, program(r.Bench, Program{PingPong: &PingPong{Bytes: bytes, Rounds: rounds, Blocking: blocking}}, false))
	if err != nil {
		return nil, err
	}
	ratio, noise := &r.q.Ratios.LatencyToRawSpinning, &r.q.Noises.Spinning
	if blocking {
		ratio, noise = &r.q.Ratios.LatencyToRawBlocking, &r.q.Noises.Blocking
	}
	*ratio, *noise = max(*ratio, d.Ratio()), max(*noise, d.Noise())
	r.q.Ratios.LatencyToRaw = max(r.q.Ratios.LatencyToRaw, *ratio)
	return d, nil
}

// rates compares the rate over many queue pairs with that over the first of
// QPs, which is measured before and after them.
func (r *run) rates(ctx context.Context) error {
	series := make([]Series, len(r.QPs)+1)
	order := slices.Concat(r.QPs, r.QPs[:1])
	for range r.Rounds {
		r.step("rate of 64-byte sends")
		for i, qps := range order {
			m := program(r.Bench, Program{Rate: &Rate{Bytes: 64, Depth: 64, QPs: qps, Duration: r.Slice}}, false)
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

// sweep streams messages of all sizes by some operations.
func (r *run) sweep(ctx context.Context, ops ...verbs.WROpcode) error {
	for _, op := range ops {
		for _, n := range r.Sizes {
			m := program(r.Bench, Program{Stream: &Stream{Op: op, Bytes: n, Duration: r.Slice / 2}}, false)
			r.step(m.Name)
			var s Series
			for range sweepRounds {
				if err := s.take(ctx, m); err != nil {
					return err
				}
			}
			r.q.Samples = append(r.q.Samples, s)
			r.stream(op, n, s.Values)
		}
	}
	return nil
}

// stream notes the goodput of one kind of message.
func (r *run) stream(op verbs.WROpcode, bytes int, gbps []float64) {
	r.q.Streams = append(r.q.Streams, StreamRate{Op: opName(op), Bytes: bytes, Gbps: Median(gbps), Spread: Spread(gbps)})
}
