package record

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/fabrictest/fabrictest/internal/must"
)

// noisyRun returns a run of 20 series with n samples each, which vary by a share of their value.
// One sample in ten is an outlier, as on a shared machine. factor multiplies the series changed.
func noisyRun(r *rand.Rand, n int, vary float64, changed int, factor float64) *Run {
	run := &Run{}
	for s := range 20 {
		for range n {
			v := (1 + float64(s)) * 1e-6 * (1 + vary*r.NormFloat64())
			if r.IntN(10) == 0 {
				v *= 1 + r.Float64()
			}
			if s == changed {
				v *= factor
			}
			run.Add(fmt.Sprintf("lat/bytes=%d", s), Seconds, v)
		}
	}
	return run
}

// Of 200 pairs of equal runs, with 20 series each, no more than 2 % may have a series that is
// called better or worse.
func TestEqualRunsRaiseNoAlarm(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	alarms := 0
	for range 200 {
		c := must.Get(Compare(noisyRun(r, 12, 0.03, -1, 1), noisyRun(r, 12, 0.03, -1, 1), Options{}))(t)
		for _, row := range c.Rows {
			if row.Verdict == Better || row.Verdict == Worse {
				alarms++
				break
			}
		}
	}
	if alarms > 4 {
		t.Errorf("%d of 200 pairs of equal runs raise an alarm", alarms)
	}
	t.Logf("%d of 200 pairs of equal runs raise an alarm", alarms)
}

func TestChangedSeriesIsFound(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	for _, c := range []struct {
		factor float64
		want   Verdict
	}{{1.15, Worse}, {0.85, Better}} {
		found := 0
		for range 50 {
			rows := must.Get(Compare(noisyRun(r, 20, 0.03, -1, 1), noisyRun(r, 20, 0.03, 7, c.factor), Options{}))(t).Rows
			if rows[7].Name != "lat/bytes=7" {
				t.Fatal(rows[7].Name)
			}
			if rows[7].Verdict == c.want {
				found++
			}
		}
		if found < 45 {
			t.Errorf("a factor of %v is %s in %d of 50 runs", c.factor, c.want, found)
		}
	}
}

func TestVerdicts(t *testing.T) {
	series := func(unit Unit, samples ...float64) *Run {
		r := &Run{}
		for _, v := range samples {
			r.Add("x", unit, v)
		}
		return r
	}
	steady := []float64{100, 100.1, 99.9, 100, 100.2, 99.8, 100, 100.1, 99.9, 100}
	times := func(f float64) (all []float64) {
		for _, v := range steady {
			all = append(all, v*f)
		}
		return all
	}
	for _, c := range []struct {
		name string
		a, b *Run
		want Verdict
	}{
		{"equal", series(Seconds, steady...), series(Seconds, times(1)...), Same},
		{"within the floor", series(Seconds, steady...), series(Seconds, times(1.01)...), Same},
		{"longer", series(Seconds, steady...), series(Seconds, times(1.1)...), Worse},
		{"shorter", series(Seconds, steady...), series(Seconds, times(0.9)...), Better},
		{"higher rate", series(Bytes, steady...), series(Bytes, times(1.1)...), Better},
		{"lower rate", series(Messages, steady...), series(Messages, times(0.9)...), Worse},
		{"one sample", series(Seconds, 100), series(Seconds, 200), Inconclusive},
		{"four samples", series(Seconds, 100, 100, 100, 100), series(Seconds, 200, 200, 200, 200), Inconclusive},
		{"scattered", series(Seconds, 50, 150, 60, 140, 100, 55, 145, 90, 110, 100), series(Seconds, 52, 160, 66, 150, 105, 50, 140, 95, 120, 101), Inconclusive},
		{"other unit", series(Seconds, steady...), func() *Run { r := series(Bytes, steady...); r.Add("x", Seconds, 100); return r }(), Inconclusive},
	} {
		rows := must.Get(Compare(c.a, c.b, Options{}))(t).Rows
		got := rows[0]
		for _, r := range rows {
			if r.Verdict != Missing {
				got = r
			}
		}
		if got.Verdict != c.want {
			t.Errorf("%s: %+v, want %s", c.name, got, c.want)
		}
		if got.Low > got.Change || got.High < got.Change {
			t.Errorf("%s: %v is outside of its interval, %v to %v", c.name, got.Change, got.Low, got.High)
		}
	}
	if _, err := Compare(series(Seconds, 1), series(Bytes, 1), Options{}); err == nil {
		t.Error("runs without a common series are compared")
	}
}

// A difference within the A/A noise of a run is no change, however significant.
func TestNoiseRaisesFloor(t *testing.T) {
	a, b := &Run{}, &Run{}
	for i := range 40 { // every other sample is 20 % longer
		v := 100 + 20*float64(i%2)
		a.Add("x", Seconds, v+float64(i)/100)
		b.Add("x", Seconds, v*1.1+float64(i)/100)
	}
	if row := must.Get(Compare(a, b, Options{}))(t).Rows[0]; row.Verdict != Inconclusive || row.Floor < 0.19 {
		t.Errorf("%+v, want inconclusive with a floor of 20 %%", row)
	}
}
