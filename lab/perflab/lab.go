package perflab

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"syscall"
	"time"

	"github.com/fabrictest/fabrictest/launch"
	"github.com/fabrictest/fabrictest/netns"
	"github.com/fabrictest/fabrictest/perf"
)

// Options are the options of a run. Zero values mean the defaults.
type Options struct {
	// Rounds and Slice are those of perf.Options.
	Rounds int
	Slice  time.Duration
	// Progress, if not nil, is called with the next measurement and the part of the run done.
	Progress func(doing string, done float64)
}

const (
	// runTimeout is several times the usual duration of a run.
	runTimeout = 5 * time.Minute
	// stopTimeout is the time from SIGTERM to SIGKILL.
	stopTimeout = 15 * time.Second
)

// job is the input of a lab process, and labMessage a line of its output.
type job struct {
	Plan   string        `json:"plan"`
	Rounds int           `json:"rounds,omitempty"`
	Slice  time.Duration `json:"slice,omitempty"`
}

type labMessage struct {
	Doing  string       `json:"doing,omitempty"`
	Done   float64      `json:"done,omitempty"`
	Result *perf.Result `json:"result,omitempty"`
	Error  string       `json:"error,omitempty"`
}

// Quick measures soft-RoCE against plain UDP sockets: see perf.RunQuick.
func Quick(ctx context.Context, opts Options) (*perf.Result, error) {
	return runInLab(ctx, "quick", opts)
}

// IWARP measures soft-iWARP against TCP, and datagram-iWARP against soft-iWARP: see perf.RunIWARP.
func IWARP(ctx context.Context, opts Options) (*perf.Result, error) {
	return runInLab(ctx, "iwarp", opts)
}

// runInLab runs a plan (a named set of measurements) in a new lab process. That process creates two
// network namespaces, the hosts, and removes them at the end. Cancelling ctx ends all processes.
func runInLab(ctx context.Context, plan string, opts Options) (*perf.Result, error) {
	if err := netns.Available(); err != nil {
		return nil, fmt.Errorf("performance is measured between network namespaces: %w", err)
	}
	ctx, cancel := context.WithTimeoutCause(ctx, runTimeout, fmt.Errorf("the measurement did not end within %v", runTimeout))
	defer cancel()
	text, err := json.Marshal(job{Plan: plan, Rounds: opts.Rounds, Slice: opts.Slice})
	if err != nil {
		return nil, err
	}
	var stderr bytes.Buffer
	cmd := exec.CommandContext(ctx, "/proc/self/exe", LabArgs...)
	cmd.Stdin, cmd.Stderr = bytes.NewReader(text), &stderr
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = stopTimeout
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := netns.StartUnshared(cmd); err != nil {
		return nil, fmt.Errorf("start a lab process: %w", err)
	}
	result, labErr := readMessages(out, opts.Progress)
	_ = cmd.Wait() // ProcessState has the exit status
	switch {
	case ctx.Err() != nil:
		return nil, context.Cause(ctx)
	case labErr != nil:
		return nil, labErr
	case result == nil:
		return nil, fmt.Errorf("the lab process ended without a result: %v: %s", cmd.ProcessState, bytes.TrimSpace(stderr.Bytes()))
	}
	return result, nil
}

// readMessages reads the messages of a lab process until it ends or writes something else, and
// calls onProgress, if it is not nil, for those about progress. It returns the result or the error
// that the process reported.
func readMessages(from io.Reader, onProgress func(string, float64)) (result *perf.Result, labErr error) {
	in := json.NewDecoder(from)
	for {
		var msg labMessage
		if err := in.Decode(&msg); err != nil {
			return result, labErr
		}
		switch {
		case msg.Error != "":
			labErr = errors.New(msg.Error)
		case msg.Result != nil:
			result = msg.Result
		case onProgress != nil:
			onProgress(msg.Doing, msg.Done)
		}
	}
}

// LabMain is the main function of a lab process: it runs the job from its standard
// input and writes messages to its standard output.
func LabMain() error {
	ctx, stop := signal.NotifyContext(context.Background(), launch.StopSignals()...)
	defer stop()
	var j job
	if err := json.NewDecoder(os.Stdin).Decode(&j); err != nil {
		return fmt.Errorf("read the job: %w", err)
	}
	out := json.NewEncoder(os.Stdout)
	msg := labMessage{}
	var err error
	msg.Result, err = measure(ctx, &j, perf.Options{
		Rounds: j.Rounds, Slice: j.Slice,
		Progress: func(doing string, done float64) {
			_ = out.Encode(labMessage{Doing: doing, Done: done}) // the reader may be gone
		},
	})
	if err != nil {
		msg.Error = err.Error()
	}
	return out.Encode(msg)
}
