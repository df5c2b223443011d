package mpirun

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/fabrictest/fabrictest/lab/daemon"
)

// reportsFD is the descriptor for reports in the fabric process.
const reportsFD = 4

// fabricJob is the input of the fabric process.
type fabricJob struct {
	Config
	Dir string `json:"dir"`
}

// InNamespaces runs the program with one process for each rank, in a fabric of network
// namespaces. A child process creates the fabric, and the kernel removes it with that process.
func InNamespaces(ctx context.Context, r Config) (result Result, err error) {
	if err := r.setDefaults(); err != nil {
		return Result{}, err
	}
	j := fabricJob{Config: r}
	if j.Dir, err = os.Getwd(); err != nil {
		return Result{}, err
	}
	reports, childReports, err := os.Pipe()
	if err != nil {
		return Result{}, err
	}
	defer reports.Close()
	var readErr error
	readDone := make(chan struct{})
	go func() {
		defer close(readDone)
		result.Reports, _, readErr = readReports(reports, r.Ranks)
	}()
	code, err := daemon.RunOnce(ctx, ProcessCommand, j, childReports)
	<-readDone
	switch {
	case ctx.Err() != nil:
		return Result{}, fmt.Errorf("interrupted: %w", context.Cause(ctx))
	case code != 0: // the child printed the reason
		result.Code = code
		return result, nil
	}
	return result, errors.Join(err, readErr)
}
