package nslab

import (
	"testing"

	"github.com/fabrictest/fabrictest/internal/must"
	"github.com/fabrictest/fabrictest/lab"
	"github.com/fabrictest/fabrictest/lab/simlab"
	"github.com/fabrictest/fabrictest/report"
	"github.com/fabrictest/fabrictest/scenarios"
)

// runOnBothTiers runs a scenario in simulation and in namespaces, with the same
// check.
func runOnBothTiers(t *testing.T, text string, check func(t *testing.T, r *report.Result)) {
	t.Helper()
	needNamespaces(t)
	s := must.Get(scenarios.Parse("test.yaml", []byte("version: 1\nname: test\ntitle: A test\n"+text)))(t)
	t.Run("sim", func(t *testing.T) { check(t, simlab.Run(t.Context(), s, lab.Options{})) })
	t.Run("netns", func(t *testing.T) { check(t, Run(t.Context(), s, lab.Options{})) })
}

// A link counts packets offered to it, from their IP headers on, including those
// that it drops.
func TestLinkCountersEqualOnBothTiers(t *testing.T) {
	t.Parallel()
	runOnBothTiers(t, `
fabric: {kind: star, hosts: 2}
impair: [{on: [host0, host1], way: both, loss: 5%}]
workload: {kind: stream, op: send, messages: 300, bytes: 1KiB, timeout: 60ms}
`, func(t *testing.T, r *report.Result) {
		passed(t, r)
		for _, way := range [][2]string{{"host0/rdma0", "host1/rdma0"}, {"host1/rdma0", "host0/rdma0"}} {
			first, second := linkOf(t, r, way[0], "switch0"), linkOf(t, r, "switch0", way[1])
			if first.Lost["loss"] == 0 || second.Lost["loss"] == 0 || second.Packets != first.Packets-first.Lost["loss"] || second.Coarse {
				t.Errorf("from %s: %d packets, lost %v; then %d packets, lost %v", way[0], first.Packets, first.Lost, second.Packets, second.Lost)
			}
		}
		// Of IPv6, UDP, BTH, data and ICRC: those of the acknowledgements are shorter.
		const data = 40 + 8 + 12 + 1024 + 4
		if l := linkOf(t, r, "host0/rdma0", "switch0"); l.Bytes > l.Packets*data || l.Bytes < l.Packets*data/2 {
			t.Errorf("%d packets of %d bytes", l.Packets, l.Bytes)
		}
	})
}

func TestDownLinksCountDrops(t *testing.T) {
	t.Parallel()
	runOnBothTiers(t, `
fabric: {kind: star, hosts: 2}
faults: [{at: 50ms, do: down, on: [host1], for: 400ms}]
workload: {kind: stream, op: send, messages: 500, bytes: 4KiB, think: 1ms, timeout: 100ms, retries: 7}
expect: {delivered: exactly-once, retransmits: {min: 1}, lost: {min: 1}}
`, func(t *testing.T, r *report.Result) {
		passed(t, r)
		if l := linkOf(t, r, "switch0", "host1/rdma0"); l.Lost["link_down"] == 0 || l.Coarse {
			t.Errorf("lost %v", l.Lost)
		}
		for _, l := range r.Links {
			if len(l.Lost) > 1 || len(l.Lost) == 1 && l.Lost["link_down"] == 0 {
				t.Errorf("from %s to %s: lost %v", l.From, l.To, l.Lost)
			}
		}
	})
}

// Both directions are down. In simulation the NICs see the carrier and send
// nothing; in namespaces they do not. The link is down for several timeouts, so
// that each host sends meanwhile.
func TestDownLinkBetweenTwoHosts(t *testing.T) {
	t.Parallel()
	r := run(t, `
fabric: {kind: pair}
faults: [{at: 50ms, do: down, on: [host1], for: 400ms}]
workload: {kind: all-to-all, messages: 500, bytes: 4KiB, think: 1ms, timeout: 100ms, retries: 7}
expect: {delivered: exactly-once, retransmits: {min: 1}}
`, lab.Options{})
	passed(t, r)
	for _, l := range r.Links {
		if len(l.Lost) != 1 || l.Lost["link_down"] == 0 {
			t.Errorf("from %s to %s: lost %v", l.From, l.To, l.Lost)
		}
	}
}

func TestFaultsSkipEndedRanks(t *testing.T) {
	t.Parallel()
	runOnBothTiers(t, `
fabric: {kind: pair}
faults:
  - {at: 30ms, do: freeze, on: [host1], for: 100ms}
  - {at: 60ms, do: kill, on: [host1]}
workload: {kind: stream, op: send, messages: 3000, bytes: 4KiB, think: 1ms, timeout: 100ms}
expect: {delivered: at-most-once, killed: [host1], errors: {host0: [retry exceeded]}}
`, func(t *testing.T, r *report.Result) {
		passed(t, r)
		if len(r.Faults) != 2 {
			t.Errorf("faults %+v", r.Faults)
		}
	})
}

func TestTimeLimitEndsRunBeforeLaterFaults(t *testing.T) {
	t.Parallel()
	runOnBothTiers(t, `
limit: 300ms
fabric: {kind: pair}
faults: [{at: 100ms, do: freeze, on: [host1], for: 10m}]
workload: {kind: stream, op: send, messages: 2000, bytes: 1KiB, think: 1ms, timeout: 10s}
`, func(t *testing.T, r *report.Result) {
		// A lab process that waited for the fault to end would be given up, and broken.
		if r.Verdict != report.Failed && r.Verdict != report.Starved {
			t.Errorf("%s after %v: %s", r.Verdict, r.Wall, r.Reason)
		}
	})
}
