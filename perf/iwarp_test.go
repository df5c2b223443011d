package perf

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/fabrictest/fabrictest/internal/must"
)

// targets returns the targets of a result by name.
func targets(q *Result) map[string]Target {
	m := map[string]Target{}
	for _, t := range q.Targets {
		m[t.Name] = t
	}
	return m
}

func TestIWARPComparesEverySize(t *testing.T) {
	q := must.Get(RunIWARP(t.Context(), &fakeBench{drift: 0.01}, nil, Options{}))(t)
	// 9 sizes with and without CRC, and 4 kinds of half round trips.
	if len(q.Comparisons) != 2*9+4 {
		t.Errorf("%d comparisons", len(q.Comparisons))
	}
	for _, c := range q.Comparisons {
		want := 0.7
		switch {
		case strings.Contains(c.Name, "offloaded"):
			want = 0.8
		case c.Unit == "µs":
			want = 1.5
		}
		if !near(c.Ratio, want) {
			t.Errorf("%s to %s is %v, want %v", c.Name, c.To, c.Ratio, want)
		}
		if !strings.HasPrefix(c.To, "plain TCP") {
			t.Errorf("%s is compared with %s", c.Name, c.To)
		}
	}
	if !near(q.Ratios.WriteToLimit, 0.7) || !near(q.Ratios.WriteToLimitOffloaded, 0.8) || !near(q.Ratios.LatencyToRaw, 1.5) {
		t.Errorf("ratios %+v", q.Ratios)
	}
	if len(q.Streams) != 27 || q.Ratios.Datagrams != nil {
		t.Errorf("%d streams, datagrams %+v", len(q.Streams), q.Ratios.Datagrams)
	}
	if len(q.Targets) != 6 || q.Verdict() != Holds {
		t.Errorf("targets %+v", q.Targets)
	}
}

// slowBench is a fakeBench whose devices are slower by a factor.
type slowBench struct {
	*fakeBench
	by float64
}

func (s slowBench) Run(ctx context.Context, p Program, offloaded bool) (float64, error) {
	v, err := s.fakeBench.Run(ctx, p, offloaded)
	if p.Latency != nil {
		return v * s.by, err
	}
	return v / s.by, err
}

func TestDatagramsAreComparedWithConnections(t *testing.T) {
	for _, c := range []struct {
		by        float64 // factor by which connections are slower than datagrams
		latency   string
		bandwidth string
	}{{1.3, Holds, Holds}, {1.19, Holds, Missed}, {1.1, Missed, Missed}} {
		datagrams := &fakeBench{}
		q := must.Get(RunIWARP(t.Context(), slowBench{&fakeBench{}, c.by}, datagrams, Options{Rounds: 2}))(t)
		d := q.Ratios.Datagrams
		if d == nil || !near(d.LatencySpinning, 1/c.by) || !near(d.LatencyBlocking, 1/c.by) || !near(d.Bandwidth, c.by) || !near(d.BandwidthBursts, c.by) {
			t.Errorf("by %v: %+v", c.by, d)
		}
		got := targets(q)
		if v := got["64 B half round trip, datagrams / connections"].Verdict; v != c.latency {
			t.Errorf("by %v: latency %s", c.by, v)
		}
		if v := got["2 KiB send, singly, datagrams / connections"].Verdict; v != c.bandwidth {
			t.Errorf("by %v: bandwidth %s", c.by, v)
		}
		want := []string{"half round trip 64 B, spinning", "half round trip 64 B, blocking", "send 2 KiB, singly", "send 2 KiB"}
		if programs := slices.Compact(datagrams.order); !slices.Equal(programs, want) {
			t.Errorf("programs of the datagram bench: %q", programs)
		}
	}
}

func TestIWARPResultHasFieldsOfQuick(t *testing.T) {
	last := 0.0
	q, err := RunIWARP(t.Context(), &fakeBench{}, &fakeBench{}, Options{Rounds: 2, Progress: func(_ string, done float64) {
		if done < last || done > 1 {
			t.Errorf("progress from %v to %v", last, done)
		}
		last = done
	}})
	if err != nil || last != 1 {
		t.Fatalf("%v, done %v", err, last)
	}
	quick := must.Get(RunQuick(t.Context(), &fakeBench{}, Options{Rounds: 2}))(t)
	theirs, ours := fields(t, quick), fields(t, q)
	for _, f := range theirs {
		if !slices.Contains(ours, f) {
			t.Errorf("no field %s", f)
		}
	}
	if slices.Contains(theirs, "comparisons") {
		t.Error("RunQuick has a field of RunIWARP")
	}
	var text strings.Builder
	must.Do(t, q.WriteTable(&text))
	for _, want := range []string{"compared with plain TCP, copy and CRC", "write 4 MiB, CRC offloaded", "datagrams", "queue pairs", "A/A noise"} {
		if !strings.Contains(text.String(), want) {
			t.Errorf("no %q in\n%s", want, &text)
		}
	}
}

// fields returns the keys of the first two levels of a result in JSON.
func fields(t *testing.T, q *Result) (keys []string) {
	t.Helper()
	b := must.Get(json.Marshal(q))(t)
	var m map[string]any
	must.Do(t, json.Unmarshal(b, &m))
	for k, v := range m {
		keys = append(keys, k)
		if in, ok := v.(map[string]any); ok {
			for key := range in {
				keys = append(keys, k+"."+key)
			}
		}
	}
	return keys
}

func TestIWARPErrorNamesMeasurement(t *testing.T) {
	_, err := RunIWARP(t.Context(), &fakeBench{}, &fakeBench{fail: "send 2 KiB"}, Options{Rounds: 1})
	if err == nil || !strings.Contains(err.Error(), "iWARP run: send 2 KiB, datagrams: failed") {
		t.Errorf("got %v", err)
	}
}
