package explore

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// paths collects the paths of runs that choose among 3, then 2 if that was 0, then 4.
type paths struct {
	mu  sync.Mutex
	all map[string]int
}

func (p *paths) run(c Chooser) error {
	first := c.Choose("a", 3)
	text := fmt.Sprint(first)
	if first == 0 {
		text += fmt.Sprint(c.Choose("b", 2))
	}
	text += fmt.Sprint(c.Choose("c", 4))
	p.mu.Lock()
	defer p.mu.Unlock()
	p.all[text]++
	return nil
}

func TestExhaustiveRunsEachPathOnce(t *testing.T) {
	for depth, want := range map[int]int{0: 16, 1: 7, 2: 16} {
		p := paths{all: map[string]int{}}
		r, err := Runs(t.Context(), Options{Strategy: Exhaustive, Depth: depth, Parallel: 3}, p.run)
		if err != nil || !r.Finished || r.Runs != want || len(p.all) != want || r.Outcomes != want || r.Deepest != 3 {
			t.Errorf("depth %d: %v, report %+v, paths %v; want %d", depth, err, r, p.all, want)
		}
	}
}

func TestExhaustiveReportsWhatIsLeft(t *testing.T) {
	p := paths{all: map[string]int{}}
	r, err := Runs(t.Context(), Options{Strategy: Exhaustive, MaxRuns: 3, Parallel: 1}, p.run)
	if err != nil || r.Finished || r.Runs != 3 || r.Queued != 10 {
		t.Errorf("%v, %+v", err, r)
	}
}

// racy fails if the second of two programs with three steps each runs all between two steps of the
// first. It tells the entities.
func racy(c Chooser) error {
	left := []int{3, 3}
	order := ""
	for left[0]+left[1] > 0 {
		var ids []uint32
		for i, n := range left {
			if n > 0 {
				ids = append(ids, uint32(i))
			}
		}
		i := 0
		if len(ids) > 1 {
			c.(interface{ SetEntities([]uint32) }).SetEntities(ids)
			i = c.Choose("run", len(ids))
		}
		left[ids[i]]--
		order += fmt.Sprint(ids[i])
	}
	if strings.Contains(order, "00111") {
		return fmt.Errorf("order %s after %d steps", order, len(order))
	}
	return nil
}

func TestStrategiesFindRace(t *testing.T) {
	for _, strategy := range Strategies() {
		r, err := Runs(t.Context(), Options{Strategy: strategy, Seed: 1, MaxRuns: 200, Depth: 2}, racy)
		if strategy == Exhaustive {
			r, err = Runs(t.Context(), Options{Strategy: strategy}, racy)
		}
		if err != nil || r.Failure == nil {
			t.Errorf("%s: %v, %+v", strategy, err, r)
			continue
		}
		if err := ReplayRun(r.Failure.Path, racyReplayed); err == nil || err.Error() != r.Failure.Err.Error() {
			t.Errorf("%s: the path replays as %v, not %v", strategy, err, r.Failure.Err)
		}
		again, _ := Runs(t.Context(), Options{Strategy: strategy, Seed: 1, MaxRuns: 200, Depth: 2, Parallel: 1}, racy)
		if strategy != Exhaustive && !slices.Equal(again.Failure.Path, r.Failure.Path) {
			t.Errorf("%s: another failure with another number of goroutines: %v and %v", strategy, again.Failure.Path, r.Failure.Path)
		}
	}
}

// racyReplayed is racy for a Chooser that takes no entities.
func racyReplayed(c Chooser) error { return racy(deaf{c}) }

type deaf struct{ Chooser }

func (deaf) SetEntities([]uint32) {}

func TestShrinkKeepsOnlyWhatFails(t *testing.T) {
	run := func(c Chooser) error {
		faults, late := 0, false
		for i := range 100 {
			faults += c.Choose("fault", 4)
			if x := c.Choose("event", 5); i == 40 && x >= 2 {
				late = true
			}
		}
		if late {
			return fmt.Errorf("failed with %d faults", faults)
		}
		return nil
	}
	r, err := Runs(t.Context(), Options{Strategy: Random, Seed: 3, MaxRuns: 5000}, run)
	if err != nil || r.Failure == nil {
		t.Fatalf("%v, %+v", err, r)
	}
	f := Shrink(t.Context(), r.Failure, 0, run)
	if want := (Choice{"event", 2, 5}); len(f.Path) != 82 || f.Path[81] != want || len(f.Path.changes()) != 1 || f.Err.Error() != "failed with 0 faults" {
		t.Errorf("shrunk to %v, with %v", f.Path.changes(), f.Err)
	}
	if err := ReplayRun(f.Path, run); err == nil || err.Error() != f.Err.Error() {
		t.Errorf("the shrunk path replays as %v", err)
	}
}

// A choice of the first fifty that is not 0 makes the run longer, so that removing it moves those that fail, by a
// few steps or by many.
func TestShrinkRemovesChoicesThatMoveLaterOnes(t *testing.T) {
	for _, c := range []struct{ longer, failing int }{{1, 8}, {20, 4}} {
		run := func(chooser Chooser) error {
			for range 50 {
				if chooser.Choose("event", 2) == 1 {
					for range c.longer {
						chooser.Choose("other", 2)
					}
				}
			}
			sum := 0
			for range 5 {
				sum += chooser.Choose("event", 3)
			}
			if sum >= c.failing {
				return errors.New("failed")
			}
			return nil
		}
		r, err := Runs(t.Context(), Options{Strategy: Random, Seed: 2, MaxRuns: 20000}, run)
		if err != nil || r.Failure == nil || len(r.Failure.Path.changes()) < 15 {
			t.Fatalf("%v, %+v", err, r)
		}
		f := Shrink(t.Context(), r.Failure, 0, run)
		if n := len(f.Path.changes()); n > fewChanges {
			t.Errorf("shrunk to %d changes: %v", n, f.Path.changes())
		}
	}
}

func TestReplayReportsDivergence(t *testing.T) {
	run := func(c Chooser) error { c.Choose("run", 2); return errors.New("failed") }
	for text, want := range map[string]string{
		"run:1/3":         "diverged from its path at choice 0: it chose run among 2",
		"event:1/2":       "diverged from its path at choice 0",
		"run:1/2 run:1/2": "ended after 1 choices",
		"run:1/2":         "failed",
	} {
		path, err := ParsePath(text)
		if err != nil {
			t.Fatal(err)
		}
		if err := ReplayRun(path, run); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
}

func TestRunsStops(t *testing.T) {
	endless := func(c Chooser) error { c.Choose("run", 1<<30); return nil }
	r, err := Runs(t.Context(), Options{Strategy: Random, MaxTime: 10 * time.Millisecond, Progress: func(Progress) {}}, endless)
	if err != nil || r.Runs == 0 || r.Finished || r.Failure != nil {
		t.Errorf("%v, %+v", err, r)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if r, err = Runs(ctx, Options{Strategy: Exhaustive}, endless); err != nil || r.Finished {
		t.Errorf("%v, %+v", err, r)
	}
	for _, o := range []Options{{Strategy: "magic", MaxRuns: 1}, {Strategy: PCT}} {
		if _, err := Runs(t.Context(), o, endless); err == nil {
			t.Errorf("options %+v are accepted", o)
		}
	}
}

func TestOutcomesAreCounted(t *testing.T) {
	r, err := Runs(t.Context(), Options{Strategy: Random, MaxRuns: 500}, func(c Chooser) error {
		c.(OutcomeRecorder).SetOutcome(uint64(c.Choose("run", 1000) % 3))
		return nil
	})
	if err != nil || r.Outcomes != 3 || r.Unseen != 0 {
		t.Errorf("%v, %+v", err, r)
	}
}

func TestFindingsFailRun(t *testing.T) {
	found := []Finding{{Kind: "window race", Text: "put and load"}}
	r, err := Runs(t.Context(), Options{Strategy: Exhaustive}, func(Chooser) error {
		return fmt.Errorf("rank 1: %w", &FindingsError{found})
	})
	if err != nil || r.Failure == nil || len(r.Failure.Findings) != 1 || r.Failure.Err.Error() != "rank 1: window race: put and load" {
		t.Errorf("%v, %+v", err, r)
	}
}

func TestChangesRoundTrip(t *testing.T) {
	path := Path{{"run", 0, 2}, {"event", 3, 5}, {"run", 0, 2}, {"fault", 1, 4}, {"run", 0, 3}}
	text := path.Changes()
	if text != "1 event:3/5\n3 fault:1/4\n" {
		t.Errorf("changes %q", text)
	}
	parsed, err := ParseChanges(text)
	if err != nil || len(parsed) != 4 || parsed.Changes() != text {
		t.Errorf("%v, %v", parsed, err)
	}
	for _, text := range []string{"x run:1/2", "2 run:1/2\n1 run:1/2", "1 run:2/2", "999999999999 run:1/2", "-1 run:1/2"} {
		if p, err := ParseChanges(text); err == nil {
			t.Errorf("%q is parsed as %v", text, p)
		}
	}
}
