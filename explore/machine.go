package explore

import "errors"

// Machine is a state machine without time, goroutines and randomness: equal steps from equal
// states lead to equal states. A Machine may also be a [Cloner], a [Finisher], a [ChoosingMachine]
// and a [Progresser].
type Machine interface {
	// Enabled appends the steps that are possible in this state, always in the same order. It does
	// not change the state: Take is also called without it, to repeat a run.
	Enabled(into []Step) []Step
	// Take takes a step. An error fails the run.
	Take(Step) error
	// Fingerprint is a hash of the state. States with equal fingerprints must have the same
	// possible futures. [Hash] computes it from bytes, and a [Digest] by reflection.
	Fingerprint() [16]byte
	// Check returns the violation of an invariant in this state.
	Check() error
}

// Step is a step of a machine. All fields but Kind are the machine's own; Kind is the kind of the
// choice in paths.
type Step struct {
	Kind    string
	A, B, C int32
}

// Cloner is a Machine that can be copied, which is much faster than to repeat its steps.
type Cloner interface {
	// Clone returns an independent copy. It may overwrite and return reuse, a machine of the same
	// exploration that is not needed any more, unless that is nil.
	Clone(reuse Machine) Machine
}

// Finisher is a Machine that checks the end of a run.
type Finisher interface {
	// Finish is called in a state without enabled steps. It returns an error if a run must not end
	// there: [ErrDeadlock], for example.
	Finish() error
}

// ChoosingMachine is a Machine with choices inside of Take, all of which are explored.
type ChoosingMachine interface {
	// SetChooser sets the Chooser that the following calls of Take use.
	SetChooser(Chooser)
}

// Progresser is a Machine that can detect a livelock: a cycle of states without progress.
type Progresser interface {
	// Progressed reports whether the last step made progress.
	Progressed() bool
}

var (
	// ErrDeadlock says that a run has not reached its goal, and no step is enabled.
	ErrDeadlock = errors.New("deadlock")
	// ErrLivelock says that steps without progress lead back to the same state.
	ErrLivelock = errors.New("livelock")
)
