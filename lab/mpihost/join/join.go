// Package join registers the launcher of `fabrictest mpirun` with package mpi: a
// program that calls mpi.Main then is a rank in a process, or all ranks of a
// simulation. Programs import it for this side effect:
//
//	import _ "github.com/fabrictest/fabrictest/lab/mpihost/join"
//
// It is separate from package mpihost, which the tests of the runtime use.
package join

import (
	"encoding/json"
	"fmt"

	"github.com/fabrictest/fabrictest/lab/mpihost"
	"github.com/fabrictest/fabrictest/mpi"
	"github.com/fabrictest/fabrictest/mpi/transport"
)

func init() { mpi.RegisterLauncher("lab/mpihost/join", start) }

// start implements mpi.Launcher. The job has the mpi.Options.
func start(rank func(*transport.Env, mpi.Options) error) error {
	p, err := mpihost.Join()
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
