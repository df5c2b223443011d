package nslab

import (
	"strings"
	"testing"

	"github.com/fabrictest/fabrictest/internal/must"
	"github.com/fabrictest/fabrictest/lab"
	"github.com/fabrictest/fabrictest/lab/simlab"
	"github.com/fabrictest/fabrictest/netns"
	"github.com/fabrictest/fabrictest/report"
	"github.com/fabrictest/fabrictest/scenarios"
)

// runOnBothTiers runs a scenario in simulation and in namespaces, with the same check.
func runOnBothTiers(t *testing.T, text string, check func(t *testing.T, r *report.Result)) {
	t.Helper()
	needNamespaces(t)
	s := must.Get(scenarios.Parse("test.yaml", []byte("version: 1\nname: test\ntitle: A test\n"+text)))(t)
	t.Run("sim", func(t *testing.T) { check(t, simlab.Run(t.Context(), s, lab.Options{})) })
	t.Run("netns", func(t *testing.T) { check(t, runUnstarved(t, s, lab.Options{})) })
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
		for _, dir := range [][2]string{{"host0/rdma0", "host1/rdma0"}, {"host1/rdma0", "host0/rdma0"}} {
			first, second := linkOf(t, r, dir[0], "switch0"), linkOf(t, r, "switch0", dir[1])
			if first.Lost["loss"] == 0 || second.Lost["loss"] == 0 || second.Packets != first.Packets-first.Lost["loss"] || second.KernelCounted {
				t.Errorf("from %s: %d packets, lost %v; then %d packets, lost %v", dir[0], first.Packets, first.Lost, second.Packets, second.Lost)
			}
		}
		// IPv6, UDP, BTH, data and ICRC. Acknowledgements are shorter.
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
		if l := linkOf(t, r, "switch0", "host1/rdma0"); l.Lost["link_down"] == 0 || l.KernelCounted {
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
		// If the lab process waited for the end of the fault, the verdict would be Broken.
		if r.Verdict != report.Failed && r.Verdict != report.Starved {
			t.Errorf("%s after %v: %s", r.Verdict, r.Wall, r.Reason)
		}
	})
}

// Each event breaks a connection once, and the requests are posted again.
func TestStreamEventsReconnectOnBothTiers(t *testing.T) {
	t.Parallel()
	runOnBothTiers(t, `
fabric: {kind: star, hosts: 2}
nic: {provider: softiwarp}
events:
  - {on: [host0], conn: 1, offset: 50001, do: reset}
  - {on: [host1], way: in, conn: 2, offset: 50001, do: corrupt_bit, bit: 5}
  - {on: [host0], conn: 3, offset: 50001, do: drop}
  - {on: [host0], conn: 3, offset: 90001, do: delay, delay: 1ms}
workload: {kind: stream, op: send, messages: 100, bytes: 4KiB, think: 100us, reconnect: true}
expect: {delivered: exactly-once, memory: identical, lost: {min: 1, max: 1}, reconnects: {min: 4, max: 4}}
`, func(t *testing.T, r *report.Result) {
		passed(t, r)
		var bad, failed uint64
		for _, k := range r.Ranks {
			bad += k.Counters["mpa_bad_crcs"]
			failed += k.Counters["sent_terminates"]
		}
		if bad != 1 || failed != 1 {
			t.Errorf("%d wrong CRCs were received, %d Terminates sent", bad, failed)
		}
	})
}

func TestIncompatibleScenariosAreRejected(t *testing.T) {
	runOnBothTiers(t, "fabric: {kind: pair}\nnic: {provider: softiwarp}\nworkload: {kind: stream, services: [ud]}\n", func(t *testing.T, r *report.Result) {
		if r.Verdict != report.Broken || r.Reason != "test.yaml:5:17: nic.provider: soft-iWARP has no ud" {
			t.Errorf("%s: %s", r.Verdict, r.Reason)
		}
	})
}

// Without netem in the kernel, the result has the reason and advice.
func TestNetemReplacesSwitch(t *testing.T) {
	t.Parallel()
	r := run(t, `
fabric: {kind: pair}
impair: [{way: out, loss: 5%}]
workload: {kind: stream, op: send, messages: 200, bytes: 1KiB, timeout: 60ms}
expect: {retransmits: {min: 1}}
`, lab.Options{Netem: true})
	for _, c := range netns.Probe() {
		if c.Name == "netem" && c.State != netns.Yes {
			if r.Verdict != report.Broken || !strings.Contains(r.Reason, "netem") {
				t.Fatalf("without netem: %s: %s", r.Verdict, r.Reason)
			}
			return
		}
	}
	passed(t, r)
	if lost := r.Links[0].Lost["kernel"]; lost == 0 {
		t.Errorf("netem dropped no packet: %+v", r.Links)
	}
}

func TestNetemRejectsUnsupportedImpairments(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"events: [{on: [host0], nth: 3, do: drop}]":                                "change single packets",
		"impair: [{way: in, loss: 5%}]":                                            "none of those it receives",
		"impair: [{way: out, rate: 1Gbit}]":                                        "loss, delay, jitter",
		"faults: [{at: 1ms, for: 1ms, do: partition, groups: [[host0], [host1]]}]": "partition hosts",
	} {
		r := run(t, text+`
fabric: {kind: pair}
workload: {kind: pingpong, messages: 10}
`, lab.Options{Netem: true})
		if r.Verdict != report.Broken || !strings.Contains(r.Reason+r.Detail, want) {
			t.Errorf("%s: %s: %s %s; want %q", text, r.Verdict, r.Reason, r.Detail, want)
		}
	}
}
