package work

import (
	"errors"
	"fmt"
	"math/bits"
	"slices"
	"strings"
	"time"

	"github.com/fabrictest/fabrictest/mpi"
)

// Class says how large a problem is.
type Class string

// The classes. T is for tests and takes milliseconds; S, W and A have the sizes that
// the NAS benchmarks have for them, as far as a workload has a model there.
const (
	ClassT Class = "T"
	ClassS Class = "S"
	ClassW Class = "W"
	ClassA Class = "A"
)

// Classes lists them, the smallest first.
func Classes() []Class { return []Class{ClassT, ClassS, ClassW, ClassA} }

// ErrParams is what errors.Is finds where a workload cannot run as it was asked to.
var ErrParams = errors.New("the workload cannot run so")

// Params are how a workload runs; all ranks have the same. What is zero, the class
// or the workload settles.
type Params struct {
	Class Class `json:"class,omitempty"` // ClassT if empty
	// Iterations is how many steps there are.
	Iterations int `json:"iterations,omitempty"`
	// Bytes is the size of messages, for workloads that leave it open (Sized).
	Bytes int `json:"bytes,omitempty"`
	// Compute is how long the processor is kept busy in each step, at the places where
	// the model computes.
	Compute time.Duration `json:"compute_ns,omitempty"`
	// Seed is what all data follows from.
	Seed uint64 `json:"seed,omitempty"`
}

// RankRule says how many ranks a workload can be divided among.
type RankRule string

// The rules.
const (
	AnyCount   RankRule = "any number"
	Even       RankRule = "an even number"
	PowerOfTwo RankRule = "a power of two"
	Square     RankRule = "a square"
)

// allow reports whether n ranks are right.
func (c RankRule) allow(n int) bool {
	switch c {
	case Even:
		return n%2 == 0
	case PowerOfTwo:
		return bits.OnesCount(uint(n)) == 1
	case Square:
		return isqrt(n)*isqrt(n) == n
	}
	return true
}

// Workload is a program that is known by name.
type Workload struct {
	Name  string
	Title string // one line: what it does
	Paper string // where its pattern is described
	// MinRanks and Counts say how many ranks it can have.
	MinRanks int
	RankRule RankRule
	// Sized says that Params.Bytes is the size of its messages.
	Sized bool
	// Run runs it as one rank of the world. All ranks get the same result.
	Run func(w *mpi.World, p Params) (Result, error)

	// unfit says why a class's problem cannot be divided among so many ranks, or
	// nothing; nil if it always can.
	unfit func(c Class, ranks int) string
}

// Check reports why the workload cannot run with so many ranks and these parameters.
// Run does so too, before it sends anything.
func (wl *Workload) Check(ranks int, p Params) error {
	p.setDefaults()
	complain := func(format string, args ...any) error {
		return fmt.Errorf("%s: %w: %s", wl.Name, ErrParams, fmt.Sprintf(format, args...))
	}
	if !slices.Contains(Classes(), p.Class) {
		return complain("no class %q; there are %s", p.Class, list(Classes()))
	}
	if ranks < wl.MinRanks || !wl.RankRule.allow(ranks) {
		return complain("%d ranks: it needs %s of at least %d", ranks, wl.RankRule, wl.MinRanks)
	}
	if wl.unfit != nil {
		if why := wl.unfit(p.Class, ranks); why != "" {
			return complain("%d ranks: %s: take a larger class, or fewer ranks", ranks, why)
		}
	}
	if p.Bytes != 0 && !wl.Sized {
		return complain("%d bytes: the class settles how large its messages are", p.Bytes)
	}
	if p.Bytes < 0 || p.Iterations < 0 || p.Compute < 0 {
		return complain("bytes, iterations and computing time are not negative")
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

func list[T ~string](words []T) string {
	all := make([]string, len(words))
	for i, w := range words {
		all[i] = string(w)
	}
	return strings.Join(all, ", ")
}

// Figure is something that was measured.
type Figure struct {
	Name  string  `json:"name"`
	Value float64 `json:"value"`
	Unit  string  `json:"unit"`
}

func (f Figure) String() string { return fmt.Sprintf("%s %.4g %s", f.Name, f.Value, f.Unit) }

// Result is what a run came to, of all ranks together.
type Result struct {
	Workload   string `json:"workload"`
	Class      Class  `json:"class"`
	Ranks      int    `json:"ranks"`
	Iterations int    `json:"iterations"`
	// Time is that of the measured part, of the rank that took longest.
	Time time.Duration `json:"time_ns"`
	// Waited is how much of it ranks were in calls that wait for requests, on average:
	// the wait time of Thesis §4.4.2.
	Waited time.Duration `json:"waited_ns"`
	// Checks is how many comparisons were made, and Verified of how many bytes.
	Checks   uint64   `json:"checks"`
	Verified uint64   `json:"verified_bytes"`
	Figures  []Figure `json:"figures,omitempty"`
}

// Figure returns what was measured by a name, and whether it was.
func (r *Result) Figure(name string) (Figure, bool) {
	for _, f := range r.Figures {
		if f.Name == name {
			return f, true
		}
	}
	return Figure{}, false
}
