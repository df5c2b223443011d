package mpihost

import (
	"encoding/json"
	"fmt"

	"github.com/fabrictest/fabrictest/mpi"
	"github.com/fabrictest/fabrictest/mpi/transport"
)

func init() { mpi.RegisterLauncher("lab/mpihost", startRanks) }

// startRanks implements mpi.Launcher. The job has the mpi.Options.
func startRanks(rank func(*transport.Env, mpi.Options) error) error {
	p, err := Join()
	if err != nil {
		return err
	}
	var o mpi.Options
	if text := p.Job().Options; text != nil {
		if err := json.Unmarshal(text, &o); err != nil {
			return fmt.Errorf("the options from 'fabrictest mpirun': %w", err)
		}
	}
	o.OnFinalize = func(rank int, s mpi.Stats) { p.Report(rank, s) }
	return p.Run(func(e *transport.Env) error { return rank(e, o) })
}
