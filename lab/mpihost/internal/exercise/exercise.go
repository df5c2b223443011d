// Package exercise is a program for the ranks of a test: it shows that what a rank was
// given works. It needs no more than an env.Env, and so neither the runtime nor its
// carrier.
package exercise

import (
	"errors"
	"fmt"
	"time"

	"github.com/fabrictest/fabrictest/mpi/env"
	"github.com/fabrictest/fabrictest/scenarios/workload"
	"github.com/fabrictest/fabrictest/verbs"
)

// patience is for machines that are busy with other things.
const patience = time.Minute

// AllToAll has every rank send to every other on every rail, whatever its NICs can do,
// and check what has come.
func AllToAll(e *env.Env, messages int) error {
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
		Rank: e.Rank, Size: e.Size, Seed: e.Seed, Proc: e.Proc, NICs: all, Control: control{e.Control},
		Concurrent: e.Concurrent, StallTimeout: patience,
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
		return fmt.Errorf("%d messages have come, not %d: %v %v", arrived, want, r.Violations, r.Failures)
	}
	return nil
}

// control is an env.Control for a workload, which knows a rank that has ended by
// another error, and whose record nobody keeps.
type control struct{ env.Control }

// Send implements workload.Control.
func (c control) Send(to int, msg []byte) error { return own(c.Control.Send(to, msg)) }

// Recv implements workload.Control.
func (c control) Recv(from int, timeout time.Duration) ([]byte, error) {
	msg, err := c.Control.Recv(from, timeout)
	return msg, own(err)
}

func own(err error) error {
	if errors.Is(err, env.ErrGone) {
		return fmt.Errorf("%w: %w", workload.ErrGone, err)
	}
	return err
}

// Mark implements workload.Control.
func (control) Mark(string) {}

// Sample implements workload.Control.
func (control) Sample(workload.Sample) {}
