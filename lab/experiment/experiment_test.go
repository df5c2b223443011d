package experiment

import (
	"cmp"
	"context"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fabrictest/fabrictest/internal/must"
	"github.com/fabrictest/fabrictest/internal/testutil"
	"github.com/fabrictest/fabrictest/lab"
	"github.com/fabrictest/fabrictest/lab/nics"
	"github.com/fabrictest/fabrictest/mpi/carrier"
	"github.com/fabrictest/fabrictest/mpi/work"
	"github.com/fabrictest/fabrictest/report"
	"github.com/fabrictest/fabrictest/scenarios"
)

// latencies is an experiment with two figures: RGET takes longer than RPUT for 16 KiB.
const latencies = `version: 1
name: latencies
title: Latencies
experiment:
  platform: r805-ib-connectx-ddr
  workload: pingpong
  ranks: 2
  vary: {bytes: [8, 16KiB]}
  variants:
    RGET: {protocol: rget}
    RPUT: {protocol: rput}
  figures:
    - row: B1
      text: Latency
      measure: {kind: value, figure: latency, of: RGET, bytes: 8}
      published: {op: "<", value: 5, unit: us, where: A paper}
    - row: B2
      text: A reduction
      measure: {kind: reduction, figure: latency, from: RGET, to: RPUT, over: largest}
      published: {op: "<", value: 100, unit: "%", where: A paper}
`

func parse(t *testing.T, text string) *scenarios.Scenario {
	t.Helper()
	return must.Get(scenarios.Parse("latencies.yaml", []byte(text)))(t)
}

func run(t *testing.T, text string) *report.Result {
	t.Helper()
	return Run(t.Context(), parse(t, text), lab.Options{})
}

func TestResultHasFiguresAndCharts(t *testing.T) {
	r := run(t, latencies)
	e := r.Experiment
	if r.Verdict != report.Passed || r.Elapsed == 0 || len(r.Checks) != 2 || r.Provider != "softroce" {
		t.Fatalf("%s, %s after %v, with %d checks and %s", r.Verdict, r.Reason, r.Elapsed, len(r.Checks), r.Provider)
	}
	if e.Agreeing() != 2 || e.Runs != 4 || e.Ranks != 2 || len(e.Parameters) < 20 {
		t.Errorf("%d figures agree, %d runs of %d ranks, %d parameters", e.Agreeing(), e.Runs, e.Ranks, len(e.Parameters))
	}
	if len(e.Charts) != 2 || len(e.Charts[0].Lines) != 2 || len(e.Charts[1].Lines) != 1 {
		t.Fatalf("%d charts: %+v", len(e.Charts), e.Charts)
	}
	if mark := e.Charts[0].Published[0]; mark.Line != 0 || *mark.X != 8 || mark.High != 5 {
		t.Errorf("published: %+v", mark)
	}
	again := run(t, latencies)
	if !reflect.DeepEqual(again.Experiment, e) || again.Elapsed != r.Elapsed {
		t.Error("a second run differs")
	}
}

func TestDifferencesMustBeRecorded(t *testing.T) {
	const known = "\n      differs: Another machine.\n"
	wrong := strings.Replace(latencies, "value: 5,", "value: 0.5,", 1)
	recorded := func(text string) string { return strings.Replace(text, "    - row: B2", known[1:]+"    - row: B2", 1) }
	for name, c := range map[string]struct {
		text    string
		verdict report.Verdict
		check   string // part of what the first check got or wants
	}{
		"agrees":               {latencies, report.Passed, "us"},
		"differs":              {wrong, report.Failed, "us"},
		"differs as recorded":  {recorded(wrong), report.Passed, "a known difference"},
		"agrees, and recorded": {recorded(latencies), report.Failed, "as \"differs\" says"},
	} {
		r := run(t, c.text)
		if text := r.Checks[0].Want + r.Checks[0].Got; r.Verdict != c.verdict || !strings.Contains(text, c.check) {
			t.Errorf("%s: %s, %s", name, r.Verdict, text)
		}
	}
}

func TestErrorsAreBrokenWithPosition(t *testing.T) {
	for _, c := range []struct{ old, new, want string }{
		{"r805-ib-connectx-ddr", "r805-ib-connectx", `latencies.yaml:5:13: experiment.platform: no platform is called "r805-ib-connectx"`},
		{"figure: latency, of", "figure: latencies, of", "latencies.yaml:15:38: experiment.figures[0].measure.figure: variant RGET: the workload pingpong has no figure latencies; there are latency; bandwidth; RTRs; "},
		{"unit: us", "unit: ms", "the unit of the figure is us, and not ms"},
		{"workload: pingpong", "workload: pingpong\n  window: 1", ""},
		{"name: latencies", "name: latencies\nlimit: 1us", "variant RGET at bytes 8 B: "},
	} {
		s, err := scenarios.Parse("latencies.yaml", []byte(strings.Replace(latencies, c.old, c.new, 1)))
		if c.want == "" { // the runtime has no such option
			if err == nil || !strings.Contains(err.Error(), "latencies.yaml:7:3: experiment.window: unknown key") {
				t.Errorf("%s: %v", c.new, err)
			}
			continue
		}
		must.Do(t, err)
		if r := Run(t.Context(), s, lab.Options{}); r.Verdict != report.Broken || !strings.Contains(r.Reason, c.want) {
			t.Errorf("%s: %s: %s, want %s", c.new, r.Verdict, r.Reason, c.want)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if r := Run(ctx, parse(t, latencies), lab.Options{}); r.Verdict != report.Broken {
		t.Errorf("interrupted: %s", r.Verdict)
	}
}

func TestRelationsToPublishedValues(t *testing.T) {
	const reduction = scenarios.Reduction
	for _, c := range []struct {
		op, kind         string
		value, low, high float64 // low and high agree; what is 0.2 beyond them differs
	}{
		{"", scenarios.Value, 100, 85, 115},
		{"~", scenarios.Value, 100, 85, 115},
		{"up_to", scenarios.Ratio, 100, 85, 115},
		{"=", reduction, 10, 8, 12}, // two per cent points
		{"=", reduction, 40, 34, 46},
		{"flat", scenarios.Value, 5, -5, 5},
	} {
		f := &scenarios.Figure{Measure: scenarios.Measure{Kind: c.kind}, Published: scenarios.Published{Op: c.op, Value: &c.value}}
		for ours, want := range map[float64]bool{c.low: true, c.high: true, c.low - 0.2: false, c.high + 0.2: false} {
			if got := agrees(f, ours); got != want {
				t.Errorf("%s %v of a %s: %v agrees: %v", c.op, c.value, c.kind, ours, got)
			}
		}
	}
	ten := 10.0
	for op, want := range map[string][3]bool{ // of 9, 10 and 11
		"<": {true, false, false}, "<=": {true, true, false}, "low": {true, true, false},
		">": {false, false, true}, ">=": {false, true, true}, "high": {false, true, true},
	} {
		f := &scenarios.Figure{Published: scenarios.Published{Op: op, Value: &ten}}
		for i, ours := range []float64{9, 10, 11} {
			if got := agrees(f, ours); got != want[i] {
				t.Errorf("%v %s 10: %v", ours, op, got)
			}
		}
	}
	f := &scenarios.Figure{Published: scenarios.Published{Range: []float64{10, 20}}}
	for ours, want := range map[float64]bool{8.4: false, 8.6: true, 22.9: true, 23.1: false} {
		if got := agrees(f, ours); got != want {
			t.Errorf("%v in 10 to 20: %v", ours, got)
		}
	}
}

// synthetic has the times a and b at 1, 2, 4 and 8 ranks.
func synthetic(a, b []time.Duration) *measured {
	m := &measured{Experiment: &scenarios.Experiment{Vary: scenarios.Axis{Ranks: []int{1, 2, 4, 8}}}, results: map[string][]work.Result{}}
	m.points = m.Vary.Points()
	for i := range m.points {
		m.results["a"] = append(m.results["a"], work.Result{Time: a[i]})
		m.results["b"] = append(m.results["b"], work.Result{Time: b[i]})
	}
	return m
}

func TestMeasures(t *testing.T) {
	const none = -1
	m := synthetic([]time.Duration{10, 10, 10, 10}, []time.Duration{12, 11, 8, 9})
	equal := synthetic([]time.Duration{10, 10, 10, 10}, []time.Duration{10, 10, 10, 10})
	for _, c := range []struct {
		m        *measured
		kind     string
		from, to string
		over     string
		want     float64
	}{
		{m, scenarios.Crossover, "a", "b", "", 4},
		{m, scenarios.Crossover, "b", "a", "", none},
		{m, scenarios.Until, "b", "a", "", 2},
		{m, scenarios.Until, "a", "b", "", none},
		{equal, scenarios.Crossover, "a", "b", "", none},
		{equal, scenarios.Until, "a", "b", "", none},
		{m, scenarios.BestAt, "a", "b", "", 4},
		{m, scenarios.Reduction, "a", "b", "largest", 20},
		{m, scenarios.Increase, "a", "b", "largest", 20},
		{m, scenarios.Ratio, "a", "b", "largest", 1.25},
		{m, scenarios.Ratio, "b", "a", "smallest", 0.8},
		{m, scenarios.Difference, "a", "b", "largest", 2e-3}, // us
		{m, scenarios.Reduction, "a", "b", "largest in 1 to 2", -10},
		{m, scenarios.Crossover, "a", "b", "in 1 to 2", none},
		{m, scenarios.BestAt, "a", "b", "in 1 to 2", 2},
	} {
		var within scenarios.Axis
		over, inFirstTwo := strings.CutSuffix(c.over, "in 1 to 2")
		if inFirstTwo {
			within.Ranks = []int{1, 2}
		}
		got, _, err := c.m.evaluate(&scenarios.Measure{Within: within, Kind: c.kind, Figure: "time", From: c.from, To: c.to, Over: strings.TrimSpace(over)})
		must.Do(t, err)
		if got == nil && c.want != none || got != nil && (c.want == none || *got < c.want-1e-9 || *got > c.want+1e-9) {
			t.Errorf("%s from %s to %s: %v, want %v", c.kind, c.from, c.to, got, c.want)
		}
	}
}

// The comparison of two other variants is subtracted.
func TestMeasuresBeyondOthers(t *testing.T) {
	m := synthetic([]time.Duration{10, 10, 10, 10}, []time.Duration{12, 11, 8, 9})
	ms := &scenarios.Measure{Kind: scenarios.Reduction, Figure: "time", From: "a", To: "b", Over: "largest"}
	ms.Beyond = scenarios.Comparison{From: "b", To: "a"}
	if got, unit, err := m.evaluate(ms); err != nil || *got != 45 || unit != "%" { // 20 % at 4 ranks, and -25 % for the others
		t.Errorf("%v %s, %v", *got, unit, err)
	}
}

// A variant runs on its own platform, whose parameters are reported.
func TestVariantHasOwnPlatform(t *testing.T) {
	r := run(t, strings.NewReplacer("RPUT: {protocol: rput}", "RPUT: {platform: r805-iwarp-ne020}",
		"measure: {kind: reduction, figure: latency, from: RGET, to: RPUT, over: largest}", "measure: {kind: ratio, figure: latency, from: RPUT, to: RGET, bytes: 8}",
		`{op: "<", value: 100, unit: "%", where: A paper}`, `{value: 4.7, unit: x, where: A paper}`).Replace(latencies)) // 7 and 1.5 us
	if r.Verdict != report.Passed {
		t.Errorf("%s, %s", r.Verdict, r.Reason)
	}
	last := r.Experiment.Parameters[len(r.Experiment.Parameters)-1].Name
	if !strings.HasPrefix(last, "r805-iwarp-ne020 ") {
		t.Errorf("the last parameter is %s", last)
	}
	if r := run(t, strings.Replace(latencies, "RPUT: {protocol: rput}", "RPUT: {platform: unknown}", 1)); r.Verdict != report.Broken {
		t.Errorf("on an unknown platform: %s", r.Verdict)
	}
}

// The time of communication is that of an iteration without computation of one variant, and
// computation follows from it. Statistics of the runtime are figures.
func TestCommunicationInPerCentOfComputation(t *testing.T) {
	const text = `version: 1
name: exchanges
title: Exchanges
experiment:
  platform: r805-iwarp-ne020
  workload: exchange1
  ranks: 2
  bytes: 131072
  design: srq
  communication_of: RGET
  vary: {communication: [50, 100]}
  variants:
    RGET: {protocol: rget}
    speculative: {protocol: speculative}
  figures:
    - row: B5
      text: Time of an iteration
      measure: {kind: value, figure: time an iteration, of: RGET, communication: 100}
      published: {value: 1, unit: us, where: A paper}
    - row: B5
      text: Use
      measure: {kind: value, figure: RTRs used, of: speculative, communication: 50}
      published: {op: ">", value: 50, unit: "%", where: A paper}
`
	m := must.Get(measure(t.Context(), parse(t, text), must.Get(nics.LoadPlatform("r805-iwarp-ne020"))(t), 1))(t)
	times, unit, err := m.series("RGET", "time an iteration")
	must.Do(t, err)
	// Without overlap an iteration takes two and three times as long as its communication.
	if ratio := times[0] / times[1]; unit != "us" || ratio < 1.4 || ratio > 1.6 {
		t.Errorf("iterations take %v %s", times, unit)
	}
	used, _, err := m.series("speculative", "RTRs used")
	if err != nil || used[0] <= 50 || used[0] > 100 {
		t.Errorf("%v %% of RTRs are used, %v", used, err)
	}
}

// The runtime's measurements of the costs of reuse are figures: how many uses pay, from which size on,
// and after which share of them a buffer is registered. Ranks fill a number of hosts.
func TestReuseStatisticsAreFigures(t *testing.T) {
	const text = `version: 1
name: reuse
title: Reuse
experiment:
  platform: pe2850dc-ib-connectx-mvapich2
  workload: reuse
  bytes: 4096
  design: srq
  vary: {ranks: [2, 4]}
  variants:
    apart: {iterations: 50}
    together: {iterations: 50, hosts: 2}
    rare: {iterations: 2}
  figures:
    - row: B13a
      text: Uses that pay
      measure: {kind: value, figure: reuse threshold, of: apart, ranks: 2}
      published: {value: 60, unit: uses, where: A paper}
`
	m := must.Get(measure(t.Context(), parse(t, text), must.Get(nics.LoadPlatform("pe2850dc-ib-connectx-mvapich2"))(t), 1))(t)
	value := func(variant, figure string, at int) float64 {
		return must.Get(find(&m.results[variant][at], figure, 4096))(t).Value
	}
	// R is a control call, 20 us and 300 ns for a page, C 50 ns and 200 ns for a KiB, V two lookups of 40 ns.
	if n := value("apart", "reuse threshold", 0); n != 28 {
		t.Errorf("%v uses pay, and not 21.3 us / 770 ns", n)
	}
	if n := value("apart", "reuse pays from", 0); n != 256 { // a copy of 128 B takes 75 ns
		t.Errorf("reuse of %v bytes pays", n)
	}
	if share := value("apart", "uses before registration", 0); share < 21 || share > 25 { // 7 of 28, or 6
		t.Errorf("buffers are registered after %v %% of the uses that pay", share)
	}
	if _, err := find(&m.results["rare"][0], "uses before registration", 4096); err == nil {
		t.Error("a share of buffers that are not registered")
	}
	if apart, together := value("apart", "latency", 1), value("together", "latency", 1); together == apart {
		t.Errorf("ranks 0 and 1 of four take %v us on a host, and on two", apart)
	}
	if apart, together := value("apart", "latency", 0), value("together", "latency", 0); together != apart {
		t.Errorf("two ranks on two hosts take %v and %v us", apart, together)
	}
}

// Every option of a variant changes the options of the runtime.
func TestVariantsSetOptions(t *testing.T) {
	yes, no := true, false
	plain := options(&scenarios.Settings{})
	for name, s := range map[string]scenarios.Settings{
		"protocol": {Protocol: "speculative"}, "adaptive": {Adaptive: &yes}, "early_progress": {EarlyProgress: &no}, "progress": {Progress: "background"},
		"design": {Design: "srq"}, "eager": {Eager: 9 << 10}, "slot": {Slot: 4 << 10}, "poll_backoff": {PollBackoff: 100},
		"reuse": {BufferReuse: scenarios.BufferReuse{Reuse: &no}}, "buckets": {BufferReuse: scenarios.BufferReuse{ReuseBuckets: 2}},
		"reuse_adaptive":     {BufferReuse: scenarios.BufferReuse{ReuseAdaptive: &no}},
		"registration_cache": {RegistrationCache: &no}, "shared_memory": {SharedMemory: &no}, "coalescing": {Coalescing: &no},
		"rdma": {RDMA: &no}, "collectives": {Collectives: "bcast=chain"},
	} {
		if reflect.DeepEqual(options(&s), plain) {
			t.Errorf("%s changes nothing", name)
		}
	}
	if o := options(&scenarios.Settings{Eager: 9 << 10}); o.Carrier.PacketSize < 9<<10+256 || o.Carrier.Design != carrier.Design("") {
		t.Errorf("eager messages of 9 KiB in packets of %d", o.Carrier.PacketSize)
	}
}

var part = testutil.PartFlag()

// The shipped experiments pass: every difference from a published result is recorded. Without the
// flag -part only a short one runs; .ci/rotate takes a seventh with each commit.
func TestShippedExperimentsPass(t *testing.T) {
	const short = "qian-2010-connections-ib"
	found := 0
	for _, s := range must.Get(scenarios.Builtin())(t) {
		if s.Experiment == nil {
			continue
		}
		found++
		if part.Given() && !part.Has(found-1) || !part.Given() && s.Name != short {
			continue
		}
		t.Run(s.Name, func(t *testing.T) {
			t.Parallel()
			r := Run(t.Context(), s, lab.Options{})
			for _, c := range r.Checks {
				t.Logf("%v %s: want %s, got %s", c.OK, c.Name, c.Want, c.Got)
			}
			if r.Verdict != report.Passed {
				t.Errorf("%s: %s", r.Verdict, r.Reason)
			}
		})
	}
	if found == 0 {
		t.Error("no experiments")
	}
}

// One size and a few messages suffice: there are two simulations for each of the parameters.
func TestSensitivityNamesParameters(t *testing.T) {
	short := strings.Replace(latencies, "ranks: 2", "ranks: 2\n  iterations: 4", 1)
	short = strings.NewReplacer("[8, 16KiB]", "[8]", "over: largest", "bytes: 8").Replace(short)
	s := must.Get(Measure(t.Context(), parse(t, short), 1, func(string, float64) {}))(t)
	var out strings.Builder
	must.Do(t, s.WriteTable(&out))
	latency := s.Figures[0]
	for _, e := range latency.Effects {
		switch e.Parameter {
		case "host.post_ns", "nic.send_latency_ns", "link.latency_ns": // on the path of every message
			if *e.Down >= *latency.Ours || *e.Up <= *latency.Ours {
				t.Errorf("%s: %v, %v and %v us", e.Parameter, *e.Down, *latency.Ours, *e.Up)
			}
		case "host.control_ns": // before the measurement
			if *e.Down != *latency.Ours || *e.Up != *latency.Ours {
				t.Errorf("%s changes the latency", e.Parameter)
			}
		}
	}
	if !slices.IsSortedFunc(latency.Effects, func(a, b Effect) int { return cmp.Compare(b.size(latency.Ours), a.size(latency.Ours)) }) {
		t.Error("the largest effects are not the first")
	}
	if !strings.Contains(out.String(), "    host.post_ns ") || strings.Contains(out.String(), "host.control_ns") {
		t.Errorf("the table:\n%s", out.String())
	}
}
