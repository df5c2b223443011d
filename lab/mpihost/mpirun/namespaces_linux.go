package mpirun

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"time"

	"github.com/fabrictest/fabrictest/netns"
)

// The inherited descriptors of the fabric process.
const (
	jobFD     = 3
	reportsFD = 4
)

// stopTimeout is the time from SIGTERM to SIGKILL.
const stopTimeout = 10 * time.Second

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
	if err := netns.Available(); err != nil {
		return Result{}, err
	}
	j := fabricJob{Config: r}
	if j.Dir, err = os.Getwd(); err != nil {
		return Result{}, err
	}
	job, jobEnd, err := os.Pipe()
	if err != nil {
		return Result{}, err
	}
	defer jobEnd.Close()
	reports, reportsEnd, err := os.Pipe()
	if err != nil {
		return Result{}, errors.Join(err, job.Close())
	}
	defer reports.Close()
	cmd := exec.CommandContext(ctx, "/proc/self/exe", ProcessCommand)
	cmd.Stdin, cmd.Stdout, cmd.Stderr, cmd.ExtraFiles = os.Stdin, os.Stdout, os.Stderr, []*os.File{job, reportsEnd}
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = stopTimeout
	err = netns.StartUnshared(cmd)
	job.Close() // keep only the other ends open
	reportsEnd.Close()
	if err != nil {
		return Result{}, err
	}
	writeErr := json.NewEncoder(jobEnd).Encode(j)
	jobEnd.Close()
	var readErr error
	result.Reports, _, readErr = readReports(reports, r.Ranks)
	var exit *exec.ExitError
	switch err := cmd.Wait(); {
	case ctx.Err() != nil:
		return Result{}, fmt.Errorf("interrupted: %w", context.Cause(ctx))
	case err != nil && !errors.As(err, &exit):
		return Result{}, err
	}
	if result.Code = exitCode(cmd.ProcessState); result.Code != 0 {
		return result, nil // the child printed the reason
	}
	return result, errors.Join(writeErr, readErr)
}

// exitCode returns the exit code as a shell does: 128 plus the signal number if the
// process was killed.
func exitCode(s *os.ProcessState) int {
	if w, ok := s.Sys().(syscall.WaitStatus); ok && w.Signaled() {
		return 128 + int(w.Signal())
	}
	return s.ExitCode()
}
