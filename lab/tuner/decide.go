package tuner

import (
	"cmp"
	"slices"

	"github.com/fabrictest/fabrictest/lab/tuning"
	"github.com/fabrictest/fabrictest/mpi/coll"
	"github.com/fabrictest/fabrictest/mpi/work"
)

// Point has the times of the algorithms of an operation with a number of ranks and a size.
type Point struct {
	Operation      string
	Ranks, PerHost int
	Bytes          int
	// Default and Best are the algorithm that the runtime selects by itself and the one to choose. They are
	// the same if no other one takes less time beyond the noise.
	Default, Best *work.CollectiveTime
	Times         []work.CollectiveTime
}

// Gain is by how many per cent the best algorithm takes less time than the default.
func (p *Point) Gain() float64 { return 100 * (1 - float64(p.Best.Slowest)/float64(p.Default.Slowest)) }

// add adds the times of a job as points.
func (r *Result) add(j *job, times []work.CollectiveTime) {
	for len(times) > 0 {
		n := slices.IndexFunc(times, func(t work.CollectiveTime) bool { return t.Bytes != times[0].Bytes })
		if n < 0 {
			n = len(times)
		}
		p := &Point{Operation: j.operation, Ranks: j.ranks, PerHost: j.perHost, Bytes: times[0].Bytes, Times: times[:n]}
		if p.decide() {
			r.Points = append(r.Points, p)
		}
		times = times[n:]
	}
}

// minGain is the gain in per cent from which another algorithm than the default is chosen.
const minGain = 5

// decide sets the best algorithm. Another one than the default must take less time by minGain, its
// confidence interval must be below that of the default, and two runs must have the same result. decide
// returns false without the default.
func (p *Point) decide() bool {
	i := slices.IndexFunc(p.Times, func(t work.CollectiveTime) bool { return t.Default })
	if i < 0 {
		return false
	}
	p.Default = &p.Times[i]
	p.Best = p.Default
	for i := range p.Times {
		t := &p.Times[i]
		faster := t.High < p.Default.Low && 100*t.Slowest <= (100-minGain)*p.Default.Slowest
		if faster && !roundsByArrival(t) && t.Slowest < p.Best.Slowest {
			p.Best = t
		}
	}
	return true
}

// roundsByArrival reports whether the result of an algorithm can differ from run to run.
func roundsByArrival(t *work.CollectiveTime) bool {
	a := coll.Find(coll.Op(slices.Index(allOperations(), t.Operation)), t.Algorithm)
	return a != nil && a.RoundsByArrival
}

// compare orders points by operation, ranks per host, ranks and size.
func (p *Point) compare(o *Point) int {
	return cmp.Or(
		cmp.Compare(slices.Index(allOperations(), p.Operation), slices.Index(allOperations(), o.Operation)),
		cmp.Compare(p.PerHost, o.PerHost), cmp.Compare(p.Ranks, o.Ranks), cmp.Compare(p.Bytes, o.Bytes),
	)
}

// sameCurve reports whether two points differ in their sizes only.
func (p *Point) sameCurve(o *Point) bool {
	return p.Operation == o.Operation && p.PerHost == o.PerHost && p.Ranks == o.Ranks
}

// Table returns the rules: a measured size stands for those up to the next measured one, the smallest for
// those below it, too. Above the largest there is no rule.
func (r *Result) Table(command string) *tuning.Table {
	t := &tuning.Table{Fabric: *r.Fabric, Command: command, Rules: []tuning.Rule{}}
	for i, p := range r.Points {
		isFirst := i == 0 || !r.Points[i-1].sameCurve(p)
		isLast := i+1 == len(r.Points) || !r.Points[i+1].sameCurve(p)
		from, to := p.Bytes, p.Bytes
		if isFirst {
			from = 0
		}
		if !isLast {
			to = r.Points[i+1].Bytes - 1
		}
		gain := max(0, p.Gain())
		if n := len(t.Rules); !isFirst && t.Rules[n-1].Algorithm == p.Best.Algorithm {
			t.Rules[n-1].To, t.Rules[n-1].Gain = to, max(t.Rules[n-1].Gain, gain)
			continue
		}
		t.Rules = append(t.Rules, tuning.Rule{
			Rule: coll.Rule{Operation: p.Operation, Ranks: p.Ranks, PerHost: p.PerHost, From: from, To: to, Algorithm: p.Best.Algorithm}, Gain: gain,
		})
	}
	return t
}

// Better returns the number of points with another algorithm than the default.
func (r *Result) Better() (n int) {
	for _, p := range r.Points {
		if p.Best != p.Default {
			n++
		}
	}
	return n
}
