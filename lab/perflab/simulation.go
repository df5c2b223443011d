package perflab

import (
	"context"
	"fmt"
	"time"

	"github.com/fabrictest/fabrictest/lab/mpihost"
	"github.com/fabrictest/fabrictest/lab/nics"
	"github.com/fabrictest/fabrictest/mpi/transport"
	"github.com/fabrictest/fabrictest/perf"
	"github.com/fabrictest/fabrictest/verbs"
)

// InSimulation runs a program between the first two hosts of a simulation, in several pairs of
// processes at the same time, and returns the result of each client. Programs that sleep take the
// time of a wake-up to run again.
func InSimulation(ctx context.Context, f mpihost.Fabric, service perf.Service, pairs int, p perf.Program) ([]perf.Figures, error) {
	f.ChargeWakes, f.Unreliable = true, service == perf.ServiceUD
	f.Stop = func() error { return context.Cause(ctx) }
	results := make([]perf.Figures, pairs)
	err := InPairs(f, service, pairs, func(pair int, s *perf.Side) error {
		figures, err := p.Run(ctx, s)
		if s.Role == perf.Client {
			results[pair] = figures
		}
		return err
	})
	return results, err
}

// InPairs calls run for both sides of each of several pairs of processes in a simulation. They are on
// two hosts, or in a fat tree each on a host of its own.
func InPairs(f mpihost.Fabric, service perf.Service, pairs int, run func(pair int, s *perf.Side) error) error {
	if f.Ranks, f.PerHost = 2*pairs, pairs; f.Leaves > 0 {
		f.PerHost = 1
	}
	_, err := mpihost.InWorld(f, func(e *transport.Env) error {
		nic := e.NICs[0]
		return run(e.Rank%pairs, &perf.Side{
			Role: perf.Role(e.Rank / pairs), Device: nic.Device, Service: service, Exchange: rankExchange{e, (e.Rank + pairs) % e.Size},
			Addr: nic.Addr, GIDIndex: nic.GIDIndex,
			Clock: e.Proc.Now, Go: func(f func()) { e.Go("exchange", func(verbs.Proc) { f() }) },
		})
	})
	return err
}

// rankExchange is the perf.Exchange of a rank of a simulation with its peer.
type rankExchange struct {
	e    *transport.Env
	peer int
}

// Swap implements perf.Exchange.
func (x rankExchange) Swap(_ context.Context, mine []byte) ([]byte, error) {
	const timeout = time.Hour // of virtual time: a benchmark may take long
	if err := x.e.Control.Send(x.peer, mine); err != nil {
		return nil, err
	}
	return x.e.Control.Recv(x.peer, timeout)
}

// ServiceOf returns the transport service that name (rc, uc, ud, xrc or rd) selects on the NICs of
// a provider. The empty name selects rc, or ud if the provider has no connections.
func ServiceOf(provider, name string) (perf.Service, error) {
	p, err := nics.Find(provider)
	if err != nil {
		return 0, err
	}
	caps := p.Caps
	if name == "rd" { // which NICs have with the option "reliable"
		caps = p.ReliableCaps
	}
	s, err := perf.ServiceOf(p.Transport, caps, name)
	if err != nil {
		return 0, fmt.Errorf("%s: %w", p.Name, err)
	}
	return s, nil
}
