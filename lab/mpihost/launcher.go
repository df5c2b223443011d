package mpihost

import (
	"encoding/json"
	"fmt"

	"github.com/fabrictest/fabrictest/mpi"
	"github.com/fabrictest/fabrictest/mpi/transport"
)

func init() { mpi.RegisterLauncher("lab/mpihost", startRanks) }

// startRanks implements mpi.Launcher: it calls runRank for each rank of this process, with the
// mpi.Options of its job, and reports the statistics of each rank to the launcher.
func startRanks(runRank func(*transport.Env, mpi.Options) error) error {
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
	return p.Run(func(e *transport.Env) error { return runRank(e, o) })
}
