package work

import (
	"errors"
	"fmt"
	"math/bits"
	"slices"
	"time"
)

// Class is the problem size.
type Class string

// The classes. T is for tests and takes milliseconds; S, W and A have the sizes of the NAS
// benchmarks where the workload has a model there.
const (
	ClassT Class = "T"
	ClassS Class = "S"
	ClassW Class = "W"
	ClassA Class = "A"
)

// Classes returns all classes, the smallest first.
func Classes() []Class { return []Class{ClassT, ClassS, ClassW, ClassA} }

// ErrParams means that a workload cannot run with its parameters.
var ErrParams = errors.New("invalid parameters")

// Params are the parameters of a workload, the same on all ranks. Zero values have defaults
// of the class or the workload.
type Params struct {
	Class Class `json:"class,omitempty"` // default: ClassT
	// Iterations is the number of steps.
	Iterations int `json:"iterations,omitempty"`
	// Bytes is the size of messages, for workloads with Sized.
	Bytes int `json:"bytes,omitempty"`
	// Compute is the time that the processor is busy in each step, where the model
	// computes.
	Compute time.Duration `json:"compute_ns,omitempty"`
	// Seed determines all data.
	Seed uint64 `json:"seed,omitempty"`
}

// RankRule is a restriction on the number of ranks.
type RankRule string

// Restrictions on the number of ranks.
const (
	AnyCount   RankRule = "any number"
	Even       RankRule = "an even number"
	PowerOfTwo RankRule = "a power of two"
	Square     RankRule = "a square"
)

// allows reports whether the rule permits n ranks.
func (r RankRule) allows(n int) bool {
	switch r {
	case Even:
		return n%2 == 0
	case PowerOfTwo:
		return bits.OnesCount(uint(n)) == 1
	case Square:
		return isqrt(n)*isqrt(n) == n
	}
	return true
}

// Workload is a named program.
type Workload struct {
	Name  string
	Title string // description on one line
	Paper string // source of its pattern
	// MinRanks and RankRule restrict the number of ranks.
	MinRanks int
	RankRule RankRule
	// Sized means that Params.Bytes is the size of its messages.
	Sized bool
	// unfit explains why the problem of a class cannot be divided among a number of ranks;
	// "" if it can. nil: it always can.
	unfit func(c Class, ranks int) string
	// do is the program of a rank.
	do func(*job)
}

// Check reports why the workload cannot run with this number of ranks and these parameters.
// Run calls it before it sends anything.
func (wl *Workload) Check(ranks int, p Params) error {
	p.setDefaults()
	complain := func(format string, args ...any) error {
		return fmt.Errorf("%s: %w: %s", wl.Name, ErrParams, fmt.Sprintf(format, args...))
	}
	if !slices.Contains(Classes(), p.Class) {
		return complain("no class %q; there are T, S, W, A", p.Class)
	}
	if ranks < wl.MinRanks || !wl.RankRule.allows(ranks) {
		return complain("%d ranks: it needs %s of at least %d", ranks, wl.RankRule, wl.MinRanks)
	}
	if wl.unfit != nil {
		if why := wl.unfit(p.Class, ranks); why != "" {
			return complain("%d ranks: %s: take a larger class, or fewer ranks", ranks, why)
		}
	}
	if p.Bytes != 0 && !wl.Sized {
		return complain("%d bytes: the class determines the size of its messages", p.Bytes)
	}
	if p.Bytes < 0 || p.Iterations < 0 || p.Compute < 0 {
		return complain("bytes, iterations and compute time must not be negative")
	}
	return nil
}

func (p *Params) setDefaults() {
	if p.Class == "" {
		p.Class = ClassT
	}
	if p.Seed == 0 {
		p.Seed = 1
	}
}

// Figure is a measured value.
type Figure struct {
	Name  string  `json:"name"`
	Value float64 `json:"value"`
	Unit  string  `json:"unit"`
}

func (f Figure) String() string { return fmt.Sprintf("%s %.4g %s", f.Name, f.Value, f.Unit) }

// Result is the result of a run, of all ranks.
type Result struct {
	Workload   string `json:"workload"`
	Class      Class  `json:"class"`
	Ranks      int    `json:"ranks"`
	Iterations int    `json:"iterations"`
	// Time is that of the measured part, of the slowest rank.
	Time time.Duration `json:"time_ns"`
	// Waited is the mean time of ranks in calls that wait for requests: the wait time of
	// Rashti 2010 §4.4.2.
	Waited time.Duration `json:"waited_ns"`
	// Checks is the number of comparisons, and Verified the number of compared bytes.
	Checks   uint64   `json:"checks"`
	Verified uint64   `json:"verified_bytes"`
	Figures  []Figure `json:"figures,omitempty"`
}
