package mpihost

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"sync"

	"github.com/fabrictest/fabrictest/launch"
	"github.com/fabrictest/fabrictest/mpi"
	"github.com/fabrictest/fabrictest/mpi/transport"
)

// Process is this process as the launcher started it: one rank, or all ranks of a
// simulation.
type Process struct {
	job  *Job
	conn *launch.Conn // nil in a simulation

	mu        sync.Mutex
	reportErr error
	file      *os.File // for reports of a simulation; nil if not wanted
}

// ErrNotStarted is returned by Join in a program that no launcher has started.
var ErrNotStarted = errors.New("this program was not started as a rank: run it with 'fabrictest mpirun -n 4 PROGRAM'")

// Join reads the job of this process from its launcher: a simulation has the job in WorldVar,
// a rank in a network namespace receives it over a connection. It can be called once.
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

// Run calls run for each rank of the process, and returns when all have ended. A process that is
// one rank reports its result to the launcher, and returns a *ReportedError if run failed. Run
// can be called once.
func (p *Process) Run(run func(e *transport.Env) error) error {
	if p.conn == nil {
		_, err := InWorld(p.job.fabric(), run)
		if p.file != nil {
			err = errors.Join(err, p.file.Close())
		}
		return errors.Join(err, p.reportErr)
	}
	err := p.runRank(run)
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

// Report sends report, the final report of a rank, as JSON to the launcher if Job.Reports is
// set. Run returns its error. Report is safe for concurrent use.
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
	o.OnFinalize = func(rank int, s mpi.Stats) { p.Report(rank, s) }
	return p.Run(func(e *transport.Env) error { return runRank(e, o) })
}
