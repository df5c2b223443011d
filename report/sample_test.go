package report_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"time"

	"github.com/fabrictest/fabrictest/netns/topology"
	"github.com/fabrictest/fabrictest/report"
)

// traffic describes the ranks of a made-up scenario.
type traffic struct {
	fabric   *topology.Topology
	end      time.Duration
	steps    int     // samples per rank
	bps      float64 // rate of a receiving rank without faults
	sink     func(rank int) bool
	loss     float64 // loss ratio of impaired links
	on       func(from, to string) bool
	faults   []report.Fault
	affected func(rank int) bool // by the faults
	errors   bool                // errors during a fault
	latency  bool
	memory   bool
}

func allRanks(int) bool { return true }

// fill adds links and ranks to a result.
func (t *traffic) fill(r *report.Result, rng *rand.Rand) {
	r.Fabric, r.Elapsed, r.Faults = t.fabric, t.end, t.faults
	if t.sink == nil {
		t.sink = allRanks
	}
	total := uint64(0)
	for i := range t.fabric.Hosts {
		k := t.rank(i, rng)
		total += k.Bytes
		r.Ranks = append(r.Ranks, k)
	}
	share := total / uint64(max(1, len(t.fabric.Hosts)))
	for _, c := range t.fabric.Cables {
		a, b := endName(c.A), endName(c.B)
		r.Links = append(r.Links, t.link(a, b, share, rng), t.link(b, a, share, rng))
	}
}

func (t *traffic) link(from, to string, bytes uint64, rng *rand.Rand) report.Link {
	l := report.Link{From: from, To: to, Bytes: uint64(float64(bytes) * (0.8 + 0.4*rng.Float64()))}
	l.Packets = l.Bytes/4096 + 1
	if t.on != nil && t.on(from, to) {
		l.Impaired = true
		if n := uint64(float64(l.Packets) * t.loss); n > 0 {
			l.Lost = map[string]uint64{"loss": n}
		}
	}
	for _, f := range t.faults {
		for _, on := range f.On {
			if on == from || on == to {
				if l.Lost == nil {
					l.Lost = map[string]uint64{}
				}
				l.Lost["link_down"] += 1 + l.Packets/100
			}
		}
	}
	return l
}

// rank integrates a made-up rate.
func (t *traffic) rank(i int, rng *rand.Rand) report.Rank {
	k := report.Rank{Rank: i, Host: t.fabric.Hosts[i].Name, State: "finished", Elapsed: t.end - time.Duration(rng.IntN(50_000))}
	k.Marks = append(k.Marks, report.Mark{At: time.Duration(rng.Int64N(int64(t.end / 50))), What: "connected"})
	var bytes, resent, errs float64
	phase := rng.Float64() * 6
	step := t.end / time.Duration(t.steps)
	for s := range t.steps {
		at := step * time.Duration(s+1)
		rate := t.bps / 8 * (0.9 + 0.08*math.Sin(phase+float64(at)/float64(t.end)*11) + 0.05*rng.Float64())
		down, recovering := t.faulty(i, at)
		switch {
		case down:
			rate = 0
			resent += rng.Float64() * 3
			if t.errors && rng.IntN(4) == 0 {
				errs++
			}
		case recovering:
			rate *= 0.5
			resent += rng.Float64() * 8
		}
		rate *= 1 - min(0.9, 6*t.loss)
		resent += rate * step.Seconds() / 4096 * t.loss * (0.5 + rng.Float64())
		if t.sink(i) {
			bytes += rate * step.Seconds()
		}
		k.Samples = append(k.Samples, report.Sample{
			At: at, Messages: uint64(bytes / 65536), Bytes: uint64(bytes), Resent: uint64(resent), Errors: uint64(errs),
		})
	}
	k.Bytes, k.Messages, k.Resent, k.Failures = uint64(bytes), uint64(bytes/65536), uint64(resent), int(errs)
	for _, f := range t.faults {
		if f.Until > 0 && t.affected != nil && t.affected(i) {
			k.Reconn++
			k.Marks = append(k.Marks, report.Mark{At: f.Until + t.end/60 + time.Duration(rng.Int64N(int64(t.end/40))), What: "recovered"})
		}
	}
	if t.latency {
		p50 := time.Duration(2700 + rng.IntN(900))
		k.Latency = &report.Latency{Count: 10000, Min: p50 * 8 / 10, P50: p50, P99: p50 * 3, Max: p50 * 40, Mean: p50 * 11 / 10}
	}
	if t.memory {
		k.MemoryKiB = 31_000 + rng.Int64N(6000)
	}
	k.Counters = map[string]uint64{"rx_packets": k.Bytes / 4096, "tx_packets": k.Bytes/4096 + k.Resent, "icrc_errors": 0}
	return k
}

// faulty reports whether the rank is cut off at a time, or recovering.
func (t *traffic) faulty(rank int, at time.Duration) (down, recovering bool) {
	if t.affected == nil || !t.affected(rank) {
		return false, false
	}
	for _, f := range t.faults {
		until := f.Until
		if until == 0 {
			until = t.end + 1
		}
		down = down || at >= f.At && at < until
		recovering = recovering || at >= until && at < until+t.end/25
	}
	return down, recovering
}

// newResult returns a result with the common fields.
func newResult(name, title, tier string, seed uint64, tags ...string) report.Result {
	return report.Result{
		Name: name, Title: title, Tier: tier, Seed: seed, Provider: "softroce", Tags: tags, Verdict: report.Passed,
		Replay: fmt.Sprintf("fabrictest run %s --on %s --seed %d", name, tier, seed),
	}
}

// newRun returns an empty run.
func newRun(seed uint64) *report.Run {
	return &report.Run{
		Version: report.Version, Tool: "v0.3.0", Command: fmt.Sprintf("fabrictest run --seed %d", seed), Seed: seed,
		Started: time.Date(2025, 11, 15, 9, 30, 12, 0, time.UTC),
		Machine: report.Machine{OS: "linux", Arch: "amd64", Kernel: "6.18.2", CPUs: 2},
	}
}

// total sets the wall-clock times.
func total(run *report.Run) *report.Run {
	for i := range run.Scenarios {
		if r := &run.Scenarios[i]; r.Wall == 0 {
			r.Wall = time.Duration(40+13*i) * time.Millisecond
		}
		run.Wall += run.Scenarios[i].Wall
	}
	return run
}

// largeRun is a run of n results of 64 ranks, with this many samples per rank.
func largeRun(n, samples int) *report.Run {
	run := newRun(11)
	for i := range n {
		rng := rand.New(rand.NewPCG(uint64(i), 1))
		r := newResult(fmt.Sprintf("scale-%02d", i), "64 hosts, all to all", "sim", 11, "scale")
		t := traffic{
			fabric: fatTreeOf(64, 8, 4), end: 400 * time.Millisecond, steps: samples, bps: 9e9, loss: 0.01,
			on: func(from, _ string) bool { return from == "host3/rdma0" || from == "leaf2" }, memory: true, latency: true,
		}
		t.fill(&r, rng)
		r.Checks = []report.Check{{Name: "delivered", Want: "exactly-once", Got: "exactly-once", OK: true}}
		run.Scenarios = append(run.Scenarios, r)
	}
	return total(run)
}

// starLink are the properties of all cables of a star.
var starLink = topology.Link{MTU: 4200, RateBps: 100e9, Latency: 1000}

func drawn(t topology.Topology, err error) *topology.Topology {
	if err != nil {
		panic(err)
	}
	return &t
}

// pairOf is two hosts back to back.
func pairOf(rails int) *topology.Topology {
	return drawn(topology.Pair(topology.Options{Rails: rails}))
}

// starOf is hosts around a switch per rail.
func starOf(hosts, rails int) *topology.Topology {
	return drawn(topology.Star(hosts, topology.Options{Rails: rails, Link: starLink}))
}

// fatTreeOf is hosts on leaves, and every leaf on every spine.
func fatTreeOf(hosts, leaves, spines int) *topology.Topology {
	return drawn(topology.FatTree(leaves, spines, hosts, topology.Options{}))
}

// endName returns the name of a port in link counters.
func endName(p topology.Port) string {
	if p.NIC == "" {
		return p.Node
	}
	return p.String()
}
