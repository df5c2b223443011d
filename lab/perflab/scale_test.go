package perflab

import (
	"context"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fabrictest/fabrictest/internal/cli"
	"github.com/fabrictest/fabrictest/internal/must"
	"github.com/fabrictest/fabrictest/perf/record"
)

func TestFitPowerLaw(t *testing.T) {
	xs := []float64{1, 10, 100, 1000}
	exact := FitPowerLaw(xs, []float64{3, 3 * math.Pow(10, 1.5), 3000, 3 * math.Pow(10, 4.5)})
	if math.Abs(exact.Exponent-1.5) > 1e-9 || math.Abs(exact.Factor-3) > 1e-9 || exact.Residual > 1e-9 || math.Abs(exact.Last-1.5) > 1e-9 {
		t.Errorf("of a power law: %+v", exact)
	}
	// A constant beside a line: the exponent is less than 1, and less so at the end.
	offset := FitPowerLaw(xs, []float64{11, 20, 110, 1010})
	if offset.Exponent > 0.8 || offset.Last < 0.95 || offset.Residual < 0.1 {
		t.Errorf("of a line with a constant: %+v", offset)
	}
	for _, few := range []Fit{FitPowerLaw(nil, nil), FitPowerLaw([]float64{5}, []float64{1}), FitPowerLaw([]float64{5, 5}, []float64{1, 2}), FitPowerLaw([]float64{5, 6}, []float64{0, 2})} {
		if few != (Fit{}) || few.String() != "too few points" {
			t.Errorf("of too few points: %+v", few)
		}
	}
}

// quadratic is a measurement whose CPU time is a microsecond by the size squared, and whose memory is
// a kilobyte by the size.
func quadratic(_ context.Context, j scaleJob) (ScalePoint, error) {
	p := ScalePoint{Size: j.Size, CPU: time.Duration(j.Size*j.Size) * time.Microsecond, Memory: uint64(j.Size) << 10, simulated: simulated{Packets: 7}}
	if p.CPU > j.Time {
		p.Over = "took more"
	}
	return p, nil
}

func TestPointsThatDoNotFitAreLeftOut(t *testing.T) {
	for _, c := range []struct {
		time   time.Duration
		memory uint64
		points int
		why    string // in the text of a point that is left out
	}{
		{time.Hour, 1 << 30, 5, ""},
		{5 * time.Second, 1 << 30, 4, "4096 would take about"},
		{60 * time.Millisecond, 1 << 30, 2, "256 took more"},
		{time.Hour, 300 << 10, 3, "1024 and more: 1024 would take about 1.0 MiB, and --memory is 300.0 KiB"},
	} {
		p := ScalePlan{Only: []string{"ranks"}, Time: c.time, Memory: c.memory, measure: quadratic}
		r := must.Get(p.Run(t.Context()))(t)
		got := r.Curves[0]
		if len(got.Points) != c.points || (got.LeftOut == "") != (c.why == "") || !strings.Contains(got.LeftOut, c.why) {
			t.Errorf("%v, %d bytes: %d points, left out: %q, want %d and %q", c.time, c.memory, len(got.Points), got.LeftOut, c.points, c.why)
		}
		if got.LeftOut != r.Run.Options["left_out_ranks"] {
			t.Errorf("the recorded run says %q", r.Run.Options)
		}
		if c.points > 2 && (math.Abs(got.CPUFit.Exponent-2) > 1e-3 || math.Abs(got.MemoryFit.Exponent-1) > 1e-3) {
			t.Errorf("exponents %v and %v", got.CPUFit, got.MemoryFit)
		}
	}
}

// A recorded run has each sample of each point, and can be read again.
func TestResultIsARecordedRun(t *testing.T) {
	p := ScalePlan{Time: 24 * time.Hour, Memory: 1 << 40, Repeat: 3, measure: func(_ context.Context, j scaleJob) (ScalePoint, error) {
		return ScalePoint{Size: j.Size, CPU: time.Second, Memory: 1 << 20, simulated: simulated{Packets: 100}}, nil
	}}
	r := must.Get(p.Run(t.Context()))(t)
	var text strings.Builder
	must.Do(t, r.Run.Write(&text))
	again := must.Get(record.Read("run", strings.NewReader(text.String())))(t)
	want := 0
	for _, c := range scaleCurves() {
		want += 3 * len(c.Sizes)
	}
	if len(again.Series) != want || len(again.Series[0].Samples) != 3 || again.Options["exponent_hosts_cpu"] != "n^0.00, residual 0 %, at the end n^0.00" {
		t.Errorf("%d series, want %d: %v", len(again.Series), want, again.Options)
	}
	must.Do(t, r.WriteTable(&text))
	must.Do(t, r.WritePage(&text))
	for _, want := range []string{"CPU time: n^0.00", "<svg", "100000"} {
		if !strings.Contains(text.String(), want) {
			t.Errorf("the table and the page have no %q", want)
		}
	}
}

func TestPlanErrorsNameTheOption(t *testing.T) {
	for _, c := range []struct {
		plan ScalePlan
		want string
	}{
		{ScalePlan{Only: []string{"rank"}, Time: 1, Memory: 1}, "--only rank"},
		{ScalePlan{Memory: 1}, "--time"},
		{ScalePlan{Time: 1}, "--memory"},
		{ScalePlan{Time: 1, Memory: 1, Repeat: 1000}, "--repeat 1000"},
	} {
		_, err := c.plan.Run(t.Context())
		if _, usage := err.(*cli.Error); !usage || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v, want %s", err, c.want)
		}
	}
}

// Each simulation does what its curve says, and the same again.
func TestSimulations(t *testing.T) {
	for name, c := range map[string]struct {
		size    int
		packets func(uint64) bool
	}{
		"ranks":    {4, func(n uint64) bool { return n >= 4*2*8 }},
		"qps":      {10, func(n uint64) bool { return n >= 10*4 }},
		"hosts":    {80, func(n uint64) bool { return n >= 40*16 }},
		"bytes":    {64 << 10, func(n uint64) bool { return n >= 16*16 }},
		"messages": {1000, func(n uint64) bool { return n >= 1000 }},
		"packets":  {1000, func(n uint64) bool { return n == 1008 }},
	} {
		i := slices.Index(ScaleCurveNames(), name)
		first := must.Get(scaleCurves()[i].run(c.size, nil))(t)
		if !c.packets(first.Packets) || first.Virtual == 0 {
			t.Errorf("%s: %+v", name, first)
		}
		if again := must.Get(scaleCurves()[i].run(c.size, nil))(t); again != first {
			t.Errorf("%s: %+v, and then %+v", name, first, again)
		}
	}
}

// A process measures a point, and ends it at a limit.
func TestPointsAreMeasuredInProcesses(t *testing.T) {
	p, err := measureInProcess(t.Context(), scaleJob{Curve: "qps", Size: 1000, Time: time.Hour, Memory: 1 << 40})
	if _, usageErr := usage(); usageErr != nil {
		t.Skip(usageErr)
	}
	if must.Do(t, err); p.CPU <= 0 || p.Memory < 1<<20 || p.Packets < 4000 || p.Over != "" {
		t.Errorf("%+v", p)
	}
	p = must.Get(measureInProcess(t.Context(), scaleJob{Curve: "packets", Size: 1 << 40, Time: time.Millisecond, Memory: 1 << 40}))(t)
	if !strings.Contains(p.Over, "--time") {
		t.Errorf("a point without time: %+v", p)
	}
	p = must.Get(measureInProcess(t.Context(), scaleJob{Curve: "qps", Size: 30_000, Time: time.Hour, Memory: 8 << 20}))(t)
	if !strings.Contains(p.Over, "--memory") {
		t.Errorf("a point without memory: %+v", p)
	}
	if _, err := measureInProcess(t.Context(), scaleJob{Curve: "none"}); err == nil || !strings.Contains(err.Error(), `no curve "none"`) {
		t.Errorf("an unknown curve: %v", err)
	}
}
