package mpirun

import (
	"context"
	"encoding/json"
	"fmt"
	"os"

	"github.com/fabrictest/fabrictest/lab/mpihost"
	"github.com/fabrictest/fabrictest/launch"
)

// reportFD is what the descriptor for reports is called in the program: the first
// behind that of the launcher.
const reportFD = 4

// InWorld runs the program as all ranks of a simulated world.
func InWorld(ctx context.Context, r Run) (Result, error) {
	if err := r.normal(); err != nil {
		return Result{}, err
	}
	from, to, err := os.Pipe()
	if err != nil {
		return Result{}, err
	}
	defer from.Close()
	defer to.Close() // again, if all goes well
	r.ReportFile = reportFD
	job, err := json.Marshal(r.Job)
	if err != nil {
		return Result{}, err
	}
	spec := launch.Spec{Start: withInput, Cmd: launch.Command{
		Path: r.Args[0], Args: r.Args[1:], Files: []*os.File{to}, Env: append(os.Environ(), mpihost.WorldVar+"="+string(job)),
	}}
	group, err := launch.Start(ctx, []launch.Spec{spec}, launch.Options{
		Join: launch.JoinOptional, LogLimit: noLimit,
		OnEvent: func(e launch.Event) {
			if e.Kind == launch.Printed {
				r.passOn(&e)
			}
		},
	})
	if err != nil {
		return Result{}, err
	}
	to.Close() // with an end of our own, we would wait for ourselves
	reports, begun, unread := readReports(from, r.Ranks)
	outcomes, _ := group.Wait() // the outcome says it all
	result := Result{Code: verdict(outcomes, os.Stderr), Reports: reports}
	switch {
	case ctx.Err() != nil:
		return Result{}, fmt.Errorf("interrupted: %w", context.Cause(ctx))
	case result.Code != 0:
		return result, nil // it has said why, and what else went wrong follows from it
	case !begun:
		return Result{}, fmt.Errorf("%s has ended: %s", r.Args[0], notOurs)
	}
	return result, unread
}

// noLimit is for output that is passed on and kept nowhere.
const noLimit = 1 << 62
