package ideal

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	cases "github.com/fabrictest/fabrictest/conformance/mpi"
	"github.com/fabrictest/fabrictest/mpi"
)

func TestRunReturnsErrorsAndPanicsOfRanks(t *testing.T) {
	boom := errors.New("boom")
	if err := Run(Options{Ranks: 3}, func(w cases.World) error {
		if w.Rank() == 1 {
			return boom
		}
		return w.Barrier()
	}); !errors.Is(err, boom) {
		t.Errorf("a rank that fails: %v", err)
	}
	if err := Run(Options{Ranks: 2}, func(cases.World) error { panic("a bug") }); err == nil || !strings.Contains(err.Error(), "a bug") {
		t.Errorf("a rank that panics: %v", err)
	}
	if err := Run(Options{Ranks: 4}, cases.World.Barrier); err != nil {
		t.Errorf("ranks that succeed: %v", err)
	}
}

func TestRunReturnsHungError(t *testing.T) {
	var hung *HungError
	err := Run(Options{Ranks: 2}, func(w cases.World) error {
		_, err := w.Recv(nil, 1-w.Rank(), 1)
		return err
	})
	if !errors.As(err, &hung) || len(hung.Waiting) != 2 || !strings.Contains(err.Error(), "rank 1 for a message") {
		t.Errorf("ranks that wait for each other: %v", err)
	}
	err = Run(Options{Ranks: 1, Steps: 1000}, func(w cases.World) error {
		for {
			if _, _, err := w.Iprobe(0, 1); err != nil {
				return err
			}
		}
	})
	if !errors.As(err, &hung) || hung.Steps != 1000 {
		t.Errorf("a rank that does not end: %v", err)
	}
}

// Eager and Polling change when sends complete, so that cases that depend on it fail.
func TestOptionsChangeCompletionOfSends(t *testing.T) {
	exchange := func(w cases.World) error { // safe only if standard sends are buffered
		other := 1 - w.Rank()
		if err := w.Send(make([]byte, 10), other, 1); err != nil {
			return err
		}
		_, err := w.Recv(make([]byte, 10), other, 1)
		return err
	}
	var hung *HungError
	if err := Run(Options{Ranks: 2, Eager: -1}, exchange); !errors.As(err, &hung) {
		t.Errorf("sends before receives, unbuffered: %v", err)
	}
	if err := Run(Options{Ranks: 2, Eager: 10}, exchange); err != nil {
		t.Errorf("sends before receives, buffered: %v", err)
	}
	// With Polling a rank makes no progress while it computes.
	for _, polling := range []bool{false, true} {
		var sent time.Duration
		err := Run(Options{Ranks: 2, Eager: -1, Polling: polling}, func(w cases.World) error {
			if w.Rank() == 1 {
				r, err := w.Irecv(make([]byte, 10), 0, 1)
				if err != nil {
					return err
				}
				w.Compute(time.Second)
				_, err = r.Wait()
				return err
			}
			w.Compute(time.Millisecond)
			err := w.Ssend(make([]byte, 10), 1, 1)
			sent = w.Wtime()
			return err
		})
		if err != nil || (sent > time.Second/2) != polling {
			t.Errorf("polling %v: %v, sent after %v", polling, err, sent)
		}
	}
}

func TestSeedDecidesArrivalOrder(t *testing.T) {
	order := func(seed uint64) (from []int) {
		err := Run(Options{Ranks: 4, Seed: seed, Eager: 100}, func(w cases.World) error {
			if w.Rank() > 0 {
				for range 5 {
					if err := w.Send(nil, 0, 1); err != nil {
						return err
					}
				}
				return nil
			}
			for range 15 {
				st, err := w.Recv(nil, mpi.AnySource, 1)
				if err != nil {
					return err
				}
				from = append(from, st.Source)
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		return from
	}
	if a, b := order(1), order(1); !slices.Equal(a, b) {
		t.Errorf("two runs with seed 1: %v and %v", a, b)
	}
	different := 0
	for seed := range uint64(5) {
		if !slices.Equal(order(seed), order(seed+1)) {
			different++
		}
	}
	if different == 0 {
		t.Error("all seeds give the same order")
	}
}

func TestNamedReturnsDefectOrError(t *testing.T) {
	if _, err := Named("NoSuchDefect"); err == nil {
		t.Error("Named accepts an unknown defect")
	}
	f, err := Named("SyncEarly")
	if err != nil || f != (Defects{SyncEarly: true}) {
		t.Errorf("%+v, %v", f, err)
	}
	if names := Descriptions(); len(names) < 100 || names["SyncEarly"] == "" {
		t.Errorf("%d defects", len(names))
	}
}
