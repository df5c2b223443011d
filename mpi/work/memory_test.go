package work_test

import (
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fabrictest/fabrictest/internal/must"
	"github.com/fabrictest/fabrictest/lab/mpihost"
	"github.com/fabrictest/fabrictest/mpi"
	"github.com/fabrictest/fabrictest/mpi/carrier"
	"github.com/fabrictest/fabrictest/mpi/memory"
	"github.com/fabrictest/fabrictest/mpi/transport"
	"github.com/fabrictest/fabrictest/mpi/work"
)

// start runs a program as all ranks of a world, with one rank per host.
func start(ranks int, o mpi.Options, program func(*mpi.World) error) error {
	return must.Err(mpihost.InWorld(mpihost.Fabric{Ranks: ranks, Limit: time.Minute}, func(e *transport.Env) error { return mpi.Run(e, o, program) }))
}

// The workload of docs/mpi.md is that of neighbour_test.go, and it runs.
func TestDocumentedWorkload(t *testing.T) {
	doc, code := must.Get(os.ReadFile("../../docs/mpi.md"))(t), must.Get(os.ReadFile("neighbour_test.go"))(t)
	if !strings.Contains(string(doc), "```go\n"+string(code)+"```") {
		t.Error("the workload in docs/mpi.md is not that of neighbour_test.go")
	}
	must.Do(t, start(4, mpi.Options{}, func(w *mpi.World) error { return must.Err(work.Neighbour.Run(w, work.Params{Class: work.ClassT})) }))
}

// memoryCurves measures some patterns, and returns points by pattern, design and ranks.
func memoryCurves(t *testing.T, cfg carrier.Config, patterns []string, designs ...carrier.Design) func(string, carrier.Design, int) work.MemoryPoint {
	t.Helper()
	var ps []work.MemoryPattern
	for _, p := range work.MemoryPatterns() {
		if slices.Contains(patterns, p.Workload) {
			ps = append(ps, p)
		}
	}
	points := measureMemory(t, cfg, ps, designs, 4, 16)
	return func(pattern string, d carrier.Design, ranks int) work.MemoryPoint {
		for _, p := range points {
			if p.Workload == pattern && p.Design == d && p.Ranks == ranks {
				return p
			}
		}
		t.Fatalf("no point of %s with %s on %d ranks", pattern, d, ranks)
		return work.MemoryPoint{}
	}
}

func measureMemory(t *testing.T, cfg carrier.Config, ps []work.MemoryPattern, designs []carrier.Design, ranks ...int) (points []work.MemoryPoint) {
	t.Helper()
	e := work.MemoryExperiment{Patterns: ps, Designs: designs}
	for _, r := range must.Get(e.Runs(ranks))(t) {
		p := must.Get(r.Measure(start, mpi.Options{Carrier: cfg}))(t)
		points = append(points, p)
		t.Logf("%-10s %-13s %4d ranks: %6.0f KB, %4.1f connections, %4.1f rings", p.Workload, p.Design, p.Ranks, p.Bytes.Mean/1024, p.Connections.Mean, p.Rings.Mean)
	}
	return points
}

// Connections need memory for their receives, datagrams do not: memory grows with the
// number of partners.
func TestConnectionMemoryGrowsWithPartners(t *testing.T) {
	at := memoryCurves(t, work.RashtiMemory(), []string{"alltoall", "cg"}, carrier.SendRecv, carrier.UD)
	for _, ranks := range []int{4, 16} {
		all := at("alltoall", carrier.SendRecv, ranks)
		if all.Connections.Mean != float64(ranks-1) {
			t.Errorf("alltoall on %d ranks: %v connections", ranks, all.Connections)
		}
		if each := (all.Bytes.Mean - at("alltoall", carrier.UD, ranks).Bytes.Mean) / float64(ranks-1); each < 700e3 || each > 900e3 {
			t.Errorf("a connection on %d ranks: %.0f bytes, not about 800 KB", ranks, each)
		}
	}
	for _, pattern := range []string{"alltoall", "cg"} {
		if few, many := at(pattern, carrier.UD, 4).Bytes, at(pattern, carrier.UD, 16).Bytes; many.Most > few.Most*1.25 {
			t.Errorf("%s by datagrams: from %v on 4 ranks to %v on 16", pattern, few, many)
		}
	}
	if few, all := at("cg", carrier.SendRecv, 16).Bytes.Mean, at("alltoall", carrier.SendRecv, 16).Bytes.Mean; few > all*0.6 {
		t.Errorf("on 16 ranks cg has %.0f bytes of connections, alltoall %.0f", few, all)
	}
}

// Shared receives do not grow with ranks and stay below 5 MB; rings and receives per
// connection grow. How much they grow is measured by the scenarios sur-2006-memory-*.
func TestSharedReceiveMemoryIsConstant(t *testing.T) {
	at := memoryCurves(t, work.SurMemory(), []string{"alltoall"}, carrier.SRQ, carrier.RingSRQ, carrier.RingSendRecv)
	few, many := at("alltoall", carrier.SRQ, 4), at("alltoall", carrier.SRQ, 16)
	if many.Bytes.Most > 5e6 || many.Bytes.Most > few.Bytes.Most*1.1 {
		t.Errorf("shared receives: from %v on 4 ranks to %v on 16", few.Bytes, many.Bytes)
	}
	rings := at("alltoall", carrier.RingSRQ, 16)
	if each := (rings.Bytes.Mean - many.Bytes.Mean) / rings.Rings.Mean; rings.Rings.Mean != 15 || each < 450e3 || each > 600e3 {
		t.Errorf("%v rings of %.0f bytes each, not 15 of about 500 KB", rings.Rings, each)
	}
	if own := at("alltoall", carrier.RingSendRecv, 16).Bytes.Mean; own <= rings.Bytes.Mean {
		t.Errorf("with receives of every connection a rank has %.0f bytes, with shared receives %.0f", own, rings.Bytes.Mean)
	}
}

// With shared receives alone a rank has at most 5 MB, and hardly more than on 4 ranks: with all
// others as partners in bursts on 32 ranks (smg), and in turn on 200 (star).
func TestSharedReceivesDoNotGrow(t *testing.T) {
	const most = 5e6
	for _, c := range []struct {
		pattern     work.MemoryPattern
		ranks       int
		connections float64 // at least
	}{
		{work.MemoryPattern{Workload: "smg", Params: work.Params{Iterations: 1}}, 32, 10},
		{work.MemoryPattern{Workload: "star", Rank0Only: true}, 200, 199},
	} {
		points := measureMemory(t, work.SurMemory(), []work.MemoryPattern{c.pattern}, []carrier.Design{carrier.SRQ}, 4, c.ranks)
		few, many := points[0], points[1]
		if many.Bytes.Most > most || many.Bytes.Most > 1.05*few.Bytes.Most || many.Connections.Most < c.connections {
			t.Errorf("%s on %d ranks: %v bytes, %v connections; on %d: %v bytes", many.Workload, many.Ranks, many.Bytes, many.Connections, few.Ranks, few.Bytes)
		}
	}
}

// On iWARP, where a packet without a receive ends the connection, the number of shared
// receives follows the number of connections, not that of ranks.
func TestSharedReceivesOnStreams(t *testing.T) {
	wl := must.Get(work.Find("ring"))(t)
	const ranks, each, packet = 128, 32 + 4 /* receives of a connection, with reserved credits */, 8 << 10
	o := mpi.Options{Carrier: carrier.Config{Design: carrier.SRQ, PacketSize: packet}}
	o.OnFinalize = func(rank int, s mpi.Stats) {
		c := s.Carrier.(carrier.Stats)
		need := max(256, c.MaxConnections*each)
		if got := c.Memory.Max[memory.SharedReceiveBuffers] / packet; got < need || got > need+256 || c.MaxConnections < 8 {
			t.Errorf("rank %d: %d shared receives for %d connections, which need %d", rank, got, c.MaxConnections, need)
		}
	}
	if _, _, err := inWorld(mpihost.Fabric{Ranks: ranks, Provider: "softiwarp", Limit: time.Minute}, o, wl, work.Params{}); err != nil {
		t.Fatal(err)
	}
}

// A rank with all others as partners has as much memory when these have no other partners:
// star measures it where an all-to-all would not fit into a machine.
func TestStarMemoryEqualsAllToAllMemory(t *testing.T) {
	all := map[carrier.Design]work.MemoryPoint{}
	e := work.MemoryExperiments()[0]
	for _, p := range measureMemory(t, e.Config, []work.MemoryPattern{
		{Workload: "alltoall", Params: work.Params{Iterations: 20, Bytes: 1 << 10}}, {Workload: "star", Params: work.Params{Iterations: 20}, Rank0Only: true},
	}, e.Designs, 8) {
		if !p.Rank0Only {
			all[p.Design] = p
			continue
		}
		full := all[p.Design]
		if d := p.Bytes.Mean / full.Bytes.Mean; d < 0.97 || d > 1.03 || p.Connections != full.Connections || p.Design != carrier.Hybrid && p.Rings.Mean < full.Rings.Mean {
			t.Errorf("%s: rank 0 of star has %v, of alltoall %v", p.Design, p, full)
		}
	}
}

// The experiments run at the published numbers of ranks, and the curves up to a thousand.
func TestMemoryExperiments(t *testing.T) {
	ranks := []int{4, 8, 16, 32, 64, 128, 256, 512, 1024}
	for _, e := range work.MemoryExperiments() {
		runs := must.Get(e.Runs(ranks))(t)
		has := map[string]bool{}
		for i := range runs {
			has[runs[i].String()] = true
		}
		last := 64
		if e.Name == work.MemoryByRanks {
			last = 1024
		}
		for _, p := range e.Patterns {
			for _, d := range e.Designs {
				want := work.MemoryRun{MemoryPattern: p, Design: d, Ranks: last}
				if p.MaxRanks > 0 {
					want.Ranks = p.MaxRanks
				}
				if !has[want.String()] {
					t.Errorf("%s has no %v", e.Name, &want)
				}
			}
		}
	}
}
