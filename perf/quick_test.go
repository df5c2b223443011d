package perf

import (
	"context"
	"encoding/json"
	"errors"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/fabrictest/fabrictest/internal/must"
	"github.com/fabrictest/fabrictest/verbs"
)

// fakeBench is a bench with known values. Each sample is slower than the one before by drift, and
// every second baseline is larger by shake.
type fakeBench struct {
	drift     float64 // relative slowdown per sample
	shake     float64
	calls     int
	baselines int
	order     []string
	fail      string
}

func (r *fakeBench) drifted(v float64, higherIsBetter bool) float64 {
	slow := math.Pow(1+r.drift, float64(r.calls))
	r.calls++
	if higherIsBetter {
		return v / slow
	}
	return v * slow
}

func (r *fakeBench) baseline(name string, v float64, higher bool) (float64, error) {
	r.order = append(r.order, name)
	if r.baselines++; r.baselines%2 == 0 {
		v *= 1 + r.shake
	}
	return r.drifted(v, higher), nil
}

func (r *fakeBench) RawStream(_ context.Context, _ int, work bool, _ time.Duration) (float64, error) {
	if work {
		return r.baseline("raw+", 30, true)
	}
	return r.baseline("raw", 50, true)
}

func (r *fakeBench) RawPingPong(_ context.Context, _ int, blocking bool, _ int) (float64, error) {
	if blocking {
		return r.baseline("raw block", 8, false)
	}
	return r.baseline("raw spin", 2, false)
}

func (r *fakeBench) Run(_ context.Context, p Program, offloaded bool) (float64, error) {
	r.order = append(r.order, p.String())
	if p.String() == r.fail {
		return 0, errors.New("failed")
	}
	switch {
	case p.Latency != nil && p.Latency.Events:
		return r.drifted(12, false), nil
	case p.Latency != nil:
		return r.drifted(3, false), nil
	case p.Rate != nil:
		return r.drifted(1e6*(1-0.1*math.Log2(float64(p.Rate.QPs))/6), true), nil
	case offloaded:
		return r.drifted(40, true), nil
	case p.Stream.Op == verbs.OpRDMARead:
		return r.drifted(10, true), nil
	}
	return r.drifted(21, true), nil
}

func (r *fakeBench) IdleMB(context.Context) (float64, error) { return 12, nil }

func near(a, b float64) bool { return math.Abs(a/b-1) < 0.01 }

func TestRatiosCancelDrift(t *testing.T) {
	for _, drift := range []float64{0, 0.02} {
		b := &fakeBench{drift: drift}
		q := must.Get(RunQuick(t.Context(), b, Options{}))(t)
		for name, c := range map[string][2]float64{
			"write":           {q.Ratios.WriteToLimit, 0.7},
			"write offloaded": {q.Ratios.WriteToLimitOffloaded, 0.8},
			"spinning":        {q.Ratios.LatencyToRawSpinning, 1.5},
			"blocking":        {q.Ratios.LatencyToRawBlocking, 1.5},
			"worse":           {q.Ratios.LatencyToRaw, 1.5},
			"memory":          {q.Memory.IdleMB, 12},
		} {
			if !near(c[0], c[1]) {
				t.Errorf("drift %v: %s is %v, want %v", drift, name, c[0], c[1])
			}
		}
		if drift == 0 {
			if !near(q.Rates.Send64PerS, 1e6) || !near(q.Rates.QPsFlatness, 0.9) || len(q.Rates.ByQPs) != 7 {
				t.Errorf("rates %+v", q.Rates)
			}
			if q.Noise != 0 || q.Verdict() != Holds {
				t.Errorf("noise %v, verdict %v", q.Noise, q.Verdict())
			}
		}
		if len(q.Streams) != 3*9 {
			t.Errorf("%d streams", len(q.Streams))
		}
	}
}

func TestPairedMeasurementsAlternate(t *testing.T) {
	b := &fakeBench{}
	must.Get(RunQuick(t.Context(), b, Options{Rounds: 2}))(t)
	got := strings.Join(b.order[:12], ", ")
	const round = "raw+, write 1 MiB, raw+"
	const offloaded = "raw, write 1 MiB, raw"
	if want := strings.Join([]string{round, round, offloaded, offloaded}, ", "); got != want {
		t.Errorf("order %s, want %s", got, want)
	}
}

func TestNoiseMakesVerdictsUnclear(t *testing.T) {
	b := &fakeBench{shake: 0.3}
	q := must.Get(RunQuick(t.Context(), b, Options{}))(t)
	if !near(q.Noises.Write, 0.3) || q.Noise < 0.29 {
		t.Errorf("noise %+v", q.Noises)
	}
	var text strings.Builder
	must.Do(t, q.WriteTable(&text))
	if !strings.Contains(text.String(), "too noisy") {
		t.Errorf("no \"too noisy\" in\n%s", &text)
	}
}

func TestVerdicts(t *testing.T) {
	for _, c := range []struct {
		got, want, noise float64
		most             bool
		verdict          string
	}{
		{0.7, 0.6, 0.05, false, Holds},
		{0.6, 0.6, 0.1, false, Holds},
		{0.58, 0.6, 0.05, false, Unclear},
		{0.5, 0.6, 0.05, false, Missed},
		{0.61, 0.6, 0.2, false, Unclear},
		{0.9, 0.6, 0.2, false, Holds},
		{0.2, 0.6, 0.2, false, Unclear},
		{1.5, 1.6, 0.05, true, Holds},
		{1.65, 1.6, 0.05, true, Unclear},
		{1.8, 1.6, 0.05, true, Missed},
		{1.5, 1.6, 0.3, true, Unclear},
		{1.1, 1.6, 0.3, true, Holds},
	} {
		got := Target{Got: c.got, Want: c.want, Noise: c.noise, IsMax: c.most}.WithVerdict().Verdict
		if got != c.verdict {
			t.Errorf("%+v: %s", c, got)
		}
	}
}

func TestResultJSON(t *testing.T) {
	q := must.Get(RunQuick(t.Context(), &fakeBench{}, Options{Rounds: 2}))(t)
	b := must.Get(json.Marshal(q))(t)
	var m map[string]any
	must.Do(t, json.Unmarshal(b, &m))
	for _, path := range []string{
		"ratios.write_to_limit", "ratios.latency_to_raw", "ratios.latency_to_raw_spinning", "ratios.latency_to_raw_blocking",
		"rates.send64_per_s", "rates.qps_flatness", "memory.idle_mb", "noise", "samples", "targets", "streams",
	} {
		at := any(m)
		for key := range strings.SplitSeq(path, ".") {
			in, _ := at.(map[string]any)
			at = in[key]
		}
		if at == nil {
			t.Errorf("the result has no %s", path)
		}
	}
	// 3 series for each of 4 comparisons; a rate for each number of QPs and one repeated; sizes.
	if n := len(q.Samples); n != 3*4+8+27 {
		t.Errorf("%d series of samples", n)
	}
	for _, s := range q.Samples {
		if len(s.Values) < 2 || s.Name == "" || s.Unit == "" {
			t.Errorf("series %+v", s)
		}
	}
}

func TestErrorNamesMeasurement(t *testing.T) {
	_, err := RunQuick(t.Context(), &fakeBench{fail: "read 4 KiB"}, Options{Rounds: 1})
	if err == nil || !strings.Contains(err.Error(), "read 4 KiB: failed") {
		t.Errorf("got %v", err)
	}
}

func TestProgressEndsAtOne(t *testing.T) {
	last, steps := -1.0, 0
	_, err := RunQuick(t.Context(), &fakeBench{}, Options{Rounds: 3, Progress: func(_ string, done float64) {
		if done < last || done > 1 {
			t.Errorf("progress from %v to %v", last, done)
		}
		last = done
		steps++
	}})
	if err != nil || last != 1 || steps < 20 {
		t.Errorf("%v after %d steps, %v", last, steps, err)
	}
}

func TestMedianAndSpread(t *testing.T) {
	if m := Median([]float64{3, 1, 2}); m != 2 {
		t.Errorf("median %v", m)
	}
	if m := Median([]float64{4, 1, 2, 3}); m != 2.5 {
		t.Errorf("median %v", m)
	}
	if !math.IsNaN(Median(nil)) {
		t.Error("the median of no values is not NaN")
	}
	if s := Spread([]float64{8, 9, 10, 11, 12}); !near(s, 0.2) {
		t.Errorf("spread %v", s)
	}
}
