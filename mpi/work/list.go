package work

import (
	"cmp"
	"errors"
	"fmt"
	"math/bits"
	"slices"
	"strings"
	"time"

	"github.com/fabrictest/fabrictest/internal/cli"
)

// All returns every workload, simple patterns first.
func All() []*Workload {
	const noSource = "the runtime's own"
	return []*Workload{
		pattern("pingpong", "a message there and back between ranks 0 and 1", "Rashti 2010 §3.3", pingpong),
		pattern("crossing", "a ping-pong whose receives are posted when the messages are sent", "Rashti 2010 §4.4.3", crossing),
		pattern("bothway", "windows of messages both ways between ranks 0 and 1", "Rashti 2010 §3.3, Rashti 2007 §5", bothway),
		pattern("multipair", "a ping-pong, and windows of messages both ways, between all pairs at once", "Rashti 2010 §3.4.2",
			multipair).onRanks(2, Even),
		pattern("opposite", "windows of messages between pairs, every second pair in the opposite direction", "Rashti 2010 §6.6.1",
			opposite).onRanks(4, Even),
		pattern("ring", "a token through all ranks", noSource, ring),
		pattern("barrier", "a barrier that no rank leaves before the last has entered", noSource, barrier),
		pattern("alltoall", "a message from every rank to every other", "Rashti 2010 §6.6.2, Qian 2010 ch. 6",
			alltoall).onRanks(1, AnyCount),
		pattern("smoke", "check that all ranks respond: a ring, a barrier, and an all-to-all of 8 bytes", noSource, smoke),
		pattern("star", "rank 0 with every other rank, in turn: a master and its workers", "Rashti 2010 §6.6.2", star),
		pattern("neighbours", "messages to both neighbours on each axis of a torus", "Rashti 2010 §6.6.2", neighbours),
		pattern("overlap", "how much computation overlaps with a message", "Rashti 2010 §3.6.1, §4.4.1; Rashti 2007 §6", overlap),
		pattern("progress", "whether a message progresses while the program computes", "Rashti 2010 §3.6.2; Rashti 2007 §7", progress),
		pattern("reuse", "a ping-pong with nonblocking sends from one buffer", "Rashti 2010 §5.5.1, Fig. 5.5", reuse),
		pattern("fresh", "a ping-pong with new buffers for each message", "Rashti 2010 §3.5.2, Fig. 3.12", fresh),
		pattern("spectrum", "a ping-pong from buffers of which some are used more often", "Rashti 2010 §5.5.1, Fig. 5.6", spectrum),
		pattern("packed", "the same from buffers back to back", "Rashti 2010 §5.5.1, Fig. 5.6", packed),
		pattern("putget", "puts and gets between ranks 0 and 1", "Rashti 2010 §5.5.1, Fig. 5.7", putget),
		pattern("putspectrum", "puts and gets with buffers of which some are used more often", "Rashti 2010 §5.5.1, Fig. 5.8", putspectrum),
		pattern(CollectiveName, "time of collective operations, by size and algorithm; ranks may arrive late, or in groups",
			"Rashti 2010 §5.5.1, Fig. 5.9; Qian 2010 §4.3.1, §5.4, §6.3.2, §6.5", collective),
		pattern("scatter", "scatters along a binomial tree", "Rashti 2010 §5.5.1, Fig. 5.9", scatter),
		pattern("exchange1", "produce and consume, receive posted before the send", "Rashti 2010 §4.4.1, Fig. 4.15", exchange1),
		pattern("exchange2", "produce and consume, receive posted after the send", "Rashti 2010 §4.4.1, Fig. 4.15", exchange2),
		application("cg", "conjugate gradient on a sparse matrix (NPB CG)",
			"Rashti 2010 §4.3.1, Fig. 4.18, Tables 5.1 and 6.1", conjugateGradient).onRanks(1, PowerOfTwo).upTo(ClassC),
		application("bt", "lines of 5 × 5 blocks on a multipartition (NPB BT)",
			"Rashti 2010 §4.4.2, Fig. 4.18; Sur 2006 §3.2, Table 1", blockTridiagonal).onRanks(4, Square).unless(adiUnfitReason),
		application("sp", "lines of five diagonals on a multipartition (NPB SP)",
			"Rashti 2010 §4.4.2, Fig. 4.18; Sur 2006 §3.2, Table 1", scalarPentadiagonal).onRanks(4, Square).unless(adiUnfitReason),
		application("lu", "pipelined sweeps over a grid, receives of any source (NPB LU)",
			"Rashti 2010 §4.3.1, Fig. 4.18, Tables 5.1 and 6.1; Sur 2006 Table 1", wavefront).unless(luUnfitReason).upTo(ClassC),
		application("mg", "V-cycles on a periodic grid (NPB MG)",
			"Sur 2006 §3.2, Table 1; Rashti 2010 Table 6.1", multigrid).onRanks(1, PowerOfTwo).unless(mgUnfitReason).upTo(ClassB),
		application("ft", "diffusion by Fourier transforms in three dimensions (NPB FT)",
			"Sur 2006 §3.2, Table 1; Qian 2010 §6.5.3", fourier).onRanks(1, PowerOfTwo).unless(ftUnfitReason),
		application("is", "bucket sort of integers (NPB IS)", "Sur 2006 §3.2, Table 1", integerSort),
		application("radix", "radix sort of integers (RADIX)",
			"Rashti 2010 §4.4.2, Fig. 4.18, §6.6.2; Qian 2010 §6.5.3", radixSort).upTo(ClassB),
		application("nbody", "particles that attract each other, passed on in a ring (N-BODY)",
			"Qian 2010 §4.3, §6.5.3", nbody),
		application("amg", "levels with more and more partners (AMG2006)", "Rashti 2010 Tables 5.1 and 5.4, §5.5.2", algebraicMultigrid),
		application("smg", "levels of which the coarsest ties all ranks (SMG2000)", "Rashti 2010 §6.6.2, Table 6.1", semicoarsening),
		application("milc", "gathers of a conjugate gradient on a lattice of four dimensions (104.milc)",
			"Rashti 2010 Tables 5.1 and 5.4, §5.5.2", latticeGauge).onRanks(1, PowerOfTwo).unless(milcUnfitReason),
		application("superlu", "message-driven solution of a sparse triangular system (SuperLU)",
			"Sur 2006 §3.3, Table 2, Fig. 7", triangularSolve),
		application("hpl", "elimination with pivots, panels passed on in a ring (HPL)", "Sur 2006 §3.5, Fig. 11, Table 1", linpack),
	}
}

// pattern returns a workload for two or more ranks, whose messages may have any size.
func pattern(name, title, paper string, do func(*job)) *Workload {
	return &Workload{Name: name, Title: title, Paper: paper, MinRanks: 2, RankRule: AnyCount, Sized: true, do: do}
}

// application returns a workload for any number of ranks, whose class determines the message sizes.
func application(name, title, paper string, do func(*job)) *Workload {
	return &Workload{Name: name, Title: title, Paper: paper, MinRanks: 1, RankRule: AnyCount, do: do}
}

// onRanks restricts the number of ranks of a workload.
func (wl *Workload) onRanks(least int, rule RankRule) *Workload {
	wl.MinRanks, wl.RankRule = least, rule
	return wl
}

// unless sets Workload.unfitReason: why a number of ranks cannot share the problem of a class.
func (wl *Workload) unless(reason func(c Class, ranks int) string) *Workload {
	wl.unfitReason = reason
	return wl
}

// upTo adds the classes beyond A, up to c.
func (wl *Workload) upTo(c Class) *Workload {
	wl.largest = c
	return wl
}

// Find returns the workload with a name. The error suggests similar names.
func Find(name string) (*Workload, error) {
	var names []string
	for _, w := range All() {
		if w.Name == name {
			return w, nil
		}
		names = append(names, w.Name)
	}
	if guesses := cli.Similar(name, names); len(guesses) > 0 {
		return nil, fmt.Errorf("no workload %q; is it %s?", name, strings.Join(guesses, " or "))
	}
	return nil, fmt.Errorf("no workload %q; there are %s", name, strings.Join(names, ", "))
}

// Class is the problem size.
type Class string

// The classes. T is for tests and takes milliseconds; S, W and A have the sizes of the NAS
// benchmarks where the workload has a model there. Only some workloads have the classes B and C.
const (
	ClassT Class = "T"
	ClassS Class = "S"
	ClassW Class = "W"
	ClassA Class = "A"
	ClassB Class = "B"
	ClassC Class = "C"
)

// Classes returns the classes that every workload has, the smallest first.
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
	// Compute is the time that the CPU is busy in each step, where the model computes.
	Compute time.Duration `json:"compute_ns,omitempty"`
	// Variation is by how many per cent each computation is longer or shorter, at most, at random.
	Variation int `json:"variation,omitempty"`
	// Seed determines all data.
	Seed uint64 `json:"seed,omitempty"`
	// Collective are the parameters of the workload collective.
	Collective Collective `json:"collective,omitzero"`
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
	// unfitReason explains why the problem of a class cannot be divided among a number of ranks;
	// "" if it can. nil: it always can.
	unfitReason func(c Class, ranks int) string
	largest     Class // "" means A
	// do is the program of a rank.
	do func(*job)
}

// Check reports why the workload cannot run with this number of ranks and these parameters.
// Run calls it before it sends anything.
func (wl *Workload) Check(ranks int, p Params) error {
	p.setDefaults()
	complain := func(format string, args ...any) error {
		return fmt.Errorf("%s: %w: %w", wl.Name, ErrParams, fmt.Errorf(format, args...))
	}
	all := append(Classes(), ClassB, ClassC)
	switch class := slices.Index(all, p.Class); {
	case class < 0:
		return complain("no class %q; there are T, S, W, A and for some workloads B and C", p.Class)
	case class > slices.Index(all, cmp.Or(wl.largest, ClassA)):
		return complain("it has no class %s", p.Class)
	}
	if ranks < wl.MinRanks || !wl.RankRule.allows(ranks) {
		return complain("%d ranks: it needs %s of at least %d", ranks, wl.RankRule, wl.MinRanks)
	}
	if wl.unfitReason != nil {
		if why := wl.unfitReason(p.Class, ranks); why != "" {
			return complain("%d ranks: %s: take a larger class, or fewer ranks", ranks, why)
		}
	}
	if p.Bytes != 0 && !wl.Sized {
		return complain("%d bytes: the class determines the size of its messages", p.Bytes)
	}
	if p.Bytes < 0 || p.Iterations < 0 || p.Compute < 0 {
		return complain("bytes, iterations and compute time must not be negative")
	}
	if err := p.Collective.check(wl.Name == CollectiveName, ranks, p.Bytes); err != nil {
		return complain("%w", err)
	}
	if p.Variation < 0 || p.Variation > 100 {
		return complain("a variation of %v %%: it is from 0 to 100", p.Variation)
	}
	return nil
}

// setDefaults sets the problem class and the seed if they are not given.
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
	// Sending is the mean time of ranks in calls that send, blocking or not, and Communicating that in
	// calls that send, receive or wait for requests: the send time and the communication time of
	// Rashti 2010 §5.5.2 and §6.6.2. Neither has collectives.
	Sending       time.Duration `json:"sending_ns"`
	Communicating time.Duration `json:"communicating_ns"`
	// InCollectives is the mean time of ranks in collective calls but barriers.
	InCollectives time.Duration `json:"in_collectives_ns"`
	// Checks is the number of comparisons, and Verified the number of compared bytes.
	Checks   uint64   `json:"checks"`
	Verified uint64   `json:"verified_bytes"`
	Figures  []Figure `json:"figures,omitempty"`
	// Collectives are the results of the workload collective.
	Collectives []CollectiveTime `json:"collectives,omitempty"`
}
