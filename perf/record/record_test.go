package record

import (
	"bytes"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/fabrictest/fabrictest/internal/must"
)

// seriesOf returns the first sample of each series by name and unit.
func seriesOf(r *Run) map[string]float64 {
	all := map[string]float64{}
	for _, s := range r.Series {
		all[s.Name+" "+string(s.Unit)] = s.Samples[0]
	}
	return all
}

func checkSeries(t *testing.T, r *Run, want map[string]float64) {
	t.Helper()
	got := seriesOf(r)
	for name, v := range want {
		if g, ok := got[name]; !ok || math.Abs(g-v) > 1e-9*v {
			t.Errorf("%s: %v, want %v", name, g, v)
		}
		delete(got, name)
	}
	if len(got) > 0 {
		t.Errorf("unexpected series %v", slices.Sorted(maps.Keys(got)))
	}
}

func TestReadsPerftest(t *testing.T) {
	r := must.Get(ReadFile("testdata/ib_write_bw.txt"))(t)
	checkSeries(t, r, map[string]float64{
		"write_bw/bytes=65536/qps=2 B/s": 48.5e9, "write_bw/bytes=65536/qps=2 1/s": 740051,
		"write_bw/bytes=4194304/qps=2 B/s": 49e9, "write_bw/bytes=4194304/qps=2 1/s": 11683,
	})
	if r.Device != (Device{Name: "mlx5_0", Link: "IB"}) || r.Options["mtu"] != "4096" || r.Options["cq_moderation"] != "100" {
		t.Errorf("device %+v, options %v", r.Device, r.Options)
	}
	checkSeries(t, must.Get(ReadFile("testdata/ib_send_lat.txt"))(t), map[string]float64{
		"send_lat/bytes=2 s": 1.79e-6, "send_lat/bytes=2/percentile=99 s": 1.88e-6, "send_lat/bytes=2/percentile=99.9 s": 6.12e-6,
	})
	text := `{"test_info": {"test": "Send_BW", "Device": "mlx5_1", "Number_of_qps": 4}, "results": {"MsgSize": 64, "n_iterations": 10, "BW_average": 1.5, "MsgRate": 2.5}}`
	r = must.Get(Read("json", strings.NewReader(text)))(t)
	checkSeries(t, r, map[string]float64{"send_bw/bytes=64/qps=4 1/s": 2.5e6, "send_bw/bytes=64/qps=4 B/s": 160e6})
}

func TestReadsMPIBenchmarks(t *testing.T) {
	checkSeries(t, must.Get(ReadFile("testdata/osu.txt"))(t), map[string]float64{
		"osu_latency/bytes=0 s": 1.5e-6, "osu_latency/bytes=8 s": 1.54e-6, "osu_latency/bytes=4096 s": 3.51e-6,
		"osu_multiple_bandwidth_message_rate/bytes=1 B/s": 10.25e6, "osu_multiple_bandwidth_message_rate/bytes=1 1/s": 10.25e6,
		"osu_allgather_latency/bytes=1 s": 2.1e-6,
	})
	checkSeries(t, must.Get(ReadFile("testdata/imb.txt"))(t), map[string]float64{
		"imb_pingpong/bytes=0/ranks=2 s": 1.66e-6, "imb_pingpong/bytes=4096/ranks=2 s": 3.46e-6, "imb_allreduce/bytes=8/ranks=4 s": 4.5e-6,
	})
}

func TestWrittenRunsAreReadAgain(t *testing.T) {
	r := &Run{Tool: "test", Device: Device{Name: "rdma0", Firmware: "1.2"}, Options: map[string]string{"depth": "16"}}
	r.Add("send_lat/bytes=64", Seconds, 2.5e-6)
	r.Add("send_lat/bytes=8", Seconds, 1.5e-6)
	r.Add("send_lat/bytes=8", Seconds, 1.6e-6)
	r.Add("write_bw/bytes=8", Bytes, 1e9)
	r.Add("write_bw/bytes=8", Messages, 2e6)
	var asJSON, asGo bytes.Buffer
	must.Do(t, r.Write(&asJSON))
	again := must.Get(Read("run.json", &asJSON))(t)
	if again.Series[0].Name != "send_lat/bytes=8" || again.Device != r.Device {
		t.Errorf("%+v", again)
	}
	checkSeries(t, again, seriesOf(r))
	must.Do(t, r.WriteGo(&asGo))
	again = must.Get(Read("bench.txt", &asGo))(t)
	checkSeries(t, again, seriesOf(r))
	if n := len(again.find("send_lat/bytes=8", Seconds).Samples); n != 2 {
		t.Errorf("%d samples in Go's format, want 2", n)
	}
}

func TestInvalidFilesAreRejected(t *testing.T) {
	for text, want := range map[string]string{
		"":                         "no recorded run",
		"{":                        "unexpected EOF",
		`{"version": 9}`:           "this program reads version 1",
		`{"version": 1, "x": 1}`:   "unknown field",
		`{"version": 1}`:           "no sample",
		"# OSU MPI Latency Test\n": "no sample",
		`{"version":1,"series":[{"name":"a b","unit":"s","samples":[1]}]}`:   "has a space",
		`{"version":1,"series":[{"name":"a","unit":"ms","samples":[1]}]}`:    "give s, B/s, 1/s or B",
		`{"version":1,"series":[{"name":"a","unit":"s","samples":[-1]}]}`:    "no time, rate or size",
		" #bytes #iterations t_typical[usec]\n 2 1000 1.7\n":                 "line 2: a row without the name of its test",
		"RDMA_Read Latency Test\n #bytes #iterations t_new[usec]\n2 1 1.7\n": `line 3: the column "t_new[usec]" is not known`,
	} {
		if _, err := Read("file", strings.NewReader(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
}

func TestSeriesAreSortedByNumber(t *testing.T) {
	names := []string{"lat/bytes=64", "lat/bytes=8/qps=2", "bw/bytes=8", "lat/bytes=8", "lat/bytes=1024"}
	slices.SortFunc(names, compareNames)
	if got, want := fmt.Sprint(names), "[bw/bytes=8 lat/bytes=8 lat/bytes=8/qps=2 lat/bytes=64 lat/bytes=1024]"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

func FuzzRead(f *testing.F) {
	for _, name := range []string{"ib_write_bw.txt", "ib_send_lat.txt", "osu.txt", "imb.txt"} {
		r, err := ReadFile("testdata/" + name)
		if err != nil {
			f.Fatal(err)
		}
		var text bytes.Buffer
		if err := r.Write(&text); err != nil {
			f.Fatal(err)
		}
		f.Add(text.String())
	}
	f.Add("RDMA_Read Latency Test\n #bytes #iterations t_typical[usec]\n2 1 1.7\n")
	f.Fuzz(func(t *testing.T, text string) {
		r, err := Read("fuzz", strings.NewReader(text))
		if err != nil {
			return
		}
		var out bytes.Buffer
		must.Do(t, r.Write(&out))
		again, err := Read("again", &out)
		if err != nil || len(again.Series) != len(r.Series) {
			t.Fatalf("written again: %v", err)
		}
	})
}
