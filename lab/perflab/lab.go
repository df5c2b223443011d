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

	"github.com/fabrictest/fabrictest/conformance"
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
	// Programs are those of planPrograms, and Kind and Service its devices.
	Programs []perf.Program       `json:"programs,omitempty"`
	Kind     conformance.Protocol `json:"kind,omitempty"`
	Service  *perf.Service        `json:"service,omitempty"`
	// Offloaded devices neither compute nor check CRCs.
	Offloaded bool `json:"offloaded,omitempty"`
	// Cable connects the hosts by a cable in shared memory, without namespaces.
	Cable bool `json:"cable,omitempty"`
}

// planPrograms is the plan that runs the programs of a job, and reports the figures of each.
const planPrograms = "programs"

type labMessage struct {
	Doing   string        `json:"doing,omitempty"`
	Done    float64       `json:"done,omitempty"`
	Figures *perf.Figures `json:"figures,omitempty"` // of the next program
	Result  *perf.Result  `json:"result,omitempty"`
	Error   string        `json:"error,omitempty"`
}

// Quick measures soft-RoCE against plain UDP sockets: see perf.RunQuick.
func Quick(ctx context.Context, opts Options) (*perf.Result, error) {
	return runPlan(ctx, "quick", opts)
}

// IWARP measures soft-iWARP against TCP, and datagram-iWARP against soft-iWARP: see perf.RunIWARP.
func IWARP(ctx context.Context, opts Options) (*perf.Result, error) {
	return runPlan(ctx, "iwarp", opts)
}

// runPlan runs a plan (a named set of measurements) in a new lab process.
func runPlan(ctx context.Context, plan string, opts Options) (result *perf.Result, err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, runTimeout, fmt.Errorf("the measurement did not end within %v", runTimeout))
	defer cancel()
	err = runInLab(ctx, &job{Plan: plan, Rounds: opts.Rounds, Slice: opts.Slice}, func(m *labMessage) {
		switch {
		case m.Result != nil:
			result = m.Result
		case opts.Progress != nil:
			opts.Progress(m.Doing, m.Done)
		}
	})
	if err == nil && result == nil {
		err = errors.New("the lab process ended without a result")
	}
	return result, err
}

// runInLab runs a job in a new lab process, and calls onMessage for its messages that are no
// errors. That process starts two hosts; unless they share a cable in memory, it creates a network
// namespace for each, and removes them at the end. Cancelling ctx ends all processes.
func runInLab(ctx context.Context, j *job, onMessage func(*labMessage)) error {
	start := (*exec.Cmd).Start
	if !j.Cable {
		start = netns.StartUnshared
		if err := netns.Available(); err != nil {
			return fmt.Errorf("performance is measured between network namespaces: %w", err)
		}
	}
	text, err := json.Marshal(j)
	if err != nil {
		return err
	}
	var stderr bytes.Buffer
	cmd := exec.CommandContext(ctx, "/proc/self/exe", LabArgs...)
	cmd.Stdin, cmd.Stderr = bytes.NewReader(text), &stderr
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = stopTimeout
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := start(cmd); err != nil {
		return fmt.Errorf("start a lab process: %w", err)
	}
	labErr := readMessages(out, onMessage)
	waitErr := cmd.Wait()
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case labErr == nil && waitErr != nil:
		return fmt.Errorf("the lab process failed: %w: %s", waitErr, bytes.TrimSpace(stderr.Bytes()))
	}
	return labErr
}

// readMessages reads the messages of a lab process until it ends or writes something else, and
// calls onMessage for each. It returns the error that the process reported.
func readMessages(from io.Reader, onMessage func(*labMessage)) (labErr error) {
	in := json.NewDecoder(from)
	for {
		msg := new(labMessage)
		if err := in.Decode(msg); err != nil {
			return labErr
		}
		if msg.Error != "" {
			labErr = errors.New(msg.Error)
			continue
		}
		onMessage(msg)
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
	send := func(m labMessage) { _ = out.Encode(m) } // the reader may be gone
	if err := measure(ctx, &j, send); err != nil {
		return out.Encode(labMessage{Error: err.Error()})
	}
	return nil
}
