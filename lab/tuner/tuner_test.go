package tuner

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/fabrictest/fabrictest/internal/must"
	"github.com/fabrictest/fabrictest/lab/mpihost/mpirun"
	"github.com/fabrictest/fabrictest/mpi/work"
)

// timed returns the times of an algorithm: the median, and by how much the bounds of its interval differ.
func timed(algorithm string, bytes int, median, noise time.Duration) work.CollectiveTime {
	return work.CollectiveTime{Algorithm: algorithm, Bytes: bytes, Slowest: median, Low: median - noise, High: median + noise}
}

// planOf returns a plan whose jobs have the times that measure returns.
func planOf(t *testing.T, tier string, measure func(context.Context, *job, time.Duration) ([]work.CollectiveTime, error)) *Plan {
	t.Helper()
	p := &Plan{
		Tier:       must.Get(mpirun.FindTier(tier, "", ""))(t),
		Operations: []string{"bcast"}, Ranks: []int{4}, PerHost: []int{1}, Sizes: []int{8, 64, 512}, Time: time.Hour, measure: measure,
	}
	return p
}

// Another algorithm than the default is chosen if it takes less time beyond the noise. A rule covers the
// sizes up to the next measured one with another choice.
func TestTableHasTheBestAlgorithms(t *testing.T) {
	times := map[int][]work.CollectiveTime{
		8:   {timed("binomial", 8, 100, 1), timed("linear", 8, 60, 1), timed("chain", 8, 70, 1)},
		64:  {timed("binomial", 64, 100, 1), timed("linear", 64, 80, 1), timed("chain", 64, 99, 0)},
		512: {timed("binomial", 512, 100, 30), timed("linear", 512, 80, 1), timed("chain", 512, 96, 1)},
	}
	p := planOf(t, "sim", func(_ context.Context, j *job, _ time.Duration) ([]work.CollectiveTime, error) {
		all := times[j.sizes[0]]
		all[0].Default = true
		return all, nil
	})
	r := must.Get(p.Measure(t.Context()))(t)
	var text []string
	for _, rule := range r.Table("command").Rules {
		text = append(text, rule.String())
	}
	want := []string{
		"{operation: bcast, ranks: 4, per_host: 1, to: 511, algorithm: linear, gain: 40}",
		"{operation: bcast, ranks: 4, per_host: 1, from: 512, to: 512, algorithm: binomial}",
	}
	if strings.Join(text, "\n") != strings.Join(want, "\n") || r.Better() != 2 {
		t.Errorf("%d are better:\n%s", r.Better(), strings.Join(text, "\n"))
	}
	var page bytes.Buffer
	must.Do(t, r.WritePage(&page, "fabrictest tune <x>"))
	for _, want := range []string{
		"best at 2 of 3 points", "fabrictest tune &lt;x&gt;", `<td class="m0 s3" title="binomial 100 ns (99 ns to 101 ns), the default`, "−40 %", `<td class="m1 s0"`,
	} {
		if !strings.Contains(page.String(), want) {
			t.Errorf("the page has no %q", want)
		}
	}
}

// An algorithm whose rounding depends on arrival is not chosen.
func TestIrreproducibleAlgorithmIsNotChosen(t *testing.T) {
	p := Point{Operation: "allreduce", Times: []work.CollectiveTime{timed("recursive-doubling", 8, 100, 0), timed("arrival-direct", 8, 50, 0), timed("ring", 8, 80, 0)}}
	for i := range p.Times {
		p.Times[i].Operation, p.Times[i].Default = "allreduce", i == 0
	}
	if !p.decide() || p.Best.Algorithm != "ring" {
		t.Errorf("%+v", p.Best)
	}
}

// A run in real time measures all sizes, one in simulation a size. What does not fit into the time or the
// memory is named.
func TestWhatIsLeftOutIsNamed(t *testing.T) {
	var jobs []string
	var p *Plan
	measure := func(_ context.Context, j *job, limit time.Duration) ([]work.CollectiveTime, error) {
		if limit <= 0 || limit > p.Time {
			return nil, fmt.Errorf("%v for %v", limit, j)
		}
		jobs = append(jobs, fmt.Sprint(j.operation, j.ranks, j.sizes))
		return nil, nil
	}
	p = planOf(t, "sim", measure)
	p.Ranks, p.Sizes, p.Operations = []int{1, 8, 4}, []int{12, 8, 1 << 30}, []string{"reduce", "barrier", "bcast"}
	r := must.Get(p.Measure(t.Context()))(t)
	if want := "[reduce4 [8] barrier4 [8] bcast4 [8] bcast4 [12] reduce8 [8] barrier8 [8] bcast8 [8] bcast8 [12]]"; fmt.Sprint(jobs) != want {
		t.Errorf("%v, want %s", jobs, want)
	}
	if want := "[1 size of 8 ranks: too much memory 1 size of 4 ranks: too much memory]"; fmt.Sprint(r.LeftOut) != want {
		t.Errorf("%v, want %s", r.LeftOut, want)
	}
	p.Time = time.Nanosecond
	r = must.Get(p.Measure(t.Context()))(t)
	if last := r.LeftOut[len(r.LeftOut)-1]; last != "8 runs for lack of time, from reduce, 4 ranks with 1 per host, 1 size on" {
		t.Error(last)
	}
	jobs = nil
	p = planOf(t, "netns", measure)
	must.Get(p.Measure(t.Context()))(t)
	if want := "[bcast4 [8 64 512]]"; fmt.Sprint(jobs) != want {
		t.Errorf("%v, want %s", jobs, want)
	}
}

// A run that fails ends the measurement.
func TestFailedRunIsAnError(t *testing.T) {
	failed := errors.New("out of paper")
	p := planOf(t, "sim", func(context.Context, *job, time.Duration) ([]work.CollectiveTime, error) { return nil, failed })
	if _, err := p.Measure(t.Context()); !errors.Is(err, failed) || !strings.Contains(err.Error(), "bcast, 4 ranks with 1 per host") {
		t.Error(err)
	}
}

func TestWrongPlansAreRejected(t *testing.T) {
	for want, change := range map[string]func(*Plan){
		"--operation bcat": func(p *Plan) { p.Operations = []string{"bcat"} },
		"--ranks 0":        func(p *Plan) { p.Ranks = []int{0} },
		"--per-host: give": func(p *Plan) { p.PerHost = nil },
		"--sizes -1":       func(p *Plan) { p.Sizes = []int{-1} },
		"--time 0s":        func(p *Plan) { p.Time = 0 },
	} {
		p := planOf(t, "sim", nil)
		change(p)
		if err := p.Check(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}
