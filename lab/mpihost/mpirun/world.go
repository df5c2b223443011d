package mpirun

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"

	"github.com/fabrictest/fabrictest/lab/mpihost"
	"github.com/fabrictest/fabrictest/launch"
)

// reportFD is the descriptor for reports in the program: the first after the
// launcher's.
const reportFD = 4

// InSimulation starts the program once. That process runs all ranks in a simulation, and
// writes their reports to reportFD.
func InSimulation(ctx context.Context, r Config) (Result, error) {
	if err := r.setDefaults(); err != nil {
		return Result{}, err
	}
	reportsReader, reportsWriter, err := os.Pipe()
	if err != nil {
		return Result{}, err
	}
	defer reportsReader.Close()
	defer reportsWriter.Close()
	r.ReportFD = reportFD
	job, err := json.Marshal(r.Job)
	if err != nil {
		return Result{}, err
	}
	spec := launch.Spec{Start: withStdin((*exec.Cmd).Start), Cmd: launch.Command{
		Path: r.Args[0], Args: r.Args[1:], Files: []*os.File{reportsWriter}, Env: append(os.Environ(), mpihost.WorldVar+"="+string(job)),
	}}
	group, err := launch.Start(ctx, []launch.Spec{spec}, launch.Options{
		Join: launch.JoinOptional, LogLimit: noLimit,
		OnEvent: func(e launch.Event) {
			if e.Kind == launch.Printed {
				r.forwardOutput(&e)
			}
		},
	})
	if err != nil {
		return Result{}, err
	}
	reportsWriter.Close() // the program has the only open copy: its exit ends the reports
	reports, started, readErr := readReports(reportsReader, r.Ranks)
	outcomes, _ := group.Wait() // the outcome has the error
	result := Result{Code: exitStatus(outcomes, os.Stderr), Reports: reports}
	switch {
	case ctx.Err() != nil:
		return Result{}, fmt.Errorf("interrupted: %w", context.Cause(ctx))
	case result.Code != 0:
		return result, nil // the program printed the reason
	case !started:
		return Result{}, fmt.Errorf("%s has ended: %s", r.Args[0], notARank)
	}
	return result, readErr
}

// noLimit is for output that is forwarded and not kept.
const noLimit = 1 << 62

// withStdin returns a function that starts a process as start does, with the standard input of
// this process, unless it is a terminal, from which a background process group must not read.
func withStdin(start func(*exec.Cmd) error) func(*exec.Cmd) error {
	return func(cmd *exec.Cmd) error {
		if info, err := os.Stdin.Stat(); err == nil && info.Mode()&os.ModeCharDevice == 0 {
			cmd.Stdin = os.Stdin
		}
		return start(cmd)
	}
}
