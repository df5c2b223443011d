package roce_test

import (
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/fabrictest/fabrictest/conformance"
	"github.com/fabrictest/fabrictest/conformance/roce"
	"github.com/fabrictest/fabrictest/lab/bench"
	"github.com/fabrictest/fabrictest/lab/nics"
)

// window is the number of packets in which a measurement loses one.
const window = 8

// byName returns the measurement with this name, or an empty one.
func byName(all []roce.Measurement, name string) (m roce.Measurement) {
	if i := slices.IndexFunc(all, func(m roce.Measurement) bool { return m.Name == name }); i >= 0 {
		m = all[i]
	}
	return m
}

// In virtual time the measurements of softroce are exact.
func TestMeasureSoftRoCEInVirtualTime(t *testing.T) {
	p, err := nics.Find("softroce")
	if err != nil {
		t.Fatal(err)
	}
	var all []roce.Measurement
	err = bench.InSimulation(p, bench.SimOptions{}).WithBench(t.Context(), conformance.BenchSpec{Seed: 1}, func(b *conformance.Bench) (err error) {
		all, err = roce.Measure(b)
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
		checkMedian(t, &all[i])
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

// checkMedian checks the value of a measurement: the median of its samples.
func checkMedian(t *testing.T, m *roce.Measurement) {
	t.Helper()
	below, above := 0, 0
	for _, sample := range m.Samples {
		if sample < m.Value {
			below++
		}
		if sample > m.Value {
			above++
		}
	}
	if n := len(m.Samples); n == 0 || below > n/2 || above > n/2 || m.Min() > m.Value || m.Max() < m.Value {
		t.Errorf("%s is %g between %g and %g: not the median of %g", m.Name, m.Value, m.Min(), m.Max(), m.Samples)
	}
}
