package nslab

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
	"sync"
	"syscall"
	"time"

	"github.com/fabrictest/fabrictest/lab"
	"github.com/fabrictest/fabrictest/lab/daemon"
	"github.com/fabrictest/fabrictest/launch"
	"github.com/fabrictest/fabrictest/netns"
	"github.com/fabrictest/fabrictest/report"
	"github.com/fabrictest/fabrictest/scenarios"
)

// labJob is the input of a lab process, as JSON on its standard input.
type labJob struct {
	Name     string      `json:"name"`
	Scenario string      `json:"scenario"` // the file's text
	Options  lab.Options `json:"options"`
}

// labMessage is a message of a lab process, as a line of JSON.
type labMessage struct {
	State  []lab.RankState `json:"state,omitempty"`
	Result *report.Result  `json:"result,omitempty"`
}

const (
	// messagesFD is the descriptor to which a lab process writes its messages.
	messagesFD = 3
	// maxMessageBytes bounds a message. Results have the samples of all ranks.
	maxMessageBytes = 256 << 20
	// setupTimeout is the time beyond the scenario's limit to build and remove the fabric.
	setupTimeout = 30 * time.Second
	// stopTimeout is the time from SIGTERM to SIGKILL.
	stopTimeout = 15 * time.Second
)

// Run runs a scenario in namespaces and returns its result, which is never nil. A
// starved run is repeated once. Cancelling ctx stops all processes of the run.
func Run(ctx context.Context, s *scenarios.Scenario, opts lab.Options) *report.Result {
	return repeatStarved(ctx, func() *report.Result { return runOnce(ctx, s, opts) })
}

// repeatStarved calls run, and a second time if the run was starved: it got too little CPU time. The
// second result then also has the first attempt, and the time of both.
func repeatStarved(ctx context.Context, run func() *report.Result) *report.Result {
	r := run()
	if r.Verdict != report.Starved || ctx.Err() != nil {
		return r
	}
	first := &report.Attempt{Reason: r.Reason, Wall: r.Wall, Scheduling: r.Scheduling}
	r = run()
	r.First = first
	r.Wall += first.Wall
	return r
}

// runOnce runs a scenario once. The result is Skipped where namespaces are not available.
func runOnce(ctx context.Context, s *scenarios.Scenario, opts lab.Options) *report.Result {
	if cabled(s) {
		return runCabled(ctx, s, opts)
	}
	began := time.Now()
	r := lab.NewResult(s, scenarios.NetNS, &opts)
	if err := netns.Available(); err != nil {
		r.Verdict, r.Reason = report.Skipped, err.Error()
		return r
	}
	done, err := runLab(ctx, s, opts)
	if err != nil {
		lab.MarkBroken(r, err)
	} else {
		r = done
	}
	r.Wall = time.Since(began)
	return r
}

// runCabled runs a scenario whose hosts need no namespaces in this process. The result is Skipped if
// its NICs or its topology need them.
func runCabled(ctx context.Context, s *scenarios.Scenario, opts lab.Options) *report.Result {
	began := time.Now()
	limited, cancel := context.WithTimeoutCause(ctx, s.TimeLimit()+setupTimeout, errors.New("the run did not end"))
	defer cancel()
	r := runScenario(limited, s, opts)
	r.Wall = time.Since(began)
	return r
}

// runLab runs a scenario in a lab process (this program, started again in new namespaces), and
// returns its result.
func runLab(ctx context.Context, s *scenarios.Scenario, opts lab.Options) (*report.Result, error) {
	text, err := s.Marshal()
	if err != nil {
		return nil, err
	}
	job, err := json.Marshal(labJob{Name: s.Name, Scenario: string(text), Options: opts})
	if err != nil {
		return nil, err
	}
	messages, messagesWriter, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer messages.Close()
	var stderr daemon.HeadTail
	ctx, cancel := context.WithTimeoutCause(ctx, s.TimeLimit()+setupTimeout, errors.New("the lab process did not end"))
	defer cancel()
	cmd := exec.CommandContext(ctx, "/proc/self/exe", LabCommand)
	cmd.Stdin, cmd.Stderr, cmd.ExtraFiles = bytes.NewReader(job), &stderr, []*os.File{messagesWriter}
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = stopTimeout
	// With autogroups, Linux divides CPU time between sessions first. The fabric gets the share of
	// a separate session. Signals of the terminal reach it through ctx.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	err = netns.StartUnshared(cmd)
	messagesWriter.Close()
	if err != nil {
		return nil, fmt.Errorf("start a lab process: %w", startError(err))
	}
	ended := make(chan struct{})
	go func() {
		for {
			select {
			case <-ended:
				return
			case <-opts.StateRequests:
				_ = cmd.Process.Signal(syscall.SIGUSR1) // makes it report the state of its ranks; it may have ended
			}
		}
	}()
	result, readErr := readMessages(messages, maxMessageBytes, &opts)
	close(ended)
	waitErr := cmd.Wait()
	switch {
	case result != nil:
		return result, nil
	case ctx.Err() != nil:
		return nil, context.Cause(ctx)
	default:
		return nil, fmt.Errorf("the lab process ended without a result: %w%s", errors.Join(readErr, waitErr), describeOutput(stderr.String()))
	}
}

// readMessages reads the messages of a lab process until it ends. It passes states of ranks to
// opts.OnState, and returns the result. A message longer than limit bytes is an error.
func readMessages(from io.Reader, limit int64, opts *lab.Options) (result *report.Result, err error) {
	limited := &io.LimitedReader{R: from}
	in := json.NewDecoder(limited)
	for {
		var msg labMessage
		limited.N = limit
		if err := in.Decode(&msg); err != nil {
			switch {
			case limited.N == 0:
				return result, fmt.Errorf("a message of the lab process has more than %d bytes", limit)
			case errors.Is(err, io.EOF):
				return result, nil
			}
			return result, err
		}
		switch {
		case msg.Result != nil:
			result = msg.Result
		case msg.State != nil && opts.OnState != nil:
			opts.OnState(msg.State)
		}
	}
}

// LabMain is the main function of a lab process: it runs the scenario from its standard input, and
// reports to the process that started it. It returns an error if it cannot read the scenario or
// cannot report.
func LabMain() error {
	ctx, stop := signal.NotifyContext(context.Background(), launch.StopSignals()...)
	defer stop()
	var job labJob
	if err := json.NewDecoder(os.Stdin).Decode(&job); err != nil {
		return fmt.Errorf("read the job: %w", err)
	}
	messages := &messageWriter{to: json.NewEncoder(os.NewFile(messagesFD, "messages"))}
	job.Options.OnState = func(all []lab.RankState) { _ = messages.write(labMessage{State: all}) } // the reader may be gone
	requests := make(chan os.Signal, 1)
	signal.Notify(requests, syscall.SIGUSR1)
	job.Options.StateRequests = requests
	s, err := scenarios.Parse(job.Name+".yaml", []byte(job.Scenario))
	if err != nil {
		return err
	}
	return messages.write(labMessage{Result: runScenario(ctx, s, job.Options)})
}

// messageWriter writes the messages of a lab process. It is safe for concurrent use.
type messageWriter struct {
	mu sync.Mutex
	to *json.Encoder
}

// write writes a message as a line of JSON.
func (w *messageWriter) write(m labMessage) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.to.Encode(m)
}
