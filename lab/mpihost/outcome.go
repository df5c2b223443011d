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

// Outcome is what became of the ranks.
type Outcome struct {
	Ranks []RankOutcome // by rank
	// Elapsed is the time, of the world, at which the last of them ended.
	Elapsed time.Duration
	// Events is how much happened in the world: a measure of work.
	Events uint64
	// Aborted says who ended all ranks; nil if nobody did.
	Aborted *AbortError
}

// RankOutcome is what became of one.
type RankOutcome struct {
	// Err is what it returned.
	Err error
	// Killed says that it was killed, by World.Kill or because another aborted.
	Killed bool
	Ended  time.Duration
}

// RankError says which rank failed first, and how many more did.
type RankError struct {
	Rank, Host int
	Err        error
	Others     int
}

func (e *RankError) Error() string {
	more := ""
	if e.Others > 0 {
		more = fmt.Sprintf(" (and %d more ranks failed, then or later)", e.Others)
	}
	return fmt.Sprintf("rank %d on host%d: %v%s", e.Rank, e.Host, e.Err, more)
}

func (e *RankError) Unwrap() error { return e.Err }

// AbortError says that a rank ended all of them.
type AbortError struct {
	Rank int    `json:"rank"`
	Code int    `json:"code"`
	Why  string `json:"why"`
}

func (e *AbortError) Error() string {
	return fmt.Sprintf("rank %d aborted all ranks with code %d: %s", e.Rank, e.Code, e.Why)
}

// ExitCode is what a process that was all of these ranks should end with.
func (e *AbortError) ExitCode() int {
	if e.Code <= 0 || e.Code > 255 {
		return 1 // it would look like success, or wrap around
	}
	return e.Code
}

// HungError says that ranks would never have ended, and what they waited for.
type HungError struct {
	Why     string
	Waiting []Waiting // ranks that wait for the same since the same time are together
	Err     error     // of the world
}

// Waiting is what some programs of the world wait for. A program is a rank, or what a
// rank runs beside itself.
type Waiting struct {
	Programs []string
	What     string
	Since    time.Duration
}

func (e *HungError) Error() string {
	var b strings.Builder
	b.WriteString(e.Why)
	for _, w := range e.Waiting {
		names := strings.Join(w.Programs[:min(len(w.Programs), 8)], ", ")
		verb := "waits"
		if n := len(w.Programs); n > 1 {
			verb = "wait"
			if n > 8 {
				names += fmt.Sprintf(" and %d more", n-8)
			}
		}
		fmt.Fprintf(&b, "\n  %s %s for %s since %v", names, verb, w.What, w.Since)
	}
	return b.String()
}

func (e *HungError) Unwrap() error { return e.Err }

// hung is err of a world, if it says that the world would not have ended; else nil.
func hung(err error) *HungError {
	var deadlock *sim.DeadlockError
	var limit *sim.LimitError
	switch {
	case errors.As(err, &deadlock):
		why := fmt.Sprintf("deadlock at %v: nothing is left to happen, and %d programs wait", time.Duration(deadlock.Now), len(deadlock.Waiting))
		return &HungError{Why: why, Waiting: together(deadlock.Waiting), Err: err}
	case errors.As(err, &limit):
		why := fmt.Sprintf("the limit of %s is reached at %v after %d events (Fabric.Limit, Fabric.Events), and %d programs have not ended",
			limit.Limit, time.Duration(limit.Now), limit.Events, len(limit.Waiting))
		return &HungError{Why: why, Waiting: together(limit.Waiting), Err: err}
	}
	return nil
}

// together puts those that wait for the same side by side, the longest wait first.
func together(all []sim.WaitingProgram) (groups []Waiting) {
	type key struct {
		what  string
		since time.Duration
	}
	index := make(map[key]int)
	for _, w := range all {
		k := key{w.Reason, time.Duration(w.Since)}
		i, known := index[k]
		if !known {
			i = len(groups)
			index[k] = i
			groups = append(groups, Waiting{What: w.Reason, Since: k.since})
		}
		groups[i].Programs = append(groups[i].Programs, w.Program)
	}
	slices.SortStableFunc(groups, func(a, b Waiting) int { return cmp.Compare(a.Since, b.Since) })
	return groups
}
