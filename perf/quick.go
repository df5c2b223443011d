package perf

import (
	"context"
	"fmt"

	"github.com/fabrictest/fabrictest/verbs"
)

// targetWriteBytes is the size of WRITEs with a target.
const targetWriteBytes = 1 << 20

// RunQuick compares devices with plain sockets, and measures the rate of small
// messages, streams of all sizes, and idle memory.
func RunQuick(ctx context.Context, b Bench, opt Options) (*Result, error) {
	r := &run{Bench: b, Options: opt.orDefault(), limit: "bare sockets"}
	err := r.measure(ctx, []part{
		{1, r.memory},
		{2 * r.Rounds, r.bigWrites},
		{2 * r.Rounds, func(ctx context.Context) error { return r.latencies(ctx, 8) }},
		{r.Rounds, r.rates},
		{3 * len(r.Sizes), func(ctx context.Context) error {
			return r.sweep(ctx, verbs.OpRDMAWrite, verbs.OpSend, verbs.OpRDMARead)
		}},
	})
	if err != nil {
		return nil, fmt.Errorf("quick run: %w", err)
	}
	r.result.Targets = withVerdicts(r.result.quickTargets())
	return &r.result, nil
}

// bigWrites compares WRITEs of 1 MiB, with and without CRC.
func (r *run) bigWrites(ctx context.Context) error {
	for _, offloaded := range []bool{false, true} {
		d, err := r.write(ctx, targetWriteBytes, offloaded, r.Rounds, r.Slice)
		if err != nil {
			return err
		}
		r.noteBigWrite(d, offloaded)
	}
	return nil
}

func (r *run) noteBigWrite(d *PairedSeries, offloaded bool) {
	if offloaded {
		r.result.Ratios.WriteToLimitOffloaded = d.Ratio()
	} else {
		r.result.Ratios.WriteToLimit, r.result.Noises.Write = d.Ratio(), d.Noise()
	}
}

// latencies compares half round trips of one size, spinning and blocking.
func (r *run) latencies(ctx context.Context, bytes int) error {
	for _, blocking := range []bool{false, true} {
		if _, err := r.latency(ctx, bytes, blocking); err != nil {
			return err
		}
	}
	return nil
}
