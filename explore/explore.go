// Package explore searches the possible runs of a program or of a state machine for one that
// fails. [Machines] explores pure machines, whose states it can copy and hash, and can finish the
// space of states. [Runs] repeats whole runs, such as those of a simulated world, with other
// choices.
//
// A run is described by its [Path], the list of its choices, and can be repeated from it.
package explore

import "time"

// Chooser makes the choices of a run. Choose returns an index below n; kind names the decision.
type Chooser interface {
	Choose(kind string, n int) int
}

// Options limit and direct an exploration. Zero values mean no limit.
type Options struct {
	Strategy string // of [Runs]; [Machines] searches depth-first
	Seed     uint64 // of all random numbers

	MaxRuns   int           // of [Runs]
	MaxStates int           // distinct states, of [Machines]
	MaxDepth  int           // choices of one run
	Depth     int           // of the strategies "pct" and "exhaustive"
	MaxTime   time.Duration // of this call

	Parallel   int            // number of goroutines that explore; 0 means one for each processor
	Checkpoint string         // file from which an unfinished exploration continues
	Progress   func(Progress) // called about once a second, by one goroutine at a time
}

// Progress is the state of an exploration that is under way.
type Progress struct {
	Elapsed time.Duration
	Counts
}

// Counts are the numbers of what was explored.
type Counts struct {
	Runs    int // runs that reached their end
	States  int // distinct states
	Edges   int // steps that were taken, without those repeated to reach a state
	Deepest int // most steps of one run
	// Outcomes are the distinct outcomes of Runs: see [OutcomeRecorder]. Queued is the number of
	// alternatives that the strategy "exhaustive" has found and not run yet. Unseen is an estimate
	// of the probability that the next run has a new outcome (Good and Turing).
	Outcomes, Queued int
	Unseen           float64
}

// Report is the result of an exploration.
type Report struct {
	Counts
	Elapsed  time.Duration
	Finished bool     // everything was explored, within MaxDepth
	Failure  *Failure // nil if no run failed
	Unexplored
}

// Unexplored estimates what an unfinished exploration of a machine has left, from random runs.
type Unexplored struct {
	Probes    int     // number of random runs
	NewStates float64 // of their states, the part that was not explored
	AllRuns   float64 // Knuth's estimate of the number of all runs, with those that meet in a state counted apart
}

// Failure is a run that failed.
type Failure struct {
	Err      error
	Path     Path
	Shortest bool      // no shorter run fails, and none of this length has lower choices before its first difference
	Findings []Finding // of the checkers
}

// Finding is an error that a checker has found in a run.
type Finding struct {
	Kind   string // short and constant: findings of a kind have the same cause
	Text   string
	Places []Place
}

// Place is a call of a program.
type Place struct {
	Rank int
	Call string
	File string
	Line int
}
