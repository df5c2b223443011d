package mpihost

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"sync"

	"github.com/fabrictest/fabrictest/launch/rank"
	"github.com/fabrictest/fabrictest/mpi/env"
)

// Process is this process as its starter sees it: one rank, or all those of a
// simulated world.
type Process struct {
	job  *Job
	conn *rank.Conn // nil in a simulated world

	mu       sync.Mutex
	reported error
	file     *os.File // for reports of a simulated world; nil if nobody listens
}

// ErrNotStarted is what Begin returns in a program that was started by hand.
var ErrNotStarted = errors.New("nobody has started this program as a rank: run it with 'fabrictest mpirun -n 4 PROGRAM'")

// Begin finds out what this process was started to be. It can be called once.
func Begin() (*Process, error) {
	if text, ok := os.LookupEnv(WorldVar); ok {
		// What this process starts in turn is none of the world's.
		if err := os.Unsetenv(WorldVar); err != nil {
			return nil, err
		}
		job, err := parseJob([]byte(text))
		if err != nil {
			return nil, err
		}
		p := &Process{job: job}
		if job.ReportFile > 0 {
			p.file = os.NewFile(uintptr(job.ReportFile), "reports")
			if err := json.NewEncoder(p.file).Encode(Report{Rank: Begun}); err != nil {
				return nil, fmt.Errorf("tell 'fabrictest mpirun' that the ranks begin: %w: a program between the two closed the descriptor", err)
			}
		}
		return p, nil
	}
	conn, err := rank.Join()
	if errors.Is(err, rank.ErrNotLaunched) {
		return nil, ErrNotStarted
	}
	if err != nil {
		return nil, err
	}
	job, err := parseJob(conn.Job())
	if err == nil && job.Rank == nil {
		err = errors.New("the job from 'fabrictest mpirun' does not say what this rank has")
	}
	if err != nil {
		return nil, errors.Join(err, conn.Close(err))
	}
	return &Process{job: job, conn: conn}, nil
}

// Job is what it was started with.
func (p *Process) Job() *Job { return p.job }

// Run runs run as each rank of the process, and returns when all of them have ended.
// The starter is told how; the error that Run returns need not be said again where
// Reported says so. It can be called once.
func (p *Process) Run(run func(e *env.Env) error) error {
	if p.conn == nil {
		_, err := InWorld(p.job.fabric(), run)
		if p.file != nil {
			err = errors.Join(err, p.file.Close())
		}
		return errors.Join(err, p.reported)
	}
	err := p.asRank(run)
	if cerr := p.conn.Close(err); cerr != nil {
		return errors.Join(err, cerr)
	}
	if err != nil {
		return &ReportedError{err}
	}
	return nil
}

// ReportedError is an error that the starter of this process knows already, and says.
type ReportedError struct{ Err error }

func (e *ReportedError) Error() string { return e.Err.Error() }
func (e *ReportedError) Unwrap() error { return e.Err }

// Reported says so.
func (e *ReportedError) Reported() bool { return true }

// Report hands in what a rank has to say at its end, if the starter has asked for it:
// statistics, as anything that can be JSON. Ranks may call it at the same time.
func (p *Process) Report(rank int, v any) {
	if !p.job.Reports {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	text, err := json.Marshal(v)
	switch {
	case err != nil:
	case p.conn != nil:
		err = p.conn.Report(text)
	case p.file != nil:
		err = json.NewEncoder(p.file).Encode(Report{Rank: rank, Text: text})
	}
	if err != nil && p.reported == nil {
		p.reported = fmt.Errorf("report of rank %d: %w", rank, err)
	}
}
