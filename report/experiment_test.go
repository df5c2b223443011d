package report_test

import (
	"bytes"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/fabrictest/fabrictest/internal/must"
	"github.com/fabrictest/fabrictest/report"
)

// sampleExperiment has a figure of each verdict, and charts with linear and logarithmic axes.
func sampleExperiment() *report.Run {
	value := func(v float64) *float64 { return &v }
	e := &report.Experiment{
		Platform: "old-nic", Title: "An old NIC", Parameters: []report.Parameter{{Name: "host.post_ns", Value: 150, Source: "assumed <b>"}}, Ranks: 16, Runs: 6,
		Figures: []report.Figure{
			{Row: "B1", Text: "Latency", Published: "about 7 us", Where: "A paper §1", Ours: value(6.8), Unit: "us", Agrees: true},
			{Row: "B2", Text: "A reduction", Published: "14 %", Where: "A paper §2", Ours: value(3), Unit: "%", Reason: "Copies were slower."},
			{Row: "B3", Text: "A crossover", Published: "4096 B", Where: "A paper §3", Unit: "B"},
			{Row: "B4", Text: "Another", Published: "8192 B", Where: "A paper §3", Ours: value(8192), Unit: "B", Agrees: true, Reason: "It was different."},
		},
		Charts: []report.Chart{
			{
				Title: "latency", Unit: "us", XName: "bytes", XUnit: "B",
				Lines: []report.ChartLine{
					{Name: "copied", Points: []report.ChartPoint{{X: 8, Y: 1}, {X: 8192, Y: 13}, {X: 1 << 20, Y: 700}}},
					{Name: "registered", Points: []report.ChartPoint{{X: 8, Y: 1}, {X: 8192, Y: 11}, {X: 1 << 20, Y: 700}}},
				},
				Published: []report.ChartMark{{Text: "B1, published: about 7 us", X: value(8), Low: 7, High: 7}},
			},
			{
				Title: "reduction of latency", Unit: "%", XName: "compute", XUnit: "us",
				Lines:     []report.ChartLine{{Name: "from copied to registered", Points: []report.ChartPoint{{X: 0, Y: -2}, {X: 1500, Y: 12}}}},
				Published: []report.ChartMark{{Text: "B2, published: 14 %", Low: 14, High: 14}},
			},
		},
	}
	return &report.Run{Version: report.Version, Tool: "v1", Command: "fabrictest run x", Started: time.Unix(0, 0).UTC(), Machine: report.Machine{OS: "linux", Arch: "amd64", CPUs: 2}, Scenarios: []report.Result{{
		Name: "x", Tier: "sim", Seed: 1, Verdict: report.Failed, Reason: "B3: want 4096 B, got none", Replay: "fabrictest run x", Elapsed: time.Second, Wall: time.Second,
		Experiment: e, Checks: []report.Check{{Name: "B3", Want: "4096 B", Got: "none"}},
	}}}
}

func TestExperimentRoundTrip(t *testing.T) {
	run := sampleExperiment()
	got := must.Get(report.Read(bytes.NewReader(written(t, run))))(t)
	if !reflect.DeepEqual(got, run) {
		t.Errorf("%+v, want %+v", got.Scenarios[0].Experiment, run.Scenarios[0].Experiment)
	}
}

func TestExperimentVerdicts(t *testing.T) {
	e := sampleExperiment().Scenarios[0].Experiment
	for i, want := range []bool{true, true, false, false} { // agrees, a known difference, differs, a stale reason
		if e.Figures[i].OK() != want {
			t.Errorf("%s is OK: %v", e.Figures[i].Row, !want)
		}
	}
	if n := e.Agreeing(); n != 2 {
		t.Errorf("%d figures agree", n)
	}
}

// The line of an experiment that passed says how many figures agree, instead of a virtual time.
func TestPageShowsHowManyFiguresAgree(t *testing.T) {
	run := sampleExperiment()
	r := &run.Scenarios[0]
	r.Verdict, r.Experiment.Figures = report.Passed, r.Experiment.Figures[:2]
	var page strings.Builder
	must.Do(t, report.WriteHTML(&page, run))
	if !strings.Contains(page.String(), `<span class="took">1 of 2 agree</span>`) {
		t.Error("the page does not say that 1 of 2 figures agrees")
	}
}

func TestPageShowsExperiment(t *testing.T) {
	var page strings.Builder
	must.Do(t, report.WriteHTML(&page, sampleExperiment()))
	for _, want := range []string{
		`<span class="v passed">agrees</span>`, `<span class="v deviates">differs, as known</span><small>Copies were slower.</small>`,
		`<span class="v failed">differs</span>`, `<span class="v stale">`, "<b>6.8 us</b>", "<b>none</b>", "<b>8 KiB</b>",
		"<b>latency, us</b>", `aria-label="latency by bytes"`, "<title>registered, 8 KiB: 11 us</title>", `<g class="mark k0"><title>B1, published: about 7 us</title>`,
		`text-anchor="end">100</text>`,                   // a power of ten of the logarithmic axis
		`text-anchor="end">-2</text>`, `>1.50 ms</text>`, // of the linear axes
		`class="limit"`, "1 parameters with their sources", "assumed &lt;b&gt;",
	} {
		if !strings.Contains(page.String(), want) {
			t.Errorf("the page has no %s", want)
		}
	}
	if strings.Contains(page.String(), "Expected</h4>") {
		t.Error("the page has the figures as checks again")
	}
}
