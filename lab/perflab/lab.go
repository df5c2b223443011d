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

	"github.com/fabrictest/fabrictest/internal/interrupt"
	"github.com/fabrictest/fabrictest/netns"
	"github.com/fabrictest/fabrictest/netns/topology"
	"github.com/fabrictest/fabrictest/perf"
)

// Options are those of a run. Zero values mean the defaults.
type Options struct {
	// Rounds and Slice are those of perf.Options.
	Rounds int
	Slice  time.Duration
	// Progress, if not nil, is told what is measured next, and which part of the
	// run is done.
	Progress func(doing string, done float64)
}

const (
	// overtime is what a run may take at most: several times what it should.
	overtime = 5 * time.Minute
	// grace is what a lab process has to clean up once it is asked to stop.
	grace = 15 * time.Second
)

// job is what a lab process is to do, and news how it is getting on.
type job struct {
	Plan   string        `json:"plan"`
	Rounds int           `json:"rounds,omitempty"`
	Slice  time.Duration `json:"slice,omitempty"`
}

type news struct {
	Doing  string       `json:"doing,omitempty"`
	Done   float64      `json:"done,omitempty"`
	Result *perf.Result `json:"result,omitempty"`
	Error  string       `json:"error,omitempty"`
}

// inLab makes two hosts, measures them, and takes them away again. A cancelled
// ctx ends it and everything it started.
func inLab(ctx context.Context, plan string, opts Options) (*perf.Result, error) {
	if err := netns.Available(); err != nil {
		return nil, fmt.Errorf("performance is measured between network namespaces: %w", err)
	}
	ctx, cancel := context.WithTimeoutCause(ctx, overtime, fmt.Errorf("the measurement did not end within %v", overtime))
	defer cancel()
	text, err := json.Marshal(job{Plan: plan, Rounds: opts.Rounds, Slice: opts.Slice})
	if err != nil {
		return nil, err
	}
	var complaints bytes.Buffer
	cmd := exec.CommandContext(ctx, "/proc/self/exe", LabArgs...)
	cmd.Stdin, cmd.Stderr = bytes.NewReader(text), &complaints
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = grace
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := netns.StartUnshared(cmd); err != nil {
		return nil, fmt.Errorf("start a lab process: %w", err)
	}
	result, failure := readNews(out, opts.Progress)
	werr := cmd.Wait()
	switch {
	case ctx.Err() != nil:
		return nil, context.Cause(ctx)
	case failure != nil:
		return nil, failure
	case result == nil:
		return nil, fmt.Errorf("the lab process ended without a result: %w: %s", werr, bytes.TrimSpace(complaints.Bytes()))
	}
	return result, nil
}

// readNews reads what a lab process says until it ends.
func readNews(from io.Reader, progress func(string, float64)) (result *perf.Result, failure error) {
	in := json.NewDecoder(from)
	for {
		var n news
		if err := in.Decode(&n); err != nil {
			return result, failure
		}
		switch {
		case n.Error != "":
			failure = errors.New(n.Error)
		case n.Result != nil:
			result = n.Result
		case progress != nil:
			progress(n.Doing, n.Done)
		}
	}
}

// LabMain is what a lab process does: the job that it reads from its standard
// input. It tells on its standard output how it is getting on.
func LabMain() error {
	ctx, stop := signal.NotifyContext(context.Background(), interrupt.Signals()...)
	defer stop()
	var j job
	if err := json.NewDecoder(os.Stdin).Decode(&j); err != nil {
		return fmt.Errorf("read the job: %w", err)
	}
	out := json.NewEncoder(os.Stdout)
	n := news{}
	var err error
	n.Result, err = measure(ctx, &j, perf.Options{
		Rounds: j.Rounds, Slice: j.Slice,
		Progress: func(doing string, done float64) {
			_ = out.Encode(news{Doing: doing, Done: done}) // nobody may care; the result matters
		},
	})
	if err != nil {
		n.Error = err.Error()
	}
	return out.Encode(n)
}

// mtu lets packets of 4 KiB of payload pass, as on most fabrics.
const mtu = 9000

// measure builds the fabric and measures on it.
func measure(ctx context.Context, j *job, opt perf.Options) (q *perf.Result, err error) {
	t, err := topology.Pair(topology.Options{Link: topology.Link{MTU: mtu}})
	if err != nil {
		return nil, err
	}
	fabric, err := netns.Build(t, netns.Options{})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, fabric.Close()) }()
	var hosts [2]Host
	var cpus [2]int
	cpus[0], cpus[1] = twoCPUs()
	for i := range hosts {
		h := fabric.Host(t.Hosts[i].Name)
		hosts[i] = Host{Name: h.Name, NetNS: h.NS.FD(), Addr: h.NICs[0].Addr(false), CPU: cpus[i], Start: h.NS.Start}
	}
	m, err := open(hosts, append([]string{"/proc/self/exe"}, HostArgs...), os.Stderr)
	if err != nil {
		return nil, err
	}
	q, err = j.do(ctx, m, opt)
	if cerr := m.Close(); err == nil {
		err = cerr
	}
	return q, err
}
