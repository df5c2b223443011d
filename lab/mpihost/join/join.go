// Package join lets a program that calls mpi.Main be what `fabrictest mpirun` started
// it to be: a rank in a process of its own, or all ranks of a simulated world. The
// program imports it for that alone:
//
//	import _ "github.com/fabrictest/fabrictest/lab/mpihost/join"
//
// It is apart from package mpihost so that the runtime's own tests can use that.
package join

import (
	"encoding/json"
	"fmt"

	"github.com/fabrictest/fabrictest/lab/mpihost"
	"github.com/fabrictest/fabrictest/mpi"
	"github.com/fabrictest/fabrictest/mpi/env"
)

func init() { mpi.RegisterLauncher("lab/mpihost/join", start) }

// start is an mpi.Launcher. The launcher's job has mpi.Options.
func start(rank func(*env.Env, mpi.Options) error) error {
	p, err := mpihost.Begin()
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
	return p.Run(func(e *env.Env) error { return rank(e, o) })
}
