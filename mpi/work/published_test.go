package work_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/fabrictest/fabrictest/internal/must"
	"github.com/fabrictest/fabrictest/mpi"
	"github.com/fabrictest/fabrictest/mpi/carrier"
	"github.com/fabrictest/fabrictest/mpi/p2p"
	"github.com/fabrictest/fabrictest/mpi/work"
)

func figure(t *testing.T, r work.Result, name string) float64 {
	t.Helper()
	i := slices.IndexFunc(r.Figures, func(f work.Figure) bool { return f.Name == name })
	if i < 0 {
		t.Fatalf("no figure %q in %v", name, r)
	}
	return r.Figures[i].Value
}

// bounds are the limits of a figure.
type bounds struct{ low, high float64 }

func (b bounds) check(t *testing.T, what string, got float64) {
	t.Helper()
	if got < b.low || got > b.high {
		t.Errorf("%s: %.3g, not between %g and %g", what, got, b.low, b.high)
	}
	t.Logf("%s: %.3g", what, got)
}

var (
	nearlyAll = bounds{90, 100}
	little    = bounds{-1, 10}
)

// Overlap of computation with messages (Rashti 2010 §3.6.1 and §4.4.1, Fig. 4.13; Rashti 2007 §6).
// Eager messages overlap most. Of a rendezvous, senders overlap nearly all if the receiver
// reads, and little if they must wait for the address; receivers overlap less than a tenth,
// and nearly all with speculation. That costs senders up to 14 % if the receiver is first,
// and nothing otherwise.
func TestOverlapOfProtocols(t *testing.T) {
	const eager, large = 4 << 10, 1 << 20
	for _, c := range []struct {
		cfg  p2p.Config
		want map[string]bounds
	}{
		{rput, map[string]bounds{"send": little, "send, posted first,": little, "receive, posted first,": little, "receive, sent first,": little}},
		{rget, map[string]bounds{"send": nearlyAll, "send, posted first,": nearlyAll, "send, sent first,": nearlyAll, "receive, posted first,": little, "receive, sent first,": little}},
		{speculative, map[string]bounds{
			"send": nearlyAll, "send, posted first,": {86, 100}, "send, sent first,": nearlyAll,
			"receive, posted first,": {92, 100}, "receive, sent first,": {80, 100},
		}},
	} {
		r, _ := runOnTestbed(t, "overlap", c.cfg, 2, work.Params{Bytes: large})
		for side, want := range c.want {
			want.check(t, fmt.Sprintf("%v: %s overlap %%", c.cfg.Protocol, side), figure(t, r, fmt.Sprintf("%s overlap %d B", side, large)))
		}
		r, _ = runOnTestbed(t, "overlap", c.cfg, 2, work.Params{Bytes: eager})
		for _, side := range []string{"send", "receive, posted first,"} {
			nearlyAll.check(t, fmt.Sprintf("%v: eager %s overlap %%", c.cfg.Protocol, side), figure(t, r, fmt.Sprintf("%s overlap %d B", side, eager)))
		}
	}
}

// Progress of messages while a program computes (Rashti 2010 §3.6.2 and §4.4.1, Fig. 4.14;
// Rashti 2007 §7): by how much of a sender's delay a message is late, and how much of its time
// remains after a receiver's delay. Of an eager message that is only its copy.
func TestProgressOfProtocols(t *testing.T) {
	const eager, large = 4 << 10, 1 << 20
	all, none, some := bounds{85, 101}, bounds{-1, 5}, bounds{-1, 25}
	for _, c := range []struct {
		cfg  p2p.Config
		want map[string]bounds
	}{
		{rput, map[string]bounds{"send shifted": all, "receive, posted first, left": all, "receive, sent first, left": all}},
		{rget, map[string]bounds{"send shifted": none, "receive, posted first, left": all, "receive, sent first, left": all}},
		{speculative, map[string]bounds{
			"send shifted": none, "send, sent first, shifted": none, "send, posted first, shifted": {-1, 15},
			"receive, posted first, left": none, "receive, sent first, left": none,
		}},
	} {
		r, _ := runOnTestbed(t, "progress", c.cfg, 2, work.Params{Bytes: large})
		for what, want := range c.want {
			want.check(t, fmt.Sprintf("%v: %s %%", c.cfg.Protocol, what), figure(t, r, fmt.Sprintf("%s %d B", what, large)))
		}
		r, _ = runOnTestbed(t, "progress", c.cfg, 2, work.Params{Bytes: eager})
		none.check(t, fmt.Sprintf("%v: eager send shifted %%", c.cfg.Protocol), figure(t, r, fmt.Sprintf("send shifted %d B", eager)))
		some.check(t, fmt.Sprintf("%v: eager receive left %%", c.cfg.Protocol), figure(t, r, fmt.Sprintf("receive, posted first, left %d B", eager)))
	}
}

// With a progress task all messages progress while the program computes, with any protocol.
func TestBackgroundProgress(t *testing.T) {
	const large = 1 << 20
	for _, cfg := range []p2p.Config{rput, rget, speculative} {
		wl := must.Get(work.Find("progress"))(t)
		o := mpi.Options{P2P: cfg, Progress: mpi.Background, Carrier: carrier.Config{Design: carrier.SRQ}}
		results, _, err := inWorld(testbed(2), o, wl, work.Params{Bytes: large})
		must.Do(t, err)
		for _, what := range []string{"send shifted", "receive, posted first, left", "receive, sent first, left"} {
			little.check(t, fmt.Sprintf("%v: %s %%", cfg.Protocol, what), figure(t, results[0], fmt.Sprintf("%s %d B", what, large)))
		}
	}
}

// Exchanges of 128 KB (Rashti 2010 Fig. 4.16): with receives first, speculation shortens them by
// up to 32 %, most where communication takes about 80 % of the time of computation; with
// sends first by up to 20 %, at 50 %. Where either takes much longer, the gain is smaller.
// With receives first nearly all RTRs are used, and adaptation changes nothing; with sends
// first early progress finds RTSs.
func TestSpeculationGainOfExchanges(t *testing.T) {
	for _, c := range []struct {
		name     string
		best     bounds // best gain, in %
		at       bounds // position of the best gain: communication by computation, in %
		usesRTRs bool
	}{
		{"exchange1", bounds{20, 40}, bounds{40, 120}, true},
		{"exchange2", bounds{15, 35}, bounds{30, 120}, false},
	} {
		run := func(cfg p2p.Config, compute time.Duration) (time.Duration, p2p.Stats) {
			r, s := runOnTestbed(t, c.name, cfg, 2, work.Params{Iterations: 20, Bytes: 128 << 10, Compute: compute})
			return r.Time, s
		}
		alone, _ := run(rget, 0)
		communication := alone / 20
		best, bestAt := -100.0, 0.0
		var gains []float64
		for _, ratio := range []float64{5, 20, 40, 60, 80, 120, 1000} {
			compute := time.Duration(float64(communication) * 100 / ratio)
			before, _ := run(rget, compute)
			after, stats := run(speculative, compute)
			gain := 100 * (1 - after.Seconds()/before.Seconds())
			gains = append(gains, gain)
			if gain > best {
				best, bestAt = gain, ratio
				if c.usesRTRs && stats.RTRsUsed*10 < stats.RTRsReceived*9 {
					t.Errorf("%s: %d of %d RTRs are used at %.0f %%", c.name, stats.RTRsUsed, stats.RTRsReceived, ratio)
				}
				if adapted, _ := run(adaptive, compute); c.usesRTRs && adapted != after {
					t.Errorf("%s: %v with adaptation, %v without", c.name, adapted, after)
				}
			}
		}
		c.best.check(t, c.name+" gains % at best", best)
		c.at.check(t, c.name+" gains most where communication is % of computation", bestAt)
		if first, last := gains[0], gains[len(gains)-1]; first > best/2 || last > best*3/4 {
			t.Errorf("%s gains %.1f %% with much computation and %.1f %% with little, %.1f %% at best", c.name, first, last, best)
		}
	}
}

// Applications (Rashti 2010 §4.4.2, Fig. 4.17), by their wait time. BT, whose receives are
// posted before work, gains. LU, whose receives are of any source, sends no RTRs and
// changes little. CG, without computation between posting and waiting, gains nothing: too
// few of its RTRs are used, it waits longer, and adaptation restores nearly all.
func TestApplicationsBySpeculation(t *testing.T) {
	change := func(name string, cfg p2p.Config, p work.Params) (percent float64, s p2p.Stats) {
		before, _ := runOnTestbed(t, name, p2p.Config{Protocol: p2p.RGET, EagerLimit: cfg.EagerLimit}, 4, p)
		after, s := runOnTestbed(t, name, cfg, 4, p)
		return 100 * (after.Waited.Seconds()/before.Waited.Seconds() - 1), s
	}
	small := speculative
	small.EagerLimit = 512
	waits, _ := change("bt", small, work.Params{Class: work.ClassS, Iterations: 4, Compute: time.Millisecond})
	bounds{-40, -10}.check(t, "bt waits longer by %", waits)

	waits, s := change("lu", small, work.Params{Class: work.ClassS, Iterations: 4, Compute: time.Millisecond})
	bounds{-7, 3}.check(t, "lu waits longer by %", waits)
	if s.RTRsReceived != 0 {
		t.Errorf("lu: %d RTRs", s.RTRsReceived)
	}

	cg := work.Params{Class: work.ClassW, Iterations: 100, Compute: 100 * time.Microsecond}
	without, s := change("cg", speculative, cg)
	bounds{10, 70}.check(t, "cg waits longer by % without adaptation", without)
	if s.RTRsUsed*10 > s.RTRsReceived*8 {
		t.Errorf("cg: %d of %d RTRs are used", s.RTRsUsed, s.RTRsReceived)
	}
	with, s := change("cg", adaptive, cg)
	bounds{-5, without / 3}.check(t, "cg waits longer by % with adaptation", with)
	if s.SpeculationStopped == 0 {
		t.Error("cg: speculation did not stop")
	}
}
