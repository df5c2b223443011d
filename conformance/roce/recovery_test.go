package roce

import (
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/fabrictest/fabrictest/conformance"
	"github.com/fabrictest/fabrictest/lab/bench"
	"github.com/fabrictest/fabrictest/lab/nics"
)

func TestMeasurementMedian(t *testing.T) {
	odd, even := newMeasurement("odd", "", Packets, 9, 1, 5), newMeasurement("even", "", Microseconds, 4, 1, 2, 100)
	if odd.Value != 5 || even.Value != 3 || even.Min() != 1 || even.Max() != 100 || !slices.Equal(odd.Samples, []float64{9, 1, 5}) {
		t.Errorf("%+v, %+v", odd, even)
	}
}

// In virtual time the measurements of softroce are exact.
func TestMeasureSoftRoCEInVirtualTime(t *testing.T) {
	p, err := nics.Find("softroce")
	if err != nil {
		t.Fatal(err)
	}
	var all []Measurement
	err = bench.InSimulation(p, bench.SimOptions{}).WithBench(t.Context(), conformance.BenchSpec{Seed: 1}, func(b *conformance.Bench) (err error) {
		all, err = Measure(b)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]float64{
		"ack/turnaround": 2, "nak/generation": 2, "nak/for-a-gap": 1, "nak/reaction/middle": 2, "loss/first/retransmission": 2,
		"loss/last/timeout": 1, "timeout/code-10": 1, "cnp/for-a-mark": 1, "cnp/two-qps-of-a-peer": 2, "cnp/qp-of-another-peer": 1,
	} {
		if got := byName(all, name).Value; math.Abs(got-want) > want/100 {
			t.Errorf("%s is %g, want %g", name, got, want)
		}
	}
	positions := make(map[string]int)
	for i := range all {
		if all[i].About == "" {
			t.Errorf("%s has no description", all[i].Name)
		}
		if all[i].Position > 0 {
			kind, _, _ := strings.Cut(all[i].Name, "/")
			if positions[kind]++; all[i].Position != positions[kind] {
				t.Errorf("%s has position %d", all[i].Name, all[i].Position)
			}
		}
	}
	if positions["loss"] != window || positions["read"] != window {
		t.Errorf("measured at %v of %d positions", positions, window)
	}
	// Only the loss of the last packet leaves no gap and waits for the timer.
	timer := byName(all, "loss/timer").Value
	for i := range all {
		if m := &all[i]; strings.HasPrefix(m.Name, "loss/at-") && (m.Value < timer) != (m.Position < window) {
			t.Errorf("%s is %g us, and the timer %g", m.Name, m.Value, timer)
		}
	}
	if m := all[len(all)-1]; m.Name != "rate/comes-back" {
		t.Errorf("the rate does not recover: %+v", m)
	}
}
