package mpihost

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/fabrictest/fabrictest/emu/sim"
)

// Outcome is the result of a run.
type Outcome struct {
	Ranks []RankOutcome // by rank
	// Elapsed is the virtual time at which the last rank ended.
	Elapsed time.Duration
	// Events is the number of simulated events.
	Events uint64
	// Aborted is set if a rank aborted.
	Aborted *AbortError
}

// RankOutcome is the result of a rank.
type RankOutcome struct {
	// Err is the error that it returned.
	Err error
	// Killed is true if it was ended by World.Kill or by an abort.
	Killed bool
	Ended  time.Duration
}

// RankError is the error of the rank that failed first, and how many others failed.
type RankError struct {
	Rank, Host int
	Err        error
	Others     int
}

// Error implements error.
func (e *RankError) Error() string {
	others := ""
	if e.Others > 0 {
		others = fmt.Sprintf(" (and %d more ranks failed)", e.Others)
	}
	return fmt.Sprintf("rank %d on host%d: %v%s", e.Rank, e.Host, e.Err, others)
}

func (e *RankError) Unwrap() error { return e.Err }

// AbortError is returned if a rank aborted all ranks.
type AbortError struct {
	Rank   int    `json:"rank"`
	Code   int    `json:"code"`
	Reason string `json:"why"`
}

func (e *AbortError) Error() string {
	return fmt.Sprintf("rank %d aborted all ranks with code %d: %s", e.Rank, e.Code, e.Reason)
}

// ExitCode returns the exit code of a process that ran the ranks.
func (e *AbortError) ExitCode() int {
	if e.Code <= 0 || e.Code > 255 {
		return 1 // 0 would mean success, and larger codes wrap
	}
	return e.Code
}

// HungError is returned if ranks did not end, with what they waited for.
type HungError struct {
	Reason  string
	Waiting []Waiting // grouped by reason and time, the longest wait first
	// Requests are the pending sends and receives of up to maxNames ranks.
	Requests []string
	// WaitGraph says which calls wait for which ranks, if that cannot end and is known.
	WaitGraph string
	Err       error // of the world
}

// Waiting has the programs, ranks or their tasks, that wait for the same reason
// since the same time.
type Waiting struct {
	Programs []string
	Reason   string
	Since    time.Duration
}

// maxNames limits the names in a line and the ranks in the report of a hang.
const maxNames = 8

// Error returns the reason, a line for each group of programs (ranks or their tasks) that wait for
// the same reason, and the lines of Requests, the pending sends and receives of some ranks.
func (e *HungError) Error() string {
	var b strings.Builder
	b.WriteString(e.Reason)
	for _, w := range e.Waiting {
		names := strings.Join(w.Programs[:min(len(w.Programs), maxNames)], ", ")
		verb := "waits"
		if n := len(w.Programs); n > 1 {
			verb = "wait"
			if n > maxNames {
				names += fmt.Sprintf(" and %d more", n-maxNames)
			}
		}
		fmt.Fprintf(&b, "\n  %s %s for %s since %v", names, verb, w.Reason, w.Since)
	}
	for _, line := range e.Requests {
		b.WriteString("\n  " + line)
	}
	if e.WaitGraph != "" {
		b.WriteString("\n  " + e.WaitGraph)
	}
	return b.String()
}

func (e *HungError) Unwrap() error { return e.Err }

// hungError returns the HungError for a deadlock of the simulation, or for a limit that it reached,
// with the waiting programs grouped by reason and time; nil for other errors.
func hungError(err error) *HungError {
	e := &HungError{Err: err}
	var waiting []sim.WaitingProgram
	if deadlock, ok := errors.AsType[*sim.DeadlockError](err); ok {
		waiting = deadlock.Waiting
		e.Reason = fmt.Sprintf("deadlock at %v: no event is pending, and %d programs wait", time.Duration(deadlock.Now), len(waiting))
	} else if limit, ok := errors.AsType[*sim.LimitError](err); ok {
		waiting = limit.Waiting
		e.Reason = fmt.Sprintf("the limit of %s is reached at %v after %d events (Fabric.Limit, Fabric.Events), and %d programs have not ended",
			limit.Limit, time.Duration(limit.Now), limit.Events, len(waiting))
	} else {
		return nil
	}
	for _, w := range waiting {
		since := time.Duration(w.Since)
		i := slices.IndexFunc(e.Waiting, func(g Waiting) bool { return g.Reason == w.Reason && g.Since == since })
		if i < 0 {
			i = len(e.Waiting)
			e.Waiting = append(e.Waiting, Waiting{Reason: w.Reason, Since: since})
		}
		e.Waiting[i].Programs = append(e.Waiting[i].Programs, w.Program)
	}
	slices.SortStableFunc(e.Waiting, func(a, b Waiting) int { return cmp.Compare(a.Since, b.Since) })
	return e
}
