package peers_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fabrictest/fabrictest/internal/must"
	"github.com/fabrictest/fabrictest/perf"
	"github.com/fabrictest/fabrictest/report"
	"github.com/fabrictest/fabrictest/report/peers"
)

// sampleRun returns a run without comparisons, of peers whose versions are their names with a number.
func sampleRun(names ...string) *peers.Run {
	r := &peers.Run{
		Tool: "v1", Command: "go run ./perf/peers -html peers.html", Started: time.Date(2026, 11, 15, 12, 0, 0, 0, time.UTC), Rounds: 3, Load: 0.4,
		Machine: report.Machine{OS: "linux", Arch: "amd64", Kernel: "6.1.0", CPUs: 2}, CPU: "Model 7",
		Skipped: []peers.Skipped{{Name: "GASNet", Reason: "no program found", Install: "apt-get install -y gasnet"}},
	}
	for _, name := range names {
		r.Peers = append(r.Peers, peers.Peer{Name: name, Version: name + " 4.0"})
	}
	return r
}

// add adds a comparison with a peer. Those with MPICH have a target, which holds without ICRC only.
func add(r *peers.Run, c peers.Comparison, ratio float64) {
	c.Name = fmt.Sprintf("%s, %d ranks, %d B", c.Metric, c.Ranks, c.Bytes)
	c.Ours, c.NoICRC, c.Ratio, c.RatioNoICRC, c.Noise = ratio*c.Theirs, 0.8*ratio*c.Theirs, ratio, 0.8*ratio, 0.05
	if strings.HasPrefix(c.Peer, "MPICH") && c.Bytes <= 4<<10 {
		c.Want, c.Target, c.Verdict, c.VerdictNoICRC = 0.9, "≤ 0.9", perf.Missed, perf.Holds
	}
	r.Comparisons = append(r.Comparisons, c)
}

// samplePairs returns a run of two ranks. MPICH takes 5 µs and the time of its bytes at 10 Gb/s for a
// half round trip.
func samplePairs() *peers.Run {
	r := sampleRun("MPICH", "UCX", "libfabric", "iperf3")
	for _, size := range []int{8, 1 << 10, 4 << 10, 64 << 10} {
		for i, peer := range []string{"MPICH", "UCX", "libfabric"} {
			c := peers.Comparison{Metric: "half round trip", Ranks: 2, Bytes: size, Peer: peer, Unit: "µs", LessWins: true}
			c.Theirs = (5 + float64(size)*8e-4) * []float64{1, 1.04, 8}[i]
			add(r, c, []float64{1.25, 1.02, 0.2}[i])
		}
	}
	for _, size := range []int{64 << 10, 1 << 20} {
		for i, peer := range []string{"MPICH", "iperf3"} {
			add(r, peers.Comparison{Metric: "bandwidth", Ranks: 2, Bytes: size, Peer: peer, Unit: "Gb/s", Theirs: []float64{15, 27}[i]}, []float64{1.4, 0.6}[i])
		}
	}
	add(r, peers.Comparison{Metric: "message rate", Ranks: 2, Bytes: 64, Peer: "UCX", Unit: "M/s", Theirs: 0.25}, 4)
	return r
}

// sampleCollectives returns a run of two collective operations of 4 and 8 ranks, which first all have 4.
func sampleCollectives() *peers.Run {
	r := sampleRun("MPICH-yielding", "Open MPI")
	for _, ranks := range []int{4, 8} {
		for _, kind := range []string{"allgather", "bcast"} {
			for i, size := range []int{8, 8 << 10, 1 << 20} {
				for k, p := range r.Peers {
					c := peers.Comparison{Metric: kind, Ranks: ranks, Bytes: size, Peer: p.Name, Unit: "µs", LessWins: true, Theirs: float64(50*ranks + size/200)}
					add(r, c, []float64{0.4, 1.02, 1.5, 2.5, 0.7, 1.1}[i+3*k])
				}
			}
		}
	}
	r.Summaries = []peers.Summary{
		{Peer: "MPICH-yielding", WithICRC: true, Points: 12, Faster: 4, Slowest: 1.5, SlowestName: "bcast, 8 ranks, 1 MiB", Target: "≥ 80 % and ≤ 1.3 ×", Verdict: perf.Missed},
		{Peer: "Open MPI", Points: 12, Faster: 8, Slowest: 2, SlowestName: "allgather, 4 ranks, 8 B"},
	}
	return r
}

// page returns the page of a run.
func page(t *testing.T, r *peers.Run) string {
	t.Helper()
	var b strings.Builder
	must.Do(t, r.WriteHTML(&b))
	return b.String()
}

// samples are the runs of all tests.
func samples() map[string]*peers.Run {
	onlyOne := sampleRun("MPICH")
	add(onlyOne, peers.Comparison{Metric: "half round trip", Ranks: 2, Bytes: 8, Peer: "MPICH", Unit: "µs", LessWins: true, Theirs: 5}, 1)
	noTargets := samplePairs()
	noTargets.Comparisons = slices.DeleteFunc(noTargets.Comparisons, func(c peers.Comparison) bool { return c.Peer == "MPICH" })
	return map[string]*peers.Run{"pairs": samplePairs(), "collectives": sampleCollectives(), "one": onlyOne, "no targets": noTargets, "none": sampleRun()}
}
