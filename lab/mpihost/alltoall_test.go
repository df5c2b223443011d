package mpihost

import (
	"fmt"
	"time"

	"github.com/fabrictest/fabrictest/mpi/transport"
	"github.com/fabrictest/fabrictest/scenarios/workload"
	"github.com/fabrictest/fabrictest/verbs"
)

// waitTimeout is long enough for busy machines.
const waitTimeout = time.Minute

// allToAll sends messages between all ranks on every rail, and checks the received ones.
func allToAll(e *transport.Env, messages int) error {
	attr, err := e.NICs[0].Device.QueryDevice()
	if err != nil {
		return err
	}
	cfg := workload.Config{Kind: workload.AllToAll, Messages: messages, Bytes: 3000, Op: workload.OpSend}
	if attr.Caps.Has(verbs.CapRD) {
		cfg.Services = []string{workload.ServiceRD}
	}
	all := make([]workload.NIC, 0, len(e.NICs))
	for rail, n := range e.NICs {
		all = append(all, workload.NIC{Device: n.Device, Addr: n.Addr, Rail: rail})
	}
	program, err := workload.New(cfg.WithDefaults(e.Size), &workload.Rank{
		Rank: e.Rank, Size: e.Size, Seed: e.Seed, Proc: e.Proc, NICs: all, Control: workloadControl{e.Control},
		Concurrent: e.Concurrent, StallTimeout: waitTimeout,
	})
	if err != nil {
		return err
	}
	r, err := program.Run()
	if err != nil {
		return fmt.Errorf("%w: %s", err, program.Status())
	}
	arrived := 0
	for _, f := range r.Flows {
		arrived += f.Arrived
	}
	if want := messages * len(e.NICs) * (e.Size - 1); arrived != want || len(r.Violations) > 0 {
		return fmt.Errorf("%d messages arrived, want %d: %v %v", arrived, want, r.Violations, r.Failures)
	}
	return nil
}

// workloadControl is a workload.Control over a transport.Control. It ignores marks and samples.
type workloadControl struct{ transport.Control }

// Mark implements workload.Control.
func (workloadControl) Mark(string) {}

// Sample implements workload.Control.
func (workloadControl) Sample(workload.Sample) {}
