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

// What the process of the fabric inherits: where it reads what to run, and where it
// hands in the reports of the ranks.
const (
	jobFD  = 3
	newsFD = 4
)

// goodbye is what it has to end its ranks and itself once it is asked to.
const goodbye = 10 * time.Second

// onceJob is what it is told.
type onceJob struct {
	Run
	Dir string `json:"dir"`
}

// InNamespaces makes a fabric, runs the program in it as one process a rank, and takes
// it down.
func InNamespaces(ctx context.Context, r Run) (result Result, err error) {
	if err := r.normal(); err != nil {
		return Result{}, err
	}
	if err := netns.Available(); err != nil {
		return Result{}, err
	}
	j := onceJob{Run: r}
	if j.Dir, err = os.Getwd(); err != nil {
		return Result{}, err
	}
	job, jobEnd, err := os.Pipe()
	if err != nil {
		return Result{}, err
	}
	defer jobEnd.Close() // again, if all goes well
	news, newsEnd, err := os.Pipe()
	if err != nil {
		return Result{}, errors.Join(err, job.Close())
	}
	defer news.Close()
	cmd := exec.CommandContext(ctx, "/proc/self/exe", ProcessCommand)
	cmd.Stdin, cmd.Stdout, cmd.Stderr, cmd.ExtraFiles = os.Stdin, os.Stdout, os.Stderr, []*os.File{job, newsEnd}
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = goodbye
	err = netns.StartUnshared(cmd)
	job.Close() // with ends of our own, we would wait for ourselves
	newsEnd.Close()
	if err != nil {
		return Result{}, err
	}
	told := json.NewEncoder(jobEnd).Encode(j)
	jobEnd.Close()
	var unread error
	result.Reports, _, unread = readReports(news, r.Ranks)
	var exit *exec.ExitError
	switch err := cmd.Wait(); {
	case ctx.Err() != nil:
		return Result{}, fmt.Errorf("interrupted: %w", context.Cause(ctx))
	case err != nil && !errors.As(err, &exit):
		return Result{}, err
	}
	if result.Code = exitCode(cmd.ProcessState); result.Code != 0 {
		return result, nil // it has said why, and what else went wrong follows from it
	}
	return result, errors.Join(told, unread)
}

// exitCode is how a process ended, as shells put it.
func exitCode(s *os.ProcessState) int {
	if w, ok := s.Sys().(syscall.WaitStatus); ok && w.Signaled() {
		return 128 + int(w.Signal())
	}
	return s.ExitCode()
}
