package perflab

import (
	"context"
	"fmt"

	"github.com/fabrictest/fabrictest/conformance"
	"github.com/fabrictest/fabrictest/perf"
)

// plan runs measurements on a testbed.
type plan func(context.Context, *testbed, perf.Options) (*perf.Result, error)

// plans are the plans by name.
var plans = map[string]plan{
	"quick": func(ctx context.Context, m *testbed, opt perf.Options) (*perf.Result, error) {
		return perf.RunQuick(ctx, overUDP{devices{m, conformance.RoCE}}, opt)
	},
	"iwarp": func(ctx context.Context, m *testbed, opt perf.Options) (*perf.Result, error) {
		return perf.RunIWARP(ctx, overTCP{devices{m, conformance.IWARP}}, overUDP{devices{m, conformance.DatagramIWARP}}, opt)
	},
}

// Quick measures soft-RoCE against plain UDP sockets: see perf.RunQuick.
func Quick(ctx context.Context, opts Options) (*perf.Result, error) {
	return runInLab(ctx, "quick", opts)
}

// IWARP measures soft-iWARP against plain TCP, and datagram-iWARP against
// soft-iWARP: see perf.RunIWARP.
func IWARP(ctx context.Context, opts Options) (*perf.Result, error) {
	return runInLab(ctx, "iwarp", opts)
}

// run runs the plan of the job.
func (j *job) run(ctx context.Context, m *testbed, opt perf.Options) (*perf.Result, error) {
	p, ok := plans[j.Plan]
	if !ok {
		return nil, fmt.Errorf("no run is called %q", j.Plan)
	}
	return p(ctx, m, opt)
}
