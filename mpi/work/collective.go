package work

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/fabrictest/fabrictest/mpi"
	"github.com/fabrictest/fabrictest/mpi/coll"
)

// CollectiveName is the name of the workload collective.
const CollectiveName = "collective"

// Collective are the parameters of the workload collective.
type Collective struct {
	// Operation is a collective operation; empty: all.
	Operation string `json:"operation,omitempty"`
	// Sizes are those of a block of each rank, or of the vector of operations without blocks. Params.Bytes
	// is instead of one size.
	Sizes []int `json:"sizes,omitempty"`
	// Algorithms are measured in turn, one operation each. Those that do not fit are left out. Empty: the
	// algorithm that the runtime selects; "all": every one.
	Algorithms []string `json:"algorithms,omitempty"`
	// Time ends the measurement of a size before all iterations: after the warm-up, so many follow as take
	// this long, and at least five, without checks of their results. 0: all, with checks.
	Time time.Duration `json:"time_ns,omitempty"`
	// Warmup is the number of iterations that are not measured.
	Warmup int `json:"warmup,omitempty"`
	// Groups is the number of groups of ranks: each performs the operation at the same time as the others.
	// Rank r is in group r modulo Groups, as rank r / Groups. 0: all ranks perform one operation.
	Groups int `json:"groups,omitempty"`
	// MIF is the maximum imbalance factor: a rank computes before each operation for a random time of up to
	// this many times the time of a message with the size of the operation (Qian 2010 §6.3.2).
	MIF int `json:"mif,omitempty"`
	// Late is instead the number of ranks in per cent, at random, that compute for the longest of these
	// times. The other ranks do not compute (Qian 2010 §6.5.1).
	Late int `json:"late,omitempty"`
	// OnOperation, if not nil, is called after each operation whose result has been checked, with the number of bytes
	// that this rank has compared.
	OnOperation func(compared int) `json:"-"`
}

// allAlgorithms is the name that stands for all algorithms of an operation.
const allAlgorithms = "all"

// CollectiveTime has the times of an operation with an algorithm.
type CollectiveTime struct {
	Operation string `json:"operation"`
	Algorithm string `json:"algorithm"`
	// Default says that the runtime selects this algorithm.
	Default bool `json:"default,omitempty"`
	Bytes   int  `json:"bytes"`
	// Iterations is the number of those that were measured.
	Iterations int `json:"iterations"`
	// Rate is how many operations a second all groups perform, Groups divided by Mean. 0: no groups, or no
	// time.
	Rate float64 `json:"rate_per_s,omitempty"`
	// Mean is the mean time of an operation over all ranks, and Median the mean of the ranks' medians.
	Mean   time.Duration `json:"mean_ns"`
	Median time.Duration `json:"median_ns"`
	// Slowest is the median at the slowest rank. Its confidence interval of 95 % is from Low to High.
	Slowest time.Duration `json:"slowest_ns"`
	Low     time.Duration `json:"low_ns"`
	High    time.Duration `json:"high_ns"`
}

// collective measures collective operations: each iteration begins with a barrier, and the time of a rank
// is that within the operation.
func collective(j *job) {
	c := &j.p.Collective
	sizes := c.Sizes
	if len(sizes) == 0 {
		sizes = j.messageSizes(map[Class][]int{
			ClassT: {8, 4 << 10},
			ClassS: {8, 1 << 10, 32 << 10},
			ClassW: {8, 64, 512, 4 << 10, 32 << 10},
			ClassA: {8, 64, 512, 4 << 10, 32 << 10, 256 << 10, 1 << 20},
		})
	}
	rounds := j.setIterations(map[Class]int{ClassT: 2, ClassS: 50, ClassW: 200, ClassA: 1000}[j.p.Class])
	g := j.newGroup(c.Groups)
	for _, op := range operationsNamed(c.Operation) {
		prefix := ""
		if c.Operation == "" {
			prefix = op.String() + " "
		}
		for _, n := range sizes {
			suffix := fmt.Sprintf(" %d B", n)
			if op == coll.Barrier {
				n, suffix = 0, ""
			}
			j.measureCollective(g, op, n, rounds, prefix, suffix)
			if op == coll.Barrier {
				break // it has no data
			}
		}
	}
}

// operationsNamed returns the operation with a name; all if the name is empty.
func operationsNamed(name string) (all []coll.Op) {
	for op := range coll.NumOps {
		if name == "" || op.String() == name {
			all = append(all, op)
		}
	}
	return all
}

// measureCollective measures an operation of groups with n bytes, and adds the times of each algorithm to
// the result, as figures whose names have a prefix and a suffix.
func (j *job) measureCollective(g *group, op coll.Op, n, rounds int, prefix, suffix string) {
	defer annotateError("%v of %d bytes", op, n)
	m := &measurement{
		job: j, operation: j.newOperation(g, op, n), algorithms: j.algorithmsFor(g, op, n), warmup: j.p.Collective.Warmup, limit: j.p.Collective.Time,
	}
	if len(m.algorithms) == 0 {
		return
	}
	if mif := j.p.Collective.MIF; mif > 0 {
		message := j.messageTime(n)
		j.addFigure(prefix+"message"+suffix, message.Seconds()*1e6, "us")
		m.longestDelay = time.Duration(mif) * message
	}
	for i, samples := range m.run(rounds) {
		t := j.times(samples)
		t.Operation, t.Algorithm, t.Bytes, t.Iterations = op.String(), m.algorithms[i].Name, n, len(samples)
		t.Default = m.algorithms[i] == must(g.Algorithm(op, n))
		if c := &j.p.Collective; c.Groups > 0 && t.Mean > 0 {
			t.Rate = float64(c.Groups) / t.Mean.Seconds()
		}
		j.collectives = append(j.collectives, t)
		name := prefix
		if len(j.p.Collective.Algorithms) > 0 {
			name += t.Algorithm + " "
		}
		for _, f := range []struct {
			name string
			time time.Duration
		}{{"mean", t.Mean}, {"median", t.Median}, {"slowest", t.Slowest}} {
			j.addFigure(name+f.name+suffix, f.time.Seconds()*1e6, "us")
		}
		if t.Rate > 0 {
			j.addFigure(name+"rate"+suffix, t.Rate, "1/s")
		}
	}
}

// algorithmsFor returns the algorithms to measure with n bytes: those of the parameters that fit, or the
// one that the runtime selects.
func (j *job) algorithmsFor(g *group, op coll.Op, n int) (all []*coll.Algorithm) {
	names := j.p.Collective.Algorithms
	if len(names) == 0 {
		return []*coll.Algorithm{must(g.Algorithm(op, n))}
	}
	candidates := coll.Algorithms(op)
	if names[0] != allAlgorithms {
		candidates = candidates[:0]
		for _, name := range names {
			candidates = append(candidates, coll.Find(op, name))
		}
	}
	for _, a := range candidates {
		check(g.SetAlgorithm(op, a))
		if must(g.Algorithm(op, n)) == a {
			all = append(all, a)
		}
		check(g.SetAlgorithm(op, nil))
	}
	return all
}

// measurement measures an operation with algorithms in turn.
type measurement struct {
	*job
	operation    *operation
	algorithms   []*coll.Algorithm
	warmup       int
	limit        time.Duration // of all rounds, at least minRounds; 0: none
	longestDelay time.Duration // of a rank before an operation
}

// minRounds is the number of rounds for which a time limit does not count.
const minRounds = 5

// run returns the times of this rank in each round of the operation, by algorithm. Each round begins
// with another algorithm. The ranks arrive alike for all algorithms.
func (m *measurement) run(rounds int) [][]time.Duration {
	samples := make([][]time.Duration, len(m.algorithms))
	number, o := 0, m.operation
	o.prepare(number)
	m.start()
	began := m.Wtime() // of the round
	for round := 0; round < m.warmup+rounds; round++ {
		if round == m.warmup {
			rounds = m.roundsInLimit(rounds, m.Wtime()-began)
		}
		began = m.Wtime()
		delay := m.arrivalDelay(m.longestDelay, round)
		for k := range m.algorithms {
			i := (k + round) % len(m.algorithms)
			check(o.SetAlgorithm(o.op, m.algorithms[i]))
			m.Compute(delay)
			m.spendComputePart(1)
			called := m.Wtime()
			check(o.run(number))
			took := m.Wtime() - called
			check(o.SetAlgorithm(o.op, nil))
			if round >= m.warmup {
				samples[i] = append(samples[i], took)
			}
			if m.limit == 0 || round < m.warmup {
				before := m.verified
				o.check(number)
				if done := m.p.Collective.OnOperation; done != nil {
					done(int(m.verified - before))
				}
				number++
				o.prepare(number) // before the barrier, because ranks may need different times
			}
			m.Barrier()
		}
	}
	m.stop()
	return samples
}

// roundsInLimit returns how many of the rounds fit into the time limit, if each takes as long as one has
// taken on rank 0.
func (m *measurement) roundsInLimit(rounds int, each time.Duration) int {
	if m.limit == 0 {
		return rounds
	}
	fit := m.bcastFromRoot(m.limit.Seconds() / max(each.Seconds(), 1e-9))
	return min(rounds, max(minRounds, int(min(fit, 1e9))))
}

// times returns the times of all ranks from the samples of this one.
func (j *job) times(samples []time.Duration) (t CollectiveTime) {
	slices.Sort(samples)
	sum := time.Duration(0)
	for _, d := range samples {
		sum += d
	}
	n := len(samples)
	low := max(0, int(float64(n)/2-0.98*math.Sqrt(float64(n)))) // the order statistics of the interval
	seconds := func(d time.Duration) float64 { return d.Seconds() }
	means := j.allreduceFloats(mpi.Sum, sum.Seconds()/float64(n), seconds(median(samples)))
	longest := j.allreduceFloats(mpi.Max, seconds(median(samples)), seconds(samples[low]), seconds(samples[n-1-low]))
	duration := func(seconds float64) time.Duration { return time.Duration(seconds * 1e9) }
	ranks := float64(j.Size())
	t.Mean, t.Median = duration(means[0]/ranks), duration(means[1]/ranks)
	t.Slowest, t.Low, t.High = duration(longest[0]), duration(longest[1]), duration(longest[2])
	return t
}

// median returns the median of sorted times.
func median(sorted []time.Duration) time.Duration {
	n := len(sorted)
	return (sorted[(n-1)/2] + sorted[n/2]) / 2
}

// check returns an error if the parameters are wrong, or if they are not those of the workload.
func (c *Collective) check(applies bool, ranks, bytes int) error {
	if !applies {
		if c.Operation != "" || len(c.Sizes)+len(c.Algorithms) > 0 || c.Warmup+c.Groups+c.MIF+c.Late != 0 || c.Time != 0 {
			return fmt.Errorf("operation, sizes, algorithms, time, warm-up, groups and arrival are those of the workload collective")
		}
		return nil
	}
	ops := operationsNamed(c.Operation)
	switch {
	case len(ops) == 0:
		return fmt.Errorf("no operation %q; there are %s", c.Operation, coll.OpNames())
	case bytes > 0 && len(c.Sizes) > 0:
		return fmt.Errorf("%d bytes, and a list of sizes: give one of them", bytes)
	case c.Time < 0 || c.Time > 0 && c.Warmup == 0:
		return fmt.Errorf("a time of %v and %d iterations to warm up: the time needs some", c.Time, c.Warmup)
	case c.Warmup < 0 || c.MIF < 0 || c.Late < 0 || c.Late > 100:
		return fmt.Errorf("warm-up and imbalance factor must not be negative, and from 0 to 100 %% of the ranks are late")
	case c.Groups < 0 || c.Groups > 0 && (ranks%c.Groups != 0 || ranks == c.Groups):
		return fmt.Errorf("%d groups of %d ranks: groups have the same number of ranks, at least two", c.Groups, ranks)
	case c.Late > 0 && c.MIF == 0:
		return fmt.Errorf("ranks are late by the imbalance factor times the time of a message: give the factor")
	}
	for _, n := range append(slices.Clone(c.Sizes), cmp.Or(bytes, 8)) {
		if n < 1 || n%8 != 0 && slices.ContainsFunc(ops, coll.Op.IsReduction) {
			return fmt.Errorf("%d bytes: reductions are of numbers of 8 bytes", n)
		}
	}
	return c.checkAlgorithms(ops)
}

// checkAlgorithms returns an error if an algorithm does not exist.
func (c *Collective) checkAlgorithms(ops []coll.Op) error {
	if len(c.Algorithms) == 0 || len(c.Algorithms) == 1 && c.Algorithms[0] == allAlgorithms {
		return nil
	}
	if len(ops) > 1 {
		return fmt.Errorf("algorithms of all operations: give the operation, or %s", allAlgorithms)
	}
	for _, name := range c.Algorithms {
		if coll.Find(ops[0], name) == nil {
			return fmt.Errorf("algorithm %q of %v is none of %s", name, ops[0], coll.Names(ops[0]))
		}
	}
	return nil
}
