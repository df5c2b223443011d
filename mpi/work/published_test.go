package work_test

import (
	"testing"
	"time"

	"github.com/fabrictest/fabrictest/lab/mpihost"
	"github.com/fabrictest/fabrictest/mpi"
	"github.com/fabrictest/fabrictest/mpi/p2p"
	"github.com/fabrictest/fabrictest/mpi/work"
)

// by runs a workload with a rendezvous protocol, each rank on a host of its own, and
// returns its result with the statistics of all ranks.
func by(t *testing.T, name string, protocol p2p.Protocol, ranks int, p work.Params) (work.Result, []mpi.Stats) {
	t.Helper()
	wl, err := work.Find(name)
	if err != nil {
		t.Fatal(err)
	}
	var stats []mpi.Stats
	o := mpi.Options{Ended: func(_ int, s mpi.Stats) { stats = append(stats, s) }}
	o.P2P.Protocol, o.P2P.EagerLimit = protocol, 512
	results, _, err := inWorld(mpihost.Fabric{Ranks: ranks, Limit: time.Minute}, o, wl, p)
	if err != nil {
		t.Fatalf("%s by %v: %v", name, protocol, err)
	}
	return results[0], stats
}

func figure(t *testing.T, r work.Result, name string) float64 {
	t.Helper()
	f, ok := r.Figure(name)
	if !ok {
		t.Fatalf("no figure %q in %v", name, r)
	}
	return f.Value
}

// Who sends hides computing where the receiver fetches the data, and not where it waits
// to be told where to; who receives does so only by speculation (Thesis §3.6.1, §4.4.1).
func TestOverlapOfProtocols(t *testing.T) {
	const size = " overlap 262144 B"
	p := work.Params{Class: work.ClassS, Bytes: 256 << 10}
	rput, _ := by(t, "overlap", p2p.RPUT, 2, p)
	rget, _ := by(t, "overlap", p2p.RGET, 2, p)
	speculative, _ := by(t, "overlap", p2p.Speculative, 2, p)
	if a, b := figure(t, rput, "send"+size), figure(t, rget, "send"+size); a > 30 || b < 90 {
		t.Errorf("senders hide %.0f %% by RPUT and %.0f %% by RGET", a, b)
	}
	for _, who := range []string{"receive, posted first,", "receive, sent first,"} {
		if a, b, c := figure(t, rput, who+size), figure(t, rget, who+size), figure(t, speculative, who+size); a > 20 || b > 20 || c < 80 {
			t.Errorf("%s hides %.0f %% by RPUT, %.0f %% by RGET and %.0f %% by speculation", who, a, b, c)
		}
	}
}

// The same holds for what moves while a program is busy (Thesis §3.6.2).
func TestProgressOfProtocols(t *testing.T) {
	p := work.Params{Class: work.ClassS, Bytes: 256 << 10}
	rput, _ := by(t, "progress", p2p.RPUT, 2, p)
	rget, _ := by(t, "progress", p2p.RGET, 2, p)
	speculative, _ := by(t, "progress", p2p.Speculative, 2, p)
	if a, b := figure(t, rput, "send shifted 262144 B"), figure(t, rget, "send shifted 262144 B"); a < 90 || b > 5 {
		t.Errorf("a sender's delay shifts messages by %.0f %% of it by RPUT and %.0f %% by RGET", a, b)
	}
	const left = "receive, posted first, left 262144 B"
	if a, b, c := figure(t, rput, left), figure(t, rget, left), figure(t, speculative, left); a < 70 || b < 70 || c > 10 {
		t.Errorf("behind a receiver's delay %.0f %% of a message are left by RPUT, %.0f %% by RGET and %.0f %% by speculation", a, b, c)
	}
}

// Speculation shortens exchanges whose communication and computation take about as long
// (Thesis Fig. 4.16), and the waits of who posts receives early (BT); it does nothing where
// sources are not known (LU: Thesis §4.4.2).
func TestSpeculationPays(t *testing.T) {
	for _, name := range []string{"exchange1", "exchange2"} {
		p := work.Params{Iterations: 20, Bytes: 128 << 10, Compute: 30 * time.Microsecond}
		before, _ := by(t, name, p2p.RGET, 2, p)
		after, _ := by(t, name, p2p.Speculative, 2, p)
		if gain := 1 - after.Time.Seconds()/before.Time.Seconds(); gain < 0.15 {
			t.Errorf("%s: %v by speculation, %v without", name, after.Time, before.Time)
		}
	}
	p := work.Params{Class: work.ClassS, Iterations: 4, Compute: 200 * time.Microsecond}
	before, _ := by(t, "bt", p2p.RGET, 4, p)
	after, _ := by(t, "bt", p2p.Speculative, 4, p)
	if gain := 1 - after.Waited.Seconds()/before.Waited.Seconds(); gain < 0.15 {
		t.Errorf("bt waits %v by speculation, %v without", after.Waited, before.Waited)
	}
	_, stats := by(t, "lu", p2p.Speculative, 4, work.Params{Compute: 200 * time.Microsecond})
	for rank, s := range stats {
		if s.P2P.RTRsUsed != 0 {
			t.Errorf("lu: rank %d has used %d RTRs", rank, s.P2P.RTRsUsed)
		}
	}
}
