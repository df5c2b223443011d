package mpihost_test

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/fabrictest/fabrictest/explore"
	"github.com/fabrictest/fabrictest/internal/must"
	"github.com/fabrictest/fabrictest/lab/mpihost"
	"github.com/fabrictest/fabrictest/mpi"
)

// fewBuffers is an exploration of two ranks with few buffers.
func fewBuffers(o explore.Options) *mpihost.Exploration {
	x := &mpihost.Exploration{Fabric: mpihost.Fabric{Ranks: 2, Seed: 1}, Explore: o}
	mpihost.UseFewBuffers(&x.Options.Carrier)
	return x
}

// rendezvous sends a message that is longer than the eager limit.
func rendezvous(w *mpi.World) error {
	sent := bytes.Repeat([]byte("rendezvous"), 2<<10)
	if w.Rank() == 0 {
		return w.Send(sent, 1, 7)
	}
	received := make([]byte, len(sent))
	if _, err := w.Recv(received, 0, 7); err != nil {
		return err
	}
	if !bytes.Equal(received, sent) {
		return errors.New("the message has changed")
	}
	return nil
}

func TestExploreHasManyOutcomes(t *testing.T) {
	for _, strategy := range explore.Strategies() {
		x := fewBuffers(explore.Options{Strategy: strategy, Seed: 1, MaxRuns: 60})
		x.Fabric.Faults, x.Fabric.Link.Spray = 1, 2
		r := must.Get(x.Run(t.Context(), rendezvous))(t)
		if r.Failure != nil || r.Runs != 60 || r.Outcomes < 10 && strategy != explore.Exhaustive {
			t.Errorf("%s: %+v", strategy, r)
		}
	}
}

// firstWins fails if the message of rank 2 arrives before that of rank 1.
func firstWins(w *mpi.World) error {
	if w.Rank() > 0 {
		return w.Send([]byte{byte(w.Rank())}, 0, 0)
	}
	var order []int
	for range w.Size() - 1 {
		s, err := w.Recv(make([]byte, 1), mpi.AnySource, 0)
		if err != nil {
			return err
		}
		order = append(order, s.Source)
	}
	if order[0] == 2 {
		return fmt.Errorf("the messages arrived in the order %v", order)
	}
	return nil
}

func TestExploreFindsAndReplaysRace(t *testing.T) {
	x := fewBuffers(explore.Options{Strategy: explore.Random, Seed: 2, MaxRuns: 2000})
	x.Fabric.Ranks = 3
	r := must.Get(x.Run(t.Context(), firstWins))(t)
	if r.Failure == nil || !strings.Contains(r.Failure.Err.Error(), "the messages arrived in the order [2 1]") {
		t.Fatalf("%+v", r)
	}
	for range 2 {
		if err := x.Replay(r.Failure.Path, firstWins); err == nil || err.Error() != r.Failure.Err.Error() {
			t.Errorf("the replay fails with %v, and the run with %v", err, r.Failure.Err)
		}
	}
	var diverged *explore.DivergedError
	if err := x.Replay(r.Failure.Path, rendezvous); !errors.As(err, &diverged) {
		t.Errorf("the path of another program: %v", err)
	}
}

func TestExploreReportsMessagesNeverReceived(t *testing.T) {
	x := fewBuffers(explore.Options{Strategy: explore.Exhaustive, MaxRuns: 1})
	r := must.Get(x.Run(t.Context(), func(w *mpi.World) error {
		if w.Rank() == 0 {
			_, err := w.Isend([]byte{1}, 1, 0)
			return err
		}
		return nil
	}))(t)
	if r.Failure == nil || !strings.Contains(r.Failure.Err.Error(), "never received (rank 1: 1)") {
		t.Errorf("%+v", r.Failure)
	}
}

func TestExploreReportsFindings(t *testing.T) {
	x := fewBuffers(explore.Options{Strategy: explore.Exhaustive, MaxRuns: 1})
	x.Misuse = true
	r := must.Get(x.Run(t.Context(), func(w *mpi.World) error {
		_, err := w.Recv(make([]byte, 1), 1-w.Rank(), 0) // both ranks wait
		return err
	}))(t)
	if r.Failure == nil || len(r.Failure.Findings) == 0 || len(r.Failure.Findings[0].Places) < 2 {
		t.Fatalf("%+v", r.Failure)
	}
	if p := r.Failure.Findings[0].Places[0]; !strings.HasSuffix(p.File, "explore_test.go") {
		t.Errorf("the place is %+v", p)
	}
}

// BenchmarkExplore measures runs of rendezvous with reordered events.
func BenchmarkExplore(b *testing.B) {
	x := fewBuffers(explore.Options{Strategy: explore.PCT, Seed: 1, MaxRuns: b.N, Parallel: 1})
	r := must.Get(x.Run(b.Context(), rendezvous))(b)
	b.ReportMetric(float64(r.Runs)/b.Elapsed().Seconds(), "runs/s")
	b.ReportMetric(float64(r.Outcomes), "outcomes")
	b.ReportMetric(float64(r.Deepest), "choices")
}
