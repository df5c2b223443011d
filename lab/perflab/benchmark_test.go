package perflab

import (
	"bytes"
	"testing"

	"github.com/fabrictest/fabrictest/internal/must"
	"github.com/fabrictest/fabrictest/perf"
	"github.com/fabrictest/fabrictest/perf/record"
)

// few messages suffice where every one takes the same time.
var few = perf.Load{Iterations: 100}

// runs are benchmarks of every verb and transport, and the series that each has.
var runs = []struct {
	Benchmark
	series string
}{
	{Benchmark{Benchmark: perf.Benchmark{Kind: perf.Lat, Verb: "write", Load: few}, Platform: "connectx7-ndr"}, "write_lat/bytes=8"},
	{Benchmark{Benchmark: perf.Benchmark{Kind: perf.Lat, Verb: "send", Load: perf.Load{Iterations: 100, Events: true, Inline: 64}}, Platform: "connectx7-ndr"}, "send_lat/bytes=8"},
	{Benchmark{Benchmark: perf.Benchmark{Kind: perf.Lat, Verb: "read", Load: few}, Transport: "xrc"}, "read_lat/bytes=8"},
	{Benchmark{Benchmark: perf.Benchmark{Kind: perf.Lat, Verb: "fetch_add", Load: few}, Provider: "softiwarp"}, "fetch_add_lat/bytes=8"},
	{Benchmark{Benchmark: perf.Benchmark{Kind: perf.Lat, Verb: "cmp_swap", Load: few}, Provider: "dgiwarp", Transport: "rd"}, "cmp_swap_lat/bytes=8"},
	{Benchmark{Benchmark: perf.Benchmark{Kind: perf.BW, Verb: "write", Sizes: []int{1 << 20}, Load: perf.Load{Iterations: 16}}, Platform: "connectx7-ndr"}, "write_bw/bytes=1048576"},
	{Benchmark{Benchmark: perf.Benchmark{Kind: perf.BW, Verb: "send", Load: perf.Load{BothWays: true, QPs: 2, Iterations: 50}}}, "send_bidirectional_bw/bytes=65536/qps=2"},
	{Benchmark{Benchmark: perf.Benchmark{Kind: perf.MsgRate, Load: perf.Load{Iterations: 500}}, Pairs: 3}, "send_rate/bytes=64"},
	{Benchmark{Benchmark: perf.Benchmark{Kind: perf.MsgRate, Load: perf.Load{Iterations: 500, Events: true}}, Transport: "uc"}, "send_rate/bytes=64"},
	{Benchmark{Benchmark: perf.Benchmark{Kind: perf.MsgRate, Load: perf.Load{Iterations: 500}}, Transport: "ud"}, "send_rate/bytes=64"},
	{Benchmark{Benchmark: perf.Benchmark{Kind: perf.MsgRate, Load: perf.Load{Iterations: 500}}, Provider: "dgiwarp"}, "send_rate/bytes=64"},
	{Benchmark{Benchmark: perf.Benchmark{Kind: perf.Register, Sizes: []int{4096, 1 << 20}}, Platform: "connectx7-ndr"}, "mr_deregistration_lat/bytes=1048576"},
}

// In virtual time the same benchmark has the same result, and its text is read as the same series.
func TestBenchmarksInVirtualTime(t *testing.T) {
	for i := range runs {
		if testing.Short() && i%6 != 0 {
			continue
		}
		name := runs[i].series
		r := must.Get(runs[i].Run(t.Context()))(t)
		var text, again bytes.Buffer
		must.Do(t, r.WriteTable(&text))
		must.Do(t, must.Get(runs[i].Run(t.Context()))(t).WriteTable(&again))
		if text.String() != again.String() {
			t.Errorf("%s: two runs differ:\n%s%s", name, &text, &again)
		}
		read := must.Get(record.Read(name, &text))(t)
		for _, s := range r.Run.Series {
			if got := find(read, s.Name, s.Unit); got == nil || got.Samples[0] < 0.98*s.Samples[0]-1e-8 || got.Samples[0] > 1.02*s.Samples[0]+1e-8 {
				t.Errorf("%s: the recorded series %s has %v, and the text %v", name, s.Name, s.Samples, got)
			}
		}
		if find(&r.Run, name, r.Run.Series[len(r.Run.Series)-1].Unit) == nil {
			t.Errorf("no series %s in %v", name, r.Run.Series)
		}
	}
}

// The host writes short messages to the NIC, from the scatter/gather list and from inline data.
func TestInlineDataTakesTheTimeOfShortMessages(t *testing.T) {
	var tables [2]bytes.Buffer
	for i, inline := range []int{0, 64} {
		b := Benchmark{Benchmark: perf.Benchmark{Kind: perf.Lat, Sizes: []int{64}, Load: perf.Load{Inline: inline}}, Platform: "connectx7-ndr"}
		must.Do(t, must.Get(b.Run(t.Context()))(t).Run.WriteGo(&tables[i]))
	}
	if tables[0].String() != tables[1].String() {
		t.Errorf("without inline data\n%s\nwith it\n%s", &tables[0], &tables[1])
	}
}

func find(r *record.Run, name string, unit record.Unit) *record.Series {
	for i := range r.Series {
		if s := &r.Series[i]; s.Name == name && s.Unit == unit {
			return s
		}
	}
	return nil
}
