package experiment

import (
	"bytes"
	"strings"
	"testing"

	"github.com/fabrictest/fabrictest/internal/must"
	"github.com/fabrictest/fabrictest/lab/nics"
	"github.com/fabrictest/fabrictest/perf/record"
)

// A run is within the band of its own platform, and a series that is 20 % slower is named.
func TestCheckNamesSeriesOutsideOfTheBand(t *testing.T) {
	p := must.Get(nics.LoadPlatform("connectx7-ndr"))(t)
	run := simulatedRun(t, p, append(series("send_lat", 8), series("write_bw", 4096, 65536)...)...)
	run.Add("osu_allreduce/bytes=8", record.Seconds, 1e-6)
	c := must.Get(CheckPlatform(p, run, 0.15))(t)
	if out := c.Outside(); len(out) != 0 || len(c.Series) != 3 || len(c.Skipped) != 1 {
		t.Errorf("its own run: %d of %d outside, skipped %v", len(out), len(c.Series), c.Skipped)
	}
	run.Series[2].Samples[0] *= 0.8
	c = must.Get(CheckPlatform(p, run, 0.15))(t)
	var text bytes.Buffer
	must.Do(t, c.WriteText(&text))
	out := c.Outside()
	if len(out) != 1 || out[0].Name != "write_bw/bytes=65536" || !strings.Contains(text.String(), "write_bw with bytes=65536: 1 of 1 outside") {
		t.Errorf("%+v\n%s", out, text.String())
	}
}

func TestCheckRunNeedsSignificance(t *testing.T) {
	earlier, run := &record.Run{}, &record.Run{}
	for i := range 12 {
		noise := 1 + 0.001*float64(i%5)
		earlier.Add("write_bw/bytes=8/qps=2", record.Bytes, 1e9*noise)
		run.Add("write_bw/bytes=8/qps=2", record.Bytes, 0.9e9*noise)
		earlier.Add("send_lat/bytes=8", record.Seconds, 1e-6*noise)
		run.Add("send_lat/bytes=8", record.Seconds, 1.001e-6*noise)
	}
	c := must.Get(CheckRun("before.json", earlier, run, 0.02))(t)
	if out := c.Outside(); len(out) != 1 || out[0].Name != "write_bw/bytes=8/qps=2" || len(c.Series) != 2 {
		t.Errorf("%+v", out)
	}
}
