package mpihost

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"runtime"
	"strings"
	"sync"
	"time"

	"github.com/fabrictest/fabrictest/internal/process"
	"github.com/fabrictest/fabrictest/launch"
	"github.com/fabrictest/fabrictest/mpi"
	"github.com/fabrictest/fabrictest/mpi/transport"
	"github.com/fabrictest/fabrictest/verbs"
)

// Process is this process as the launcher started it: one rank, or a whole simulation.
type Process struct {
	job  *Job
	conn *launch.Conn // nil in a simulation

	explain func() string // of a simulation that hangs; may be nil

	mu        sync.Mutex
	reportErr error
	file      *os.File // for reports of a simulation; nil if not wanted
}

// ErrNotStarted is returned by Join in a program that no launcher has started.
var ErrNotStarted = errors.New("this program was not started as a rank: run it with 'fabrictest mpirun -n 4 PROGRAM'")

// Join reads the job of this process from its launcher; it can be called once. A simulation has its
// job in the environment variable WorldVar, and reports its start if the launcher asks for reports;
// a rank in a network namespace receives its job over a connection.
func Join() (*Process, error) {
	if text, ok := os.LookupEnv(WorldVar); ok {
		// Child processes must not inherit the job.
		if err := os.Unsetenv(WorldVar); err != nil {
			return nil, err
		}
		job, err := parseJob([]byte(text))
		if err != nil {
			return nil, err
		}
		p := &Process{job: job}
		if job.ReportFD > 0 {
			p.file = os.NewFile(uintptr(job.ReportFD), "reports")
			if err := json.NewEncoder(p.file).Encode(Report{Rank: ReportStarted}); err != nil {
				return nil, fmt.Errorf("report the start to 'fabrictest mpirun': %w: a program between 'fabrictest mpirun' and this process closed the descriptor", err)
			}
		}
		return p, nil
	}
	conn, err := launch.Join()
	if errors.Is(err, launch.ErrNotLaunched) {
		return nil, ErrNotStarted
	}
	if err != nil {
		return nil, err
	}
	job, err := parseJob(conn.Job())
	if err == nil && job.Rank == nil {
		err = errors.New("the job from 'fabrictest mpirun' has no rank")
	}
	if err != nil {
		return nil, errors.Join(err, conn.Close(err))
	}
	return &Process{job: job, conn: conn}, nil
}

// Job returns the job of the process.
func (p *Process) Job() *Job { return p.job }

// Run calls run for each rank of the process, and returns when all have ended; it can be called
// once. A process without a connection to the launcher simulates all ranks; one with a connection is
// one rank, which reports its result to the launcher and returns a *ReportedError if run failed.
func (p *Process) Run(run func(e *transport.Env) error) error {
	if p.conn == nil {
		f, err := p.job.fabric()
		if err != nil {
			return err
		}
		f.Explain = p.explain
		_, err = InWorld(f, run)
		if p.file != nil {
			err = errors.Join(err, p.file.Close())
		}
		return errors.Join(err, p.reportErr)
	}
	err := p.runRank(run)
	err = errors.Join(err, p.reportErr)
	if closeErr := p.conn.Close(err); closeErr != nil { // Close sends err to the launcher
		return errors.Join(err, closeErr)
	}
	if err != nil {
		return &ReportedError{err}
	}
	return nil
}

// ReportedError is an error that the launcher knows and prints.
type ReportedError struct{ Err error }

func (e *ReportedError) Error() string { return e.Err.Error() }
func (e *ReportedError) Unwrap() error { return e.Err }

// Reported returns true: mpi.Main does not print the error again.
func (e *ReportedError) Reported() bool { return true }

// Report passes report, the final report of a rank, as JSON to the launcher if Job.Reports is set:
// over its connection or, from a process that simulates all ranks, as a line of a file. Run returns
// the first error of Report. Report is safe for concurrent use.
func (p *Process) Report(rank int, report any) {
	if !p.job.Reports {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	text, err := json.Marshal(report)
	switch {
	case err != nil:
	case p.conn != nil:
		err = p.conn.Report(text)
	case p.file != nil:
		err = json.NewEncoder(p.file).Encode(Report{Rank: rank, Text: text})
	}
	if err != nil && p.reportErr == nil {
		p.reportErr = fmt.Errorf("report of rank %d: %w", rank, err)
	}
}

func init() { mpi.RegisterLauncher("lab/mpihost", startRanks) }

// startRanks implements mpi.Launcher: it calls runRank for each rank of this process, with the
// mpi.Options of its job, and reports the statistics of each rank to the launcher.
func startRanks(runRank func(*transport.Env, mpi.Options) error) error {
	p, err := Join()
	if err != nil {
		return err
	}
	var o mpi.Options
	if text := p.job.Options; text != nil {
		if err := json.Unmarshal(text, &o); err != nil {
			return fmt.Errorf("the options from 'fabrictest mpirun': %w", err)
		}
	}
	if p.job.Explore != nil {
		return p.explore(o, runRank)
	}
	o.OnFinalize = func(rank int, s mpi.Stats) { p.Report(rank, s) }
	if p.conn == nil {
		return p.runChecked(o, runRank)
	}
	return p.Run(func(e *transport.Env) error { return runRank(e, o) })
}

// runChecked runs the ranks of a simulation with the checkers of its job.
func (p *Process) runChecked(o mpi.Options, runRank rankFunc) error {
	c, err := newCheckers(p.job.Checkers, p.job.Ranks)
	if err != nil {
		return err
	}
	c.set(&o)
	p.explain = c.explain
	err = p.Run(func(e *transport.Env) error { return runRank(e, o) })
	return errors.Join(err, c.err())
}

// runRank binds the process to the CPU of its rank, opens the memory that the ranks of this host share
// and the NICs of the rank, and calls run with the rank's Env. It closes the NICs when run returns.
// Env.Proc, the clock of the program, is the clock of this machine.
func (p *Process) runRank(run func(*transport.Env) error) (err error) {
	f, err := p.job.fabric()
	if err != nil {
		return err
	}
	f, provider, err := f.withDefaults()
	if err != nil {
		return err
	}
	e := &transport.Env{
		Rank: p.conn.Rank(), Size: p.conn.Size(), Nodes: p.job.nodes(&f), Seed: f.Seed,
		Proc: newClock(p.job.Rank.StartTime), Control: &launcherControl{p.conn}, Concurrent: true,
	}
	if e.Size != f.Ranks || len(e.Nodes) != e.Size {
		return fmt.Errorf("the launcher started %d ranks, and the job is for %d", e.Size, f.Ranks)
	}
	if cpu := p.job.Rank.CPU; cpu > 0 { // counted from 1
		if err := process.BindToCPU(cpu - 1); err != nil {
			return err
		}
	}
	e.Go = func(_ string, task func(verbs.Proc)) { go task(e.Proc) }
	e.OnDump = func(describe func() string) { // for the report of a hang
		p.conn.OnDump(func() string {
			stacks := make([]byte, 64<<10)
			return fmt.Sprintf("pending requests: %s\n%s", describe(), stacks[:runtime.Stack(stacks, true)])
		})
	}
	if fd := p.job.Rank.SharedFD; fd > 0 {
		shared, err := openSharedMemory(fd)
		if err != nil {
			return err
		}
		e.Shared = shared
	}
	opener, err := provider.NewOpener(f.Setup)
	if err != nil {
		return err
	}
	for _, n := range p.job.Rank.NICs {
		nic, err := p.openNIC(opener, n)
		if err != nil {
			return fmt.Errorf("NIC %s at %v: %w", n.Name, n.Addr, err)
		}
		defer func() { err = errors.Join(err, nic.Device.Close()) }()
		e.NICs = append(e.NICs, nic)
	}
	return run(e)
}

// launcherControl is transport.Control over the connection to the launcher.
type launcherControl struct{ conn *launch.Conn }

var _ transport.Control = (*launcherControl)(nil)

// Send implements transport.Control.
func (c *launcherControl) Send(to int, msg []byte) error { return wrapErr(c.conn.Send(to, msg)) }

// Recv implements transport.Control.
func (c *launcherControl) Recv(from int, timeout time.Duration) ([]byte, error) {
	msg, err := c.conn.Recv(from, timeout)
	return msg, wrapErr(err)
}

// Barrier implements transport.Control.
func (c *launcherControl) Barrier(timeout time.Duration) error {
	return wrapErr(c.conn.Barrier(timeout))
}

// Gone implements transport.Control: it reports whether a rank has ended.
func (c *launcherControl) Gone(rank int) bool { return c.conn.HasEnded(rank) }

// abortMark is the prefix of the mark (a text that a rank sends to its launcher) by which a
// rank asks the launcher to stop all ranks, also with KeepGoing.
const abortMark = "mpi: abort: "

// ParseAbort parses a mark, a text that a rank sends to the launcher. It returns the error of the
// rank's Abort, or nil for other marks.
func ParseAbort(mark string) *AbortError {
	text, ok := strings.CutPrefix(mark, abortMark)
	e := new(AbortError)
	if !ok || json.Unmarshal([]byte(text), e) != nil {
		return nil
	}
	return e
}

// maxReason bounds the reason in a mark, whose length is limited.
const maxReason = 512

// Abort implements transport.Control: it asks the launcher to stop all ranks, and exits. It cuts
// the reason to maxReason bytes.
func (c *launcherControl) Abort(code int, why string) {
	err := &AbortError{Rank: c.conn.Rank(), Code: code, Reason: why[:min(len(why), maxReason)]}
	if text, marshalErr := json.Marshal(err); marshalErr == nil {
		_ = c.conn.Mark(abortMark + string(text)) // if the launcher has ended, so have the other ranks
	}
	_ = c.conn.Close(err)
	os.Exit(err.ExitCode())
}

// wrapErr wraps errors of package launch in the errors that ranks test for: transport.ErrGone
// if a rank has ended, and verbs.ErrTimeout.
func wrapErr(err error) error {
	switch {
	case errors.Is(err, launch.ErrEnded):
		return fmt.Errorf("%w (%w)", transport.ErrGone, err)
	case errors.Is(err, launch.ErrTimeout):
		return fmt.Errorf("%w (%w)", verbs.ErrTimeout, err)
	}
	return err
}

// clock is a verbs.Proc in real time, with the same time 0 for all ranks.
type clock struct{ began time.Time }

// newClock returns a clock whose time 0 is startTime, a wall-clock time of the launcher. It
// compares wall-clock times once, and uses the monotonic clock from then on.
func newClock(startTime time.Time) clock {
	now := time.Now()
	elapsed := now.Round(0).Sub(startTime) // Round strips the monotonic clock reading
	return clock{now.Add(-elapsed)}
}

// Now implements verbs.Proc.
func (c clock) Now() time.Duration { return time.Since(c.began) }

// Sleep implements verbs.Proc.
func (clock) Sleep(d time.Duration) { time.Sleep(d) }

// spinTime is how long Compute spins at the end, to cover late timers.
const spinTime = 100 * time.Microsecond

// Compute implements verbs.Proc: it stands for a computation of duration d. It sleeps for most
// of the time, because the ranks share the CPUs of this machine.
func (clock) Compute(d time.Duration) {
	began := time.Now()
	if d > spinTime {
		time.Sleep(d - spinTime)
	}
	for time.Since(began) < d { // spin
	}
}
