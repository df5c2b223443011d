package ranks_test

import (
	"bytes"
	"math/bits"
	"testing"
	"time"

	"github.com/fabrictest/fabrictest/internal/must"
	"github.com/fabrictest/fabrictest/mpi/carrier"
	"github.com/fabrictest/fabrictest/mpi/memory"
	"github.com/fabrictest/fabrictest/mpi/p2p"
	"github.com/fabrictest/fabrictest/mpi/window"
	"github.com/fabrictest/fabrictest/mpi/work"
	"github.com/fabrictest/fabrictest/report"
	"github.com/fabrictest/fabrictest/report/ranks"
)

func sampleRun() *ranks.Run {
	return &ranks.Run{
		Version: ranks.Version, Tool: "v1", Command: "fabrictest mpirun -n 9 bt", Seed: 7, Started: time.Date(2026, 11, 15, 12, 0, 0, 0, time.UTC),
		Wall: 3 * time.Second, Machine: report.Machine{OS: "linux", Arch: "amd64", CPUs: 2},
	}
}

// sampleJob has values of all kinds, and a rank without a report.
func sampleJob(n int) *ranks.Run {
	r := sampleRun()
	r.Job = &ranks.Job{Program: "bt --class S", Ranks: n, PerHost: 1, Rails: 1, Tier: "sim", Provider: "softroce", Protocol: "speculative", Progress: "polling", LossPPM: 5000}
	for rank := range n {
		var s struct {
			P2P     p2p.Stats
			Window  window.Stats
			Carrier carrier.Stats
		}
		for size := 1; size < 1<<17; size *= 2 {
			way := p2p.Eager
			if size > 4096 {
				way = p2p.Rendezvous
			}
			w := &s.P2P.Sent[way]
			w.Messages += uint64(100 + rank)
			w.Bytes += uint64(size * (100 + rank))
			w.BySize[bits.Len(uint(size))] += uint64(100 + rank)
		}
		s.P2P.Unexpected, s.P2P.MaxUnexpected = 41, 5
		s.P2P.RTRsReceived, s.P2P.RTRsUsed, s.P2P.RTRsDropped, s.P2P.RTRsCrossed, s.P2P.Mispredicted = 50, 40, 10, 9, 3
		s.Window.Puts = 4
		c := &s.Carrier
		c.Packets[carrier.OverConnection], c.Packets[carrier.OverRing], c.Packets[carrier.OverDatagrams] = 300, 900, 20
		c.MaxConnections, c.ConnectionsOpened, c.LowWatermark = 6+rank%2, 6, 2
		c.Registrations.Hits, c.Registrations.Misses = 900, 100
		c.Reuse.Uses, c.Reuse.FrequentUses = 500, 125
		for k := range c.Memory.Max {
			c.Memory.Max[k] = (k + 1) << 18
		}
		c.Memory.Max[memory.RingBuffers] += rank << 17
		r.Job.Stats = append(r.Job.Stats, values(s))
	}
	r.Job.Stats[1] = nil
	r.Job.Arrivals = []ranks.Arrivals{
		{Op: "alltoall", Calls: 22, Bytes: 2 << 20, Average: 800 * time.Millisecond, Worst: 2400 * time.Millisecond, AverageFactor: 597, WorstFactor: 1812},
		{Op: "barrier", Calls: 3, Average: 2 * time.Microsecond, Worst: 7 * time.Microsecond},
	}
	return r
}

// sampleMemory has every experiment, with memory that follows from connections.
func sampleMemory(t testing.TB) *ranks.Run {
	t.Helper()
	r := sampleRun()
	for _, e := range work.MemoryExperiments() {
		runs := must.Get(e.Runs([]int{4, 8, 16, 32, 64, 128, 256, 512, 1024}))(t)
		x := ranks.Experiment{Name: e.Name, Config: values(e.Config)}
		for i := range runs {
			x.Points = append(x.Points, samplePoint(&runs[i]))
		}
		r.Memory = append(r.Memory, x)
	}
	return r
}

func samplePoint(r *work.MemoryRun) ranks.Point {
	p := ranks.Point{Workload: r.Workload, Design: string(r.Design), Rank0Only: r.Rank0Only}
	p.Ranks, p.Messages, p.Unexpected = r.Ranks, 1000, 0.125
	partners := float64(bits.Len(uint(r.Ranks)))
	if r.Rank0Only || r.MaxRanks > 0 || r.Workload == "smg" || r.Workload == "radix" {
		partners = float64(r.Ranks - 1)
	}
	kinds := make([]float64, len(memory.Usage{}.Max))
	kinds[memory.SendBuffers], kinds[memory.DatagramReceiveBuffers] = 160e3, 1050e3
	switch r.Design {
	case carrier.SendRecv, carrier.RingSendRecv:
		kinds[memory.ConnReceiveBuffers] = partners * 800e3
	case carrier.SRQ, carrier.RingSRQ, carrier.Hybrid:
		kinds[memory.SharedReceiveBuffers] = 3.1e6
	}
	if r.Design == carrier.RingSendRecv || r.Design == carrier.RingSRQ {
		p.Rings.Mean = partners / 2
		kinds[memory.RingBuffers] = p.Rings.Mean * 500e3
	}
	if r.Design != carrier.UD {
		p.Connections = ranks.Spread{Mean: partners, Most: partners}
	}
	for k, n := range kinds {
		p.Kinds = append(p.Kinds, ranks.Kind{Name: memory.Kind(k).String(), Bytes: ranks.Spread{Mean: n, Most: n}})
		p.Bytes.Mean, p.Bytes.Most = p.Bytes.Mean+n, p.Bytes.Most+n
	}
	return p
}

// values returns the counters of the runtime.
func values(from any) ranks.Values {
	v, err := ranks.ValuesOf(from)
	if err != nil {
		panic(err)
	}
	return v
}

func html(t testing.TB, r *ranks.Run) string {
	t.Helper()
	var b bytes.Buffer
	must.Do(t, ranks.WriteHTML(&b, r))
	return b.String()
}

func TestCountIsZeroForMissingValues(t *testing.T) {
	v := must.Get(ranks.ValuesOf(map[string]any{"list": []any{1, map[string]any{"n": 2}}, "n": 3, "less": -1}))(t)
	for path, want := range map[string]uint64{
		"n": 3, "list.0": 1, "list.1.n": 2,
		"": 0, "less": 0, "n.n": 0, "list": 0, "list.2": 0, "list.-1": 0, "list.x.1.n": 0, "missing.n": 0,
	} {
		if got := v.Count(path); got != want {
			t.Errorf("Count(%q) is %d, want %d", path, got, want)
		}
	}
}
