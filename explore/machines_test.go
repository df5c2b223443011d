package explore

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fabrictest/fabrictest/internal/must"
)

// explored explores a machine with limits.
func explored(t *testing.T, opt Options, initial func() Machine) *Report {
	t.Helper()
	return must.Get(Machines(t.Context(), opt, initial))(t)
}

// The results for random graphs are those of simple algorithms, with copied and repeated machines
// and any number of workers.
func TestMachinesExploresRandomGraphs(t *testing.T) {
	livelocks, failures := 0, 0
	for seed := range uint64(150) {
		g := randomGraph(seed, 4+int(seed))
		want := g.reference()
		for name, initial := range map[string]func() Machine{"cloned": g.cloned, "replayed": g.replayed} {
			for _, workers := range []int{1, 2, 7} {
				r := explored(t, Options{Parallel: workers}, initial)
				what := fmt.Sprintf("seed %d, %s, %d workers", seed, name, workers)
				switch {
				case want.path != nil:
					failures++
					if r.Failure == nil || r.Finished || !r.Failure.Shortest || !slices.Equal(r.Failure.Path, want.path) {
						t.Fatalf("%s: %+v, %+v; want failure after %v", what, r, r.Failure, want.path)
					}
					if err := Replay(initial(), r.Failure.Path, nil); err == nil || err.Error() != r.Failure.Err.Error() {
						t.Fatalf("%s: Replay = %v, want %v", what, err, r.Failure.Err)
					}
				case r.States != want.States || r.Edges != want.Edges || r.Runs != want.Runs:
					t.Fatalf("%s: %+v, want %+v", what, r.Counts, want.Counts)
				case want.livelock:
					livelocks++
					if r.Failure == nil || !errors.Is(r.Failure.Err, ErrLivelock) {
						t.Fatalf("%s: no livelock found: %+v", what, r.Failure)
					}
					must.Do(t, checkCycle(initial(), r.Failure.Path))
				case r.Failure != nil || !r.Finished:
					t.Fatalf("%s: %+v, %+v; want no failure", what, r, r.Failure)
				}
			}
		}
	}
	if livelocks < 50 || failures < 50 {
		t.Errorf("%d livelocks and %d failures: the graphs have too few", livelocks, failures)
	}
}

// checkCycle checks that a path ends with a cycle of steps without progress.
func checkCycle(m Machine, p Path) error {
	n := m.(interface{ node() *replayedNode }).node()
	ends, progress := []int{n.at}, []bool{true}
	for len(p) > 0 {
		size := 1
		for size < len(p) && p[size].Kind == "target" {
			size++
		}
		must := Replay(m, p[:size], nil)
		if must != nil {
			return must
		}
		ends, progress = append(ends, n.at), append(progress, n.progressed)
		p = p[size:]
	}
	for i := len(ends) - 1; i > 0 && !progress[i]; i-- {
		if ends[i-1] == n.at {
			return nil
		}
	}
	return fmt.Errorf("no cycle without progress ends the nodes %v, progress %v", ends, progress)
}

func (n *replayedNode) node() *replayedNode { return n }

// counters is a machine of counters that are incremented one by one, in any order.
type counters struct {
	value [4]uint8
	limit uint8
}

func (c *counters) Enabled(into []Step) []Step {
	for i, v := range c.value {
		if v < c.limit {
			into = append(into, Step{Kind: "count", A: int32(i)})
		}
	}
	return into
}
func (c *counters) Take(s Step) error     { c.value[s.A]++; return nil }
func (c *counters) Fingerprint() [16]byte { return Hash(c.value[:]) }
func (c *counters) Check() error          { return nil }
func (c *counters) Clone(reuse Machine) Machine {
	d, _ := reuse.(*counters)
	if d == nil {
		d = new(counters)
	}
	*d = *c
	return d
}

func countTo(limit uint8) func() Machine { return func() Machine { return &counters{limit: limit} } }

func TestMachinesCountsStates(t *testing.T) {
	for _, workers := range []int{1, 3} {
		r := explored(t, Options{Parallel: workers}, countTo(9))
		if want := (Counts{Runs: 1, States: 10_000, Edges: 4 * 9 * 1000, Deepest: 36}); r.Counts != want || !r.Finished {
			t.Errorf("%d workers: %+v, finished %v; want %+v", workers, r.Counts, r.Finished, want)
		}
	}
}

// Within a depth, exactly the states are found that so many steps reach.
func TestMachinesLimitsDepth(t *testing.T) {
	for _, workers := range []int{1, 3} {
		r := explored(t, Options{MaxDepth: 3, Parallel: workers}, countTo(9))
		if want := 1 + 4 + 10 + 20; r.States != want || r.Deepest != 3 || !r.Finished {
			t.Errorf("%d workers: %+v, finished %v; want %d states", workers, r.Counts, r.Finished, want)
		}
	}
}

func TestMachinesLimitsStates(t *testing.T) {
	r := explored(t, Options{MaxStates: 1000, Parallel: 1}, countTo(9))
	if r.States != 1000 || r.Finished {
		t.Errorf("%+v, finished %v; want 1000 states", r.Counts, r.Finished)
	}
	if r.Probes == 0 || r.NewStates < 0.1 || r.NewStates > 0.99 || r.AllRuns < 1e15 {
		t.Errorf("estimate %+v; there are 36!/9!^4 = 2.1e19 runs", r.Unexplored)
	}
}

func TestMachinesStopsWhenContextIsDone(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if r, err := Machines(ctx, Options{}, countTo(9)); err != nil || r.Finished || r.States != 1 {
		t.Errorf("%+v, %v; want the initial state only", r, err)
	}
	if r := explored(t, Options{MaxTime: time.Nanosecond}, countTo(60)); r.Finished {
		t.Errorf("%+v in a nanosecond", r)
	}
}

// largeGraph returns a graph without failures, of which many nodes can be reached.
func largeGraph(t *testing.T, inner bool) *graph {
	g := randomGraph(1, 400)
	g.inner = inner
	clear(g.failing)
	clear(g.deadlock)
	for _, edges := range g.next {
		for i := range edges {
			edges[i].progress = true
		}
	}
	if n := g.reference().States; n < 100 {
		t.Fatalf("%d nodes can be reached", n)
	}
	return g
}

// An exploration in parts visits the same states as one in one part.
func TestMachinesContinuesFromCheckpoint(t *testing.T) {
	g := largeGraph(t, true)
	for name, initial := range map[string]func() Machine{"cloned": countTo(9), "replayed": g.replayed} {
		opt := Options{Checkpoint: filepath.Join(t.TempDir(), "checkpoint"), Parallel: 2}
		want := explored(t, Options{}, initial)
		calls := 0
		for r := (*Report)(nil); r == nil || !r.Finished; calls++ {
			opt.MaxStates += 1 + want.States/7
			if r = explored(t, opt, initial); r.Finished && (r.States != want.States || r.Edges != want.Edges || r.Runs != want.Runs) {
				t.Errorf("%s: %+v, want %+v", name, r.Counts, want.Counts)
			}
		}
		if calls < 5 {
			t.Errorf("%s: finished after %d calls", name, calls)
		}
		if _, err := os.Stat(opt.Checkpoint); !os.IsNotExist(err) {
			t.Errorf("%s: the checkpoint is left: %v", name, err)
		}
	}
}

func TestMachinesRefusesCheckpointOfOtherMachine(t *testing.T) {
	opt := Options{Checkpoint: filepath.Join(t.TempDir(), "checkpoint"), MaxStates: 10}
	explored(t, opt, countTo(9))
	g := randomGraph(3, 400)
	if _, err := Machines(t.Context(), opt, g.replayed); err == nil || !strings.Contains(err.Error(), "another machine") {
		t.Errorf("error %v", err)
	}
	must.Do(t, os.WriteFile(opt.Checkpoint, []byte("no checkpoint"), 0o600))
	if _, err := Machines(t.Context(), opt, countTo(9)); err == nil || !strings.Contains(err.Error(), "no checkpoint") {
		t.Errorf("error %v", err)
	}
}

// forgetful is a machine whose steps depend on how often it was made.
type forgetful struct {
	replayedNode
	made int
}

func (f *forgetful) Take(s Step) error {
	if f.made > 5 {
		return errors.New("late")
	}
	return f.replayedNode.Take(s)
}

func TestMachinesReportsNondeterminism(t *testing.T) {
	made := 0
	g := largeGraph(t, false)
	_, err := Machines(t.Context(), Options{Parallel: 1}, func() Machine {
		made++
		return &forgetful{replayedNode{graph: g}, made}
	})
	if err == nil || !strings.Contains(err.Error(), "cannot be repeated") {
		t.Errorf("error %v", err)
	}
}

// fickle is a machine that fails only if its steps are taken without Enabled.
type fickle struct {
	replayedNode
	enabled bool
}

func (f *fickle) Enabled(into []Step) []Step {
	f.enabled = true
	return f.replayedNode.Enabled(into)
}

func (f *fickle) Take(s Step) error {
	if !f.enabled {
		return errors.New("not enabled")
	}
	f.enabled = false
	return f.replayedNode.Take(s)
}

func TestMachinesReportsThatEnabledChangesState(t *testing.T) {
	g := largeGraph(t, false)
	_, err := Machines(t.Context(), Options{Parallel: 1}, func() Machine { return &fickle{replayedNode: replayedNode{graph: g}} })
	if err == nil || !strings.Contains(err.Error(), "cannot be repeated") {
		t.Errorf("error %v", err)
	}
}

func TestReplayRefusesPathsOfOtherMachines(t *testing.T) {
	for _, text := range []string{"count:0/3", "other:0/4", "count:0/4 count:0/4 count:0/4 count:0/4"} {
		p := must.Get(ParsePath(text))(t)
		if err := Replay(countTo(1)(), p, nil); err == nil || !strings.Contains(err.Error(), "of the path is") {
			t.Errorf("Replay(%s) = %v", text, err)
		}
	}
}

func TestVisitedKeepsTheLowestDepth(t *testing.T) {
	var v visited
	fp := func(i int) [16]byte { return Hash(binary.BigEndian.AppendUint64(nil, uint64(i))) }
	const n = 100_000
	for _, depth := range []int{7, 9, 3} {
		for i := range n {
			isNew, isShallower := v.add(fp(i), depth)
			if isNew != (depth == 7) || isShallower != (depth != 9) {
				t.Fatalf("state %d at depth %d: new %v, shallower %v", i, depth, isNew, isShallower)
			}
		}
	}
	if v.n.Load() != n || !v.has(fp(0)) || v.has(fp(n)) {
		t.Errorf("%d states", v.n.Load())
	}
}

func BenchmarkMachines(b *testing.B) {
	for name, initial := range map[string]func() Machine{
		"cloned":   countTo(12),
		"repeated": func() Machine { return struct{ Machine }{countTo(12)()} }, // without Clone
	} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				r := must.Get(Machines(b.Context(), Options{Parallel: 1}, initial))(b)
				b.ReportMetric(float64(r.States)/r.Elapsed.Seconds(), "states/s")
			}
		})
	}
}
