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
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/fabrictest/fabrictest/lab"
	"github.com/fabrictest/fabrictest/netns"
	"github.com/fabrictest/fabrictest/report"
	"github.com/fabrictest/fabrictest/scenarios"
)

// labJob is what a lab process is told, as JSON on its standard input.
type labJob struct {
	Name     string      `json:"name"`
	Scenario string      `json:"scenario"` // the file's text
	Options  lab.Options `json:"options"`
}

// labNews is a line that a lab process writes to its results descriptor.
type labNews struct {
	Progress *lab.Progress   `json:"progress,omitempty"`
	State    []lab.RankState `json:"state,omitempty"`
	Result   *report.Result  `json:"result,omitempty"`
}

const (
	// newsFD is the descriptor on which a lab process reports.
	newsFD = 3
	// maxNews is how long a line of news may be: a result with the timelines of
	// many ranks.
	maxNews = 256 << 20
	// overtime is what a lab process has beyond the limit of its scenario to build
	// the fabric and take it down, before it is given up.
	overtime = 30 * time.Second
	// grace is what it has to clean up once it is asked to stop.
	grace = 15 * time.Second
)

// Run runs a scenario in namespaces and returns how it ended; never nil. One for which
// the machine was too busy is repeated once. A cancelled ctx stops it and everything it
// started.
func Run(ctx context.Context, s *scenarios.Scenario, opts lab.Options) *report.Result {
	return repeatStarved(ctx, func() *report.Result { return runOnce(ctx, s, opts) })
}

// repeatStarved runs something, and once more if it was starved.
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

func runOnce(ctx context.Context, s *scenarios.Scenario, opts lab.Options) *report.Result {
	began := time.Now()
	r := lab.NewResult(s, scenarios.NetNS, &opts)
	if err := netns.Available(); err != nil {
		r.Verdict, r.Reason = report.Skipped, err.Error()
		return r
	}
	done, err := runLab(ctx, s, opts)
	if err != nil {
		lab.Break(r, err)
	} else {
		r = done
	}
	r.Wall = time.Since(began)
	return r
}

func runLab(ctx context.Context, s *scenarios.Scenario, opts lab.Options) (*report.Result, error) {
	text, err := s.Marshal()
	if err != nil {
		return nil, err
	}
	job, err := json.Marshal(labJob{Name: s.Name, Scenario: string(text), Options: opts})
	if err != nil {
		return nil, err
	}
	news, newsEnd, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer news.Close()
	var complaints tail
	ctx, cancel := context.WithTimeoutCause(ctx, s.TimeLimit()+overtime, errors.New("the lab process did not end"))
	defer cancel()
	cmd := exec.CommandContext(ctx, "/proc/self/exe", LabCommand)
	cmd.Stdin, cmd.Stderr, cmd.ExtraFiles = bytes.NewReader(job), &complaints, []*os.File{newsEnd}
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = grace
	// Linux shares processors out by session first (sched_autogroup): in a session of its
	// own a fabric competes with all of the user's other programs as with one. Signals of
	// the terminal reach it through ctx.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	err = netns.StartUnshared(cmd)
	newsEnd.Close()
	if err != nil {
		return nil, fmt.Errorf("start a lab process: %w", unstarted(err))
	}
	ended := make(chan struct{})
	go passOn(opts.Ask, cmd.Process, ended)
	result, nerr := readNews(news, maxNews, &opts)
	close(ended)
	werr := cmd.Wait()
	switch {
	case result != nil:
		return result, nil
	case ctx.Err() != nil:
		return nil, context.Cause(ctx)
	default:
		return nil, fmt.Errorf("the lab process ended without a result: %w%s", errors.Join(nerr, werr), complaints.String())
	}
}

// passOn asks the lab process what its ranks are at, whenever we are asked.
func passOn(ask <-chan struct{}, lab *os.Process, ended <-chan struct{}) {
	for {
		select {
		case <-ended:
			return
		case <-ask:
			_ = lab.Signal(syscall.SIGUSR1) // it may end just now
		}
	}
}

// readNews reads what a lab process says until it ends, so many bytes at once at
// most.
func readNews(from io.Reader, limit int64, opts *lab.Options) (result *report.Result, err error) {
	room := &io.LimitedReader{R: from}
	in := json.NewDecoder(room)
	for {
		var n labNews
		room.N = limit
		if err := in.Decode(&n); err != nil {
			switch {
			case room.N == 0:
				return result, fmt.Errorf("it said more than %d bytes at once", limit)
			case errors.Is(err, io.EOF):
				return result, nil
			}
			return result, err
		}
		switch {
		case n.Result != nil:
			result = n.Result
		case n.Progress != nil && opts.Progress != nil:
			opts.Progress(*n.Progress)
		case n.State != nil && opts.State != nil:
			opts.State(n.State)
		}
	}
}

// tail keeps the beginning and the end of what is written to it.
type tail struct {
	mu   sync.Mutex
	head []byte // where a Go program says why it dies, before much else
	buf  []byte
}

const tailBytes = 8 << 10

func (t *tail) Write(b []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.head = append(t.head, b[:min(len(b), tailBytes-len(t.head))]...)
	t.buf = append(t.buf, b...)
	if over := len(t.buf) - tailBytes; over > 0 {
		t.buf = append(t.buf[:0], t.buf[over:]...)
	}
	return len(b), nil
}

// String is the text as the end of an error message: on the same line why a
// process died, then all.
func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	text := strings.TrimSpace(string(t.buf))
	if text == "" {
		return ""
	}
	if why := epitaph(string(t.head)); why != "" {
		return ": " + why + "\n" + text
	}
	return "\n" + text
}
