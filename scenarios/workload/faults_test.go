package workload_test

import (
	"strings"
	"testing"
	"time"

	"github.com/fabrictest/fabrictest/emu/impair"
	"github.com/fabrictest/fabrictest/emu/mono"
	"github.com/fabrictest/fabrictest/internal/must"
	"github.com/fabrictest/fabrictest/scenarios/workload"
)

// at runs f at a time of the world.
func (r *rig) at(d time.Duration, f func()) { r.World.AtFunc(mono.Time(d), f) }

// kill ends a rank as kill -9 would.
func (r *rig) kill(rank int) {
	if err := r.procs[rank].Kill(); err != nil {
		r.t.Error(err)
	}
	for _, d := range r.nics[rank] {
		d.Close()
	}
}

// statuses lists the failures of a rank by status.
func statuses(r *workload.Report) string {
	var all []string
	for _, f := range r.Failures {
		if len(all) == 0 || all[len(all)-1] != f.Status {
			all = append(all, f.Status)
		}
	}
	return strings.Join(all, " ")
}

const (
	retryExceeded = "IBV_WC_RETRY_EXC_ERR"
	rnrExceeded   = "IBV_WC_RNR_RETRY_EXC_ERR"
	flushed       = "IBV_WC_WR_FLUSH_ERR"
)

func marked(r *rig, what string) bool {
	for _, m := range r.marks {
		if strings.Contains(m, what) {
			return true
		}
	}
	return false
}

func TestLostPacketsAreRetransmitted(t *testing.T) {
	t.Parallel()
	for _, cfg := range thinned(workloads(), 2) {
		t.Run(nameOf(cfg), func(t *testing.T) {
			cfg.Excuses = []string{workload.ExcuseLoses}
			r := newRig(t, 4, 1, impair.Spec{LossPPM: 50_000})
			reports := r.run(cfg)
			noFailures(t, reports)
			resent := uint64(0)
			for _, p := range reports {
				for _, v := range p.Violations {
					t.Errorf("rank %d: %s", p.Rank, v)
				}
				for _, f := range p.Flows {
					switch f.Service {
					case workload.ServiceUC, workload.ServiceUD:
						if f.Expected > 0 && (f.Arrived == 0 || f.Arrived > f.Expected) {
							t.Errorf("rank %d: %+v", p.Rank, f)
						}
						resent++
					default:
						if f.Arrived != f.Expected || f.Duplicates+f.Reordered > 0 {
							t.Errorf("rank %d: %+v", p.Rank, f)
						}
					}
				}
				for _, c := range p.Counters {
					if c.Name == "retransmitted_pkts" || c.Name == "mads_sent" {
						resent += c.Value
					}
				}
			}
			if resent == 0 {
				t.Error("no retransmissions: was anything lost?")
			}
		})
	}
}

// Loss, duplication and reordering of an unreliable service are violations unless the
// scenario excuses them.
func TestExcusedFaultsAreNotViolations(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		excuse string
		spec   impair.Spec
		want   string
	}{
		{workload.ExcuseLoses, impair.Spec{LossPPM: 50_000}, "never arrived"},
		{workload.ExcuseDuplicates, impair.Spec{DuplicatePPM: 50_000}, "arrived twice"},
		{workload.ExcuseReorders, impair.Spec{ReorderPPM: 50_000, ReorderDelay: 2 * time.Microsecond}, "arrived after message"},
	} {
		cfg := workload.Config{Kind: workload.Stream, Services: []string{workload.ServiceUD}, Messages: 300, Bytes: 1000}
		found := newRig(t, 2, 1, tc.spec).run(cfg)[1].Violations
		if !strings.Contains(listed(found), tc.want) {
			t.Errorf("%s: violations %q, want one with %q", tc.excuse, found, tc.want)
		}
		cfg.Excuses = []string{tc.excuse}
		if found := newRig(t, 2, 1, tc.spec).run(cfg)[1].Violations; len(found) > 0 {
			t.Errorf("%s is excused: %q", tc.excuse, found)
		}
	}
}

// reconnecting returns workloads that can reconnect, long enough for a fault to hit them.
func reconnecting() (all []workload.Config) {
	for _, cfg := range workloads() {
		switch {
		case cfg.Kind == workload.Random, cfg.Services[0] == workload.ServiceUC, cfg.Services[0] == workload.ServiceUD:
			continue
		case cfg.Kind == workload.Calls:
			cfg.Think = time.Millisecond
		default:
			cfg.Timeout = 300 * time.Microsecond
			cfg.Think = 100 * time.Microsecond
		}
		cfg.Reconnect = true
		cfg.Retries = new(int)
		*cfg.Retries = 2
		all = append(all, cfg)
	}
	return all
}

func TestReconnectAfterFlap(t *testing.T) {
	t.Parallel()
	for _, cfg := range thinned(reconnecting(), 0) {
		t.Run(nameOf(cfg), func(t *testing.T) {
			r := newRig(t, 4, 1)
			r.at(3*time.Millisecond, r.ports[0][1].SetDown)
			r.at(12*time.Millisecond, r.ports[0][1].SetUp)
			reports := r.run(cfg)
			clean(t, reports)
			if cfg.Kind == workload.Calls {
				return // the retries of the CM may bridge the gap
			}
			if reports[0].Reconnects == 0 || reports[1].Reconnects == 0 || !marked(r, "reconnected host1") {
				t.Errorf("no reconnects: %d and %d times\n%s", reports[0].Reconnects, reports[1].Reconnects, strings.Join(r.marks, "\n"))
			}
			if reports[0].FailureCount+reports[1].FailureCount == 0 {
				t.Error("no failures are reported")
			}
		})
	}
}

// Broken queue pairs are replaced, and outstanding messages are sent again.
func TestReconnectAfterBreak(t *testing.T) {
	t.Parallel()
	for _, cfg := range thinned(reconnecting(), 1) {
		t.Run(nameOf(cfg), func(t *testing.T) {
			r := newRig(t, 4, 1)
			times := []time.Duration{2 * time.Millisecond, 2500 * time.Microsecond, 4 * time.Millisecond}
			if cfg.Kind == workload.Calls {
				cfg.Think = 0
				times = nil
				for d := 240 * time.Microsecond; d < 440*time.Microsecond; d += 13 * time.Microsecond {
					times = append(times, d)
				}
			}
			for i, d := range times {
				r.at(d, func() { r.breakRank(i % 2) })
			}
			reports := r.run(cfg)
			clean(t, reports)
			if reports[0].Reconnects == 0 || reports[1].Reconnects == 0 {
				t.Errorf("reconnected %d and %d times\n%s", reports[0].Reconnects, reports[1].Reconnects, strings.Join(r.marks, "\n"))
			}
			// A rank that only receives from an SRQ has nothing to flush.
			if got := statuses(reports[0]) + statuses(reports[1]); !strings.Contains(got, flushed) {
				t.Errorf("ranks 0 and 1 saw %q, want %s", got, flushed)
			}
		})
	}
}

// Without reconnect a failure ends the flow at both ends, and nothing hangs.
func TestFailureWithoutReconnectEndsFlow(t *testing.T) {
	t.Parallel()
	for _, cfg := range thinned(reconnecting(), 2) {
		t.Run(nameOf(cfg), func(t *testing.T) {
			cfg.Reconnect = false
			r := newRig(t, 4, 1)
			r.at(3*time.Millisecond, r.ports[0][1].SetDown)
			if cfg.Kind == workload.Calls {
				r.at(2*time.Millisecond, r.ports[0][1].SetDown)
			}
			reports := r.run(cfg)
			arrived, expected := 0, 0
			for _, p := range reports {
				if len(p.Violations) > 0 {
					t.Errorf("rank %d: %q", p.Rank, p.Violations)
				}
				for _, f := range p.Flows {
					arrived, expected = arrived+f.Arrived, expected+f.Expected
					if f.Duplicates+f.Reordered > 0 || f.Arrived < f.Expected && f.Peer != 1 && p.Rank != 1 && cfg.Kind != workload.Halo {
						t.Errorf("rank %d: %+v", p.Rank, f)
					}
				}
			}
			if arrived == 0 || arrived == expected {
				t.Errorf("%d of %d messages arrived, want some", arrived, expected)
			}
			got := statuses(reports[0]) + statuses(reports[1])
			if want := retryExceeded; cfg.Kind != workload.Calls && !strings.Contains(got, want) {
				t.Errorf("ranks 0 and 1 saw %q, want %s", got, want)
			}
		})
	}
}

// A killed rank ends its flows, and no others.
func TestKilledPeerEndsItsFlows(t *testing.T) {
	t.Parallel()
	for _, cfg := range append(thinned(reconnecting(), 1), workload.Config{
		Kind: workload.Random, Services: []string{workload.ServiceRC}, Messages: 3000, Excuses: []string{workload.ExcuseGivesUp},
	}) {
		t.Run(nameOf(cfg), func(t *testing.T) {
			r := newRig(t, 4, 1)
			r.start(cfg)
			r.at(2*time.Millisecond, func() { r.kill(1) })
			must.Do(t, r.RunPrograms())
			for rank, p := range r.reports {
				if rank == 1 {
					continue
				}
				if r.errs[rank] != nil || len(p.Violations) > 0 {
					t.Errorf("rank %d: %v, %q", rank, r.errs[rank], p.Violations)
				}
				for _, f := range p.Flows {
					if f.Duplicates+f.Reordered > 0 || f.Arrived < f.Expected && f.Peer != 1 && cfg.Kind != workload.Halo {
						t.Errorf("rank %d: %+v", rank, f)
					}
				}
			}
			if !marked(r, "host1 is gone") {
				t.Errorf("the loss was not detected:\n%s", strings.Join(r.marks, "\n"))
			}
			sends := cfg.Op == workload.OpSend || cfg.Op == workload.OpWrite
			if got := statuses(r.reports[0]); sends && cfg.Kind != workload.Incast && got != retryExceeded {
				t.Errorf("rank 0 saw %q, want %s", got, retryExceeded)
			}
		})
	}
}

func TestFailoverToAnotherRail(t *testing.T) {
	t.Parallel()
	for _, reconnect := range []bool{false, true} {
		for _, cfg := range thinned(reconnecting(), 0) {
			if cfg.Kind == workload.Calls || cfg.Services[0] == workload.ServiceXRC || reconnect && cfg.Kind != workload.Halo {
				continue
			}
			cfg.Failover, cfg.Reconnect = true, reconnect
			t.Run(nameOf(cfg), func(t *testing.T) {
				r := newRig(t, 4, 2)
				r.at(2*time.Millisecond, r.ports[0][1].SetDown)
				reports := r.run(cfg)
				clean(t, reports)
				if !marked(r, "failover to rail 1") || reports[0].Reconnects == 0 {
					t.Errorf("no failover:\n%s", strings.Join(r.marks, "\n"))
				}
				for _, f := range reports[1].Flows {
					if f.Rail != 1 {
						t.Errorf("rank 1 ends on the failed rail: %+v", f)
					}
				}
			})
		}
	}
}

func TestSlowReceiverCausesRNR(t *testing.T) {
	t.Parallel()
	for _, kind := range []workload.Kind{workload.Stream, workload.Incast, workload.AllToAll, workload.Random} {
		for _, service := range []string{workload.ServiceRC, workload.ServiceSRQ, workload.ServiceXRC} {
			cfg := workload.Config{Kind: kind, Services: []string{service}, Messages: 60, Bytes: 3000, Depth: 8, Pause: 200 * time.Microsecond}
			if kind == workload.Random {
				cfg.Messages = 800 // an SRQ starts full
			}
			r := newRig(t, 4, 1)
			reports := r.run(cfg)
			clean(t, reports)
			noFailures(t, reports)
			naks := uint64(0)
			for _, p := range reports {
				for _, c := range p.Counters {
					if c.Name == "sent_rnr_nak" {
						naks += c.Value
					}
				}
			}
			if naks == 0 {
				t.Errorf("%s: no RNR NAKs", nameOf(cfg))
			}
		}
	}
	one := 1
	r := newRig(t, 2, 1)
	reports := r.run(workload.Config{Kind: workload.Stream, Messages: 60, Bytes: 3000, Pause: 20 * time.Millisecond, RNRRetries: &one})
	if got := statuses(reports[0]); got != rnrExceeded {
		t.Errorf("rank 0 saw %q, want %s", got, rnrExceeded)
	}
}

func TestMTUMismatchIsReported(t *testing.T) {
	t.Parallel()
	cfg := workload.Config{Kind: workload.Stream, Messages: 20, Bytes: 10_000, MTU: []int{1024}}
	clean(t, newRig(t, 4, 1).run(cfg))
	cfg.MTU = []int{4096, 1024}
	reports := newRig(t, 2, 1).run(cfg)
	if got := statuses(reports[0]); got != "IBV_WC_REM_INV_REQ_ERR" {
		t.Errorf("packets larger than the receiver's MTU: %q", got)
	}
	if f := reports[1].Flows[0]; f.Arrived != 0 {
		t.Errorf("rank 1: %+v", f)
	}
}
