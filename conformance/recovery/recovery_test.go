package recovery

import (
	"encoding/json"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/fabrictest/fabrictest/conformance"
	"github.com/fabrictest/fabrictest/lab/bench"
	"github.com/fabrictest/fabrictest/lab/nics"
)

func TestMeasurements(t *testing.T) {
	odd, even := measured("odd", Packets, []float64{9, 1, 5}), measured("even", Microseconds, []float64{4, 1, 2, 100})
	if odd.Value != 5 || even.Value != 3 || even.Least() != 1 || even.Most() != 100 || !slices.Equal(odd.Samples, []float64{9, 1, 5}) {
		t.Errorf("%+v, %+v", odd, even)
	}
	var text, data strings.Builder
	all := []Measurement{odd, even}
	if err := WriteText(&text, all); err != nil || strings.Count(text.String(), "\n") != 3 {
		t.Error(err, text.String())
	}
	var back []Measurement
	if err := WriteJSON(&data, all); err != nil || json.Unmarshal([]byte(data.String()), &back) != nil || len(back) != 2 || back[1].Value != 3 {
		t.Error(err, data.String())
	}
}

// What a simulated soft-RoCE measures, where time is exact.
func TestSoundDeviceInVirtualTime(t *testing.T) {
	p, err := nics.Find("softroce")
	if err != nil {
		t.Fatal(err)
	}
	var all []Measurement
	err = bench.InSimulation(p, bench.SimOptions{}).Try(t.Context(), conformance.Job{Seed: 1}, func(b *conformance.Bench) (err error) {
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
		if got := find(all, name).Value; math.Abs(got-want) > want/100 {
			t.Errorf("%s is %g, want %g", name, got, want)
		}
	}
	positions := make(map[string]int)
	for i := range all {
		if all[i].About() == "" {
			t.Errorf("nobody knows what %s is", all[i].Name)
		}
		if all[i].Position > 0 {
			kind, _, _ := strings.Cut(all[i].Name, "/")
			if positions[kind]++; all[i].Position != positions[kind] {
				t.Errorf("%s is of position %d", all[i].Name, all[i].Position)
			}
		}
	}
	if positions["loss"] != window || positions["read"] != window {
		t.Errorf("measured at %v of %d positions", positions, window)
	}
	// A gap is seen by what comes behind it, but for the last packet.
	timer := find(all, "loss/timer").Value
	for i := range all {
		if m := &all[i]; strings.HasPrefix(m.Name, "loss/at-") && (m.Value < timer) != (m.Position < window) {
			t.Errorf("%s is %g us, and the timer %g", m.Name, m.Value, timer)
		}
	}
	if m := all[len(all)-1]; m.Name != "rate/comes-back" {
		t.Errorf("the rate does not come back: %+v", m)
	}
}
