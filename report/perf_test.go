package report

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/fabrictest/fabrictest/internal/must"
	"github.com/fabrictest/fabrictest/perf/record"
)

// recordedRun returns a run with twelve samples of each series. bandwidth is that of the second.
func recordedRun(firmware string, bandwidth float64) *record.Run {
	r := &record.Run{Device: record.Device{Name: "mlx5_0", Firmware: firmware}}
	for i := range 12 {
		noise := 1 + 0.001*float64(i%4)
		r.Add("send_lat/bytes=8", record.Seconds, 1e-6*noise)
		r.Add("write_bw/bytes=4096", record.Bytes, bandwidth*noise)
		r.Add("write_bw/bytes=4096/qps=2", record.Bytes, 2e9*noise)
		r.Add("write_bw/bytes=65536/qps=2", record.Bytes, 2e9*noise)
	}
	return r
}

func TestComparisonPageHasChartsAndVerdicts(t *testing.T) {
	a, b := recordedRun("22.40", 1e9), recordedRun("22.41", 0.9e9)
	b.Add("read_bw/bytes=8", record.Bytes, 1e9)
	c := must.Get(record.Compare(a, b, record.Options{}))(t)
	var page bytes.Buffer
	must.Do(t, WriteComparison(&page, c, a, b, "a.json", "<b>.json"))
	text := page.String()
	for _, want := range []string{
		"5 series: 1 worse, 3 same, 1 missing", "mlx5_0 22.41", "&lt;b&gt;.json", `<span class="v failed">worse</span>`,
		"-10.0 %", `<span class="diamond">95 % interval</span>`, "write_bw/bytes=4096: -10", "after, qps=2",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("the page has no %q", want)
		}
	}
	if n := strings.Count(text, "<svg class=\"chart\""); n != 4 { // two for each benchmark in both runs
		t.Errorf("%d charts, want 4", n)
	}
}

func TestHistoryPageHasLevels(t *testing.T) {
	var runs []*record.Run
	for i := range 12 {
		r := recordedRun("", map[bool]float64{true: 1e9, false: 0.8e9}[i < 7])
		r.Started = time.Unix(int64(i)*86400, 0)
		runs = append(runs, r)
	}
	ordered, changes := record.History(runs, 0.02)
	var page bytes.Buffer
	must.Do(t, WriteHistory(&page, ordered, changes))
	text := page.String()
	for _, want := range []string{"1 change in 12 runs: 1 worse, 0 better", "level from run 8", `<span class="v failed">worse</span>`} {
		if !strings.Contains(text, want) {
			t.Errorf("the page has no %q", want)
		}
	}
	if n := strings.Count(text, "<svg class=\"chart\""); n != 4 {
		t.Errorf("%d charts, want 4", n)
	}
}
