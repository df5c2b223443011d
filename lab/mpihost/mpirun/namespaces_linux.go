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

// InNamespaces creates a fabric, runs the program in it with one process for each
// rank, and removes it.
func InNamespaces(ctx context.Context, r Config) (result Result, err error) {
	if err := r.setDefaults(); err != nil {
		return Result{}, err
	}
	j := fabricJob{Config: r}
	if j.Dir, err = os.Getwd(); err != nil {
		return Result{}, err
	}
	reports, reportsEnd, err := os.Pipe()
	if err != nil {
		return Result{}, err
	}
	defer reports.Close()
	var readErr error
	read := make(chan struct{})
	go func() {
		defer close(read)
		result.Reports, _, readErr = readReports(reports, r.Ranks)
	}()
	code, err := daemon.RunOnce(ctx, ProcessCommand, j, reportsEnd)
	<-read
	switch {
	case ctx.Err() != nil:
		return Result{}, fmt.Errorf("interrupted: %w", context.Cause(ctx))
	case code != 0: // the child printed the reason
		result.Code = code
		return result, nil
	}
	return result, errors.Join(err, readErr)
}
