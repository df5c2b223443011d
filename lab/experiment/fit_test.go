package experiment

import (
	"bytes"
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/fabrictest/fabrictest/internal/must"
	"github.com/fabrictest/fabrictest/lab/nics"
	"github.com/fabrictest/fabrictest/perf/record"
)

// simulatedRun returns the series of a platform, one sample each.
func simulatedRun(t *testing.T, p *nics.Platform, names ...string) *record.Run {
	t.Helper()
	run := &record.Run{}
	for _, name := range names {
		s := record.Series{Name: name, Unit: record.Bytes}
		if strings.Contains(name, "lat") {
			s.Unit = record.Seconds
		}
		run.Add(name, s.Unit, must.Get(Predict(p, &s))(t))
	}
	return run
}

// series returns the names of a benchmark at some sizes.
func series(benchmark string, sizes ...int) (names []string) {
	for _, n := range sizes {
		names = append(names, fmt.Sprintf("%s/bytes=%d", benchmark, n))
	}
	return names
}

// Parameters that were changed by 30 to 60 % are found again within 5 %.
func TestFitRecoversParameters(t *testing.T) {
	truth := must.Get(nics.LoadPlatform("connectx7-ndr"))(t)
	run := simulatedRun(t, truth, append(series("send_lat", 8, 1024), series("write_bw", 32<<10)...)...)
	run.Add("read_lat/bytes=8", record.Seconds, 1e-6) // the simulation does not have it
	wrong := map[string]float64{"nic.send_latency_ns": 234 * 1.6, "nic.dma_read_ns": 250 * 0.6, "nic.send_ns_per_kib": 19 * 1.3}
	names := []string{"nic.send_latency_ns", "nic.dma_read_ns", "nic.send_ns_per_kib"}
	fit := must.Get(FitPlatform(must.Get(truth.With(wrong, "assumed: a test"))(t), names, run))(t)
	var text bytes.Buffer
	must.Do(t, fit.WriteText(&text))
	t.Log(text.String())
	for _, p := range fit.Parameters {
		want, _ := truth.Value(p.Name)
		if math.Abs(p.After/want-1) > 0.05 || !p.Determined {
			t.Errorf("%s: %.4g, want %.4g, determined: %v", p.Name, p.After, want, p.Determined)
		}
	}
	if len(fit.NotPredicted) != 1 || len(fit.Free) != 0 || fit.RMS > leastNoise {
		t.Errorf("not predicted: %v; not determined: %v; residuals: %.3f", fit.NotPredicted, fit.Free, fit.RMS)
	}
}

// Long messages determine the bandwidth, but no latency, and the two latencies of a path are not
// distinguished even by short ones.
func TestFitNamesParametersThatDataDoNotDetermine(t *testing.T) {
	truth := must.Get(nics.LoadPlatform("connectx7-ndr"))(t)
	latencies, bandwidth := []string{"nic.send_latency_ns", "nic.receive_latency_ns"}, "nic.send_ns_per_kib"
	long := simulatedRun(t, truth, series("write_bw", 64<<10)...)
	fit := must.Get(FitPlatform(truth, append(latencies, bandwidth), long))(t)
	for _, p := range fit.Parameters {
		if p.Determined != (p.Name == bandwidth) {
			t.Errorf("from bandwidths: %s determined: %v, with an error of %.2f", p.Name, p.Determined, p.Error)
		}
	}
	short := simulatedRun(t, truth, series("send_lat", 8, 1024)...)
	fit = must.Get(FitPlatform(truth, latencies, short))(t)
	if fit.Parameters[0].Determined || len(fit.Free) != 1 || !strings.HasPrefix(fit.Free[0], "one of "+strings.Join(latencies, ", ")) {
		t.Errorf("from latencies: %+v, %v", fit.Parameters, fit.Free)
	}
}
