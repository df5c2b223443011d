package experiment

import (
	"math"
	"testing"

	"github.com/fabrictest/fabrictest/internal/must"
	"github.com/fabrictest/fabrictest/lab/nics"
	"github.com/fabrictest/fabrictest/lab/perflab"
	"github.com/fabrictest/fabrictest/perf"
)

// benchmarks are the benchmarks of the programs of base figures.
var benchmarks = map[string]perf.Benchmark{
	"write-latency":   {Kind: perf.Lat, Verb: "write"},
	"send-latency":    {Kind: perf.Lat, Verb: "send"},
	"write":           {Kind: perf.BW, Verb: "write"},
	"write-both-ways": {Kind: perf.BW, Verb: "write", Load: perf.Load{BothWays: true}},
	"read":            {Kind: perf.BW, Verb: "read"},
}

// The benchmarks of the command line have the figures with which platforms were calibrated.
func TestBenchmarksAgreeWithCalibration(t *testing.T) {
	for _, name := range []string{"connectx7-ndr", "pe6650-qsnet2"} {
		p := must.Get(nics.LoadPlatform(name))(t)
		compared := 0
		for i := range p.Base {
			m := p.Base[i].Measure
			if m == nil || m.Program == "" || m.QPs > 1 {
				continue
			}
			b := perflab.Benchmark{Benchmark: benchmarks[m.Program], Platform: name}
			b.Sizes = []int{m.Bytes}
			if b.Kind == perf.BW {
				b.Iterations = max(8, 4<<20/m.Bytes) // as many as it takes to be within 1 %
			}
			row := must.Get(b.Run(t.Context()))(t).Rows[0]
			got, unit := row.Value, "us"
			if row.Transfer != nil {
				got, unit = row.Transfer.PerS()*float64(m.Bytes)*8/1e9, "Gb/s"
			}
			if unit != p.Base[i].Unit {
				got *= scales[[2]string{unit, p.Base[i].Unit}]
			}
			want := must.Get(MeasureBase(p, &p.Base[i]))(t)
			if compared++; math.Abs(got/want-1) > 0.01 {
				t.Errorf("%s: %s: the benchmark measures %.5g %s, and the calibration %.5g", name, p.Base[i].Figure, got, p.Base[i].Unit, want)
			}
		}
		if compared == 0 {
			t.Errorf("%s has no figure to compare", name)
		}
	}
}
