package record

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"
)

// historyOf returns a run for each value of a series, in reverse order of time.
func historyOf(values []float64) (runs []*Run) {
	for i := len(values) - 1; i >= 0; i-- {
		r := &Run{Started: time.Unix(int64(i)*86400, 0)}
		for _, f := range []float64{0.99, 1, 1.01} {
			r.Add("lat/bytes=8", Seconds, values[i]*f)
		}
		runs = append(runs, r)
	}
	return runs
}

// walk returns n values that vary by a share, with the factor from the index on.
func walk(r *rand.Rand, n int, vary float64, from int, factor float64) []float64 {
	values := make([]float64, n)
	for i := range values {
		values[i] = 1e-6 * (1 + vary*r.NormFloat64())
		if i >= from {
			values[i] *= factor
		}
	}
	return values
}

func TestHistoryFindsChange(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 6))
	found := 0
	for range 100 {
		ordered, changes := History(historyOf(walk(r, 40, 0.02, 23, 1.1)), 0.02)
		if !ordered[0].Started.Before(ordered[1].Started) {
			t.Fatal("runs are not in the order of time")
		}
		if len(changes) == 1 && changes[0].Run >= 22 && changes[0].Run <= 24 && !changes[0].Better {
			found++
		}
	}
	if found < 95 {
		t.Errorf("a change of 10 %% is found in %d of 100 histories", found)
	}
}

func TestSteadyHistoryRaisesNoAlarm(t *testing.T) {
	r := rand.New(rand.NewPCG(7, 8))
	alarms := 0
	for range 200 {
		values := walk(r, 40, 0.03, 99, 1)
		values[r.IntN(len(values))] *= 1.5 // an outlier is no change
		if _, changes := History(historyOf(values), 0.02); len(changes) > 0 {
			alarms++
		}
	}
	if alarms > 4 {
		t.Errorf("%d of 200 steady histories raise an alarm", alarms)
	}
	t.Logf("%d of 200 steady histories raise an alarm", alarms)
}

func TestHistoryIsDeterministic(t *testing.T) {
	r := rand.New(rand.NewPCG(9, 10))
	runs := historyOf(walk(r, 60, 0.02, 30, 0.9))
	_, a := History(runs, 0.02)
	_, b := History(runs, 0.02)
	if len(a) == 0 || fmt.Sprint(a) != fmt.Sprint(b) || !a[0].Better {
		t.Errorf("%v then %v", a, b)
	}
}

func TestShortHistoryHasNoChange(t *testing.T) {
	for n := range 2 * minSegment {
		values := make([]float64, n)
		for i := range values {
			values[i] = float64(1 + i*i)
		}
		if _, changes := History(historyOf(values), 0); len(changes) > 0 {
			t.Errorf("%d runs: %v", n, changes)
		}
	}
}
