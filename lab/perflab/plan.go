package perflab

import (
	"context"
	"fmt"

	"github.com/fabrictest/fabrictest/perf"
)

// plan is which run to make on a machine.
type plan func(context.Context, *machine, perf.Options) (*perf.Result, error)

// plans by their names, as jobs have them.
var plans = map[string]plan{
	"quick": func(ctx context.Context, m *machine, opt perf.Options) (*perf.Result, error) {
		return perf.RunQuick(ctx, overUDP{devices{m, roce}}, opt)
	},
	"iwarp": func(ctx context.Context, m *machine, opt perf.Options) (*perf.Result, error) {
		return perf.RunIWARP(ctx, overTCP{devices{m, iwarp}}, overUDP{devices{m, datagrams}}, opt)
	},
}

// Quick measures soft-RoCE beside bare UDP sockets: see perf.RunQuick.
func Quick(ctx context.Context, opts Options) (*perf.Result, error) { return inLab(ctx, "quick", opts) }

// IWARP measures soft-iWARP beside plain TCP, and datagram-iWARP beside
// soft-iWARP: see perf.RunIWARP.
func IWARP(ctx context.Context, opts Options) (*perf.Result, error) { return inLab(ctx, "iwarp", opts) }

// do makes the run that a job names.
func (j *job) do(ctx context.Context, m *machine, opt perf.Options) (*perf.Result, error) {
	p, ok := plans[j.Plan]
	if !ok {
		return nil, fmt.Errorf("no run is called %q", j.Plan)
	}
	return p(ctx, m, opt)
}
