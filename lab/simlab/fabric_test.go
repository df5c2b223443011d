package simlab

import (
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/fabrictest/fabrictest/internal/must"
	"github.com/fabrictest/fabrictest/report"
	"github.com/fabrictest/fabrictest/scenarios"
)

// Packets between leaves pass one spine, and packets within a leaf pass none.
func TestFatTreeSpreadsTrafficOverSpines(t *testing.T) {
	r := runPassing(t, `
fabric: {kind: fat-tree, hosts: 8, leaves: 2, spines: 4}
workload: {kind: all-to-all, messages: 4, bytes: 4KiB}
expect: {retransmits: {max: 0}, lost: {max: 0}}
`)
	var up, down, fromHosts uint64
	used := 0
	for _, l := range r.Links {
		switch {
		case l.From == "leaf0" && isSpine(l.To):
			up += l.Packets
			if l.Packets > 0 {
				used++
			}
		case isSpine(l.From) && l.To == "leaf1":
			down += l.Packets
		case l.To == "leaf0" && !isSpine(l.From):
			fromHosts += l.Packets
		}
	}
	if used < 3 || up == 0 || up != down {
		t.Errorf("%d of 4 spines carry %d packets up and %d down", used, up, down)
	}
	// Of seven peers four are below the other leaf.
	if up*7 < fromHosts*3 || up*7 > fromHosts*5 {
		t.Errorf("%d of the %d packets from hosts of leaf0 crossed a spine", up, fromHosts)
	}
}

func isSpine(name string) bool { return len(name) >= 5 && name[:5] == "spine" }

func TestTrafficAvoidsDownTrunk(t *testing.T) {
	r := runPassing(t, `
fabric: {kind: fat-tree, hosts: 4, leaves: 2, spines: 2}
workload: {kind: all-to-all, messages: 200, bytes: 4KiB, timeout: 1ms}
faults: [{at: 20us, do: down, on: [leaf0/port2, leaf1/port2]}]
`)
	if a, b := carried(r, "leaf0", "spine0"), carried(r, "leaf0", "spine1"); a >= b {
		t.Errorf("spine0 was down and carried %d packets, spine1 %d", a, b)
	}
}

func carried(r *report.Result, from, to string) (n uint64) {
	for _, l := range r.Links {
		if l.From == from && l.To == to {
			n += l.Packets
		}
	}
	return n
}

func TestTrunkLoss(t *testing.T) {
	r := runPassing(t, `
fabric: {kind: fat-tree, hosts: 2, leaves: 2, spines: 1}
impair: [{on: [leaf0/port1], loss: 2%}]
events: [{on: [spine0/port1], nth: 20, do: drop}]
workload: {kind: stream, messages: 300, bytes: 4KiB, timeout: 1ms}
expect: {lost: {min: 2}, retransmits: {min: 1}}
`)
	if l := cable(t, r, "leaf0", "spine0"); l.Lost["loss"] == 0 || !l.Impaired {
		t.Errorf("%+v", l)
	}
	if l := cable(t, r, "spine0", "leaf1"); l.Lost["event"] != 1 {
		t.Errorf("%+v", l)
	}
}

func TestMultiRail(t *testing.T) {
	r := runPassing(t, `
fabric: {kind: star, hosts: 2, rails: 3}
workload: {kind: stream, messages: 50, bytes: 4KiB}
impair: [{on: [host0/rdma1], delay: 5us}]
`)
	for _, nic := range []string{"rdma0", "rdma1", "rdma2"} {
		l := cable(t, r, "host0/"+nic, "switch0-rail"+nic[4:])
		if l.Packets < 50 || l.Impaired != (nic == "rdma1") {
			t.Errorf("%s: %+v", nic, l)
		}
	}
}

func TestLinkParametersOfScenario(t *testing.T) {
	slow := runPassing(t, `
fabric: {kind: star, hosts: 4, links: {host0: {rate: 1Gbit, queue: 64KiB, ecn: {min: 10kB, max: 40kB, share: 50%}}}}
workload: {kind: incast, op: write, messages: 20, bytes: 64KiB, timeout: 4ms}
expect: {marked: {min: 1}}
`)
	fast := runPassing(t, `
fabric: {kind: star, hosts: 4}
workload: {kind: incast, op: write, messages: 20, bytes: 64KiB, timeout: 4ms}
expect: {marked: {max: 0}, lost: {max: 0}}
`)
	// 20 times 64 KiB of three senders at 1 Gb/s are 31 ms, at 100 Gb/s a hundredth.
	if slow.Elapsed < 30e6 || fast.Elapsed > 1e6 {
		t.Errorf("%v at 1 Gb/s, %v at 100", slow.Elapsed, fast.Elapsed)
	}
	if l := cable(t, slow, "switch0", "host0/rdma0"); l.Marked == 0 {
		t.Errorf("%+v", l)
	}
	runPassing(t, "fabric: {kind: pair, ipv4: true, link: {mtu: 1500, latency: 100us}}\nworkload: {kind: pingpong, messages: 10, bytes: 2KiB}\nexpect: {lost: {max: 0}}\n")
}

// Programs count messages in batches. The charts of the report must not exceed the rate of the
// links: 200 Gb/s to a host with two rails, 800 Gb/s to all hosts of the fat tree.
func TestChartsDoNotExceedLinkRate(t *testing.T) {
	scale := regexp.MustCompile(`<span class="top">([^<]*)</span>`)
	for name, want := range map[string]string{"multi-rail": "200 Gb/s", "fat-tree": "800 Gb/s", "stream-write": "100 Gb/s", "rate-limited": "500 Mb/s"} {
		all := shipped(t)
		s := all[slices.IndexFunc(all, func(s *scenarios.Scenario) bool { return s.Name == name })]
		run := &report.Run{Version: report.Version, Scenarios: []report.Result{*resultOf(s)}}
		var page strings.Builder
		must.Do(t, report.WriteHTML(&page, run))
		var got string // of the first panel
		if m := scale.FindStringSubmatch(page.String()); m != nil {
			got = m[1]
		}
		if got != want {
			t.Errorf("%s: the chart of throughput ends at %s, want %s", name, got, want)
		}
	}
}
