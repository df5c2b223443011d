package simlab

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/fabrictest/fabrictest/lab"
	"github.com/fabrictest/fabrictest/report"
)

// pingpong is a workload of about 25 ms.
const pingpong = "workload: {kind: pingpong, messages: 1000, bytes: 256, think: 10us, timeout: 1ms, retries: 7}\n"

func TestPeersRecoverAfterLinkDown(t *testing.T) {
	r := runPassing(t, "fabric: {kind: star, hosts: 4}\n"+pingpong+`
faults: [{at: 2ms, do: down, on: [host1], for: 2ms}]
expect: {retransmits: {min: 1}, recovery: 3ms}
`)
	if len(r.Faults) != 1 || r.Faults[0].What != "host1/rdma0 down" || r.Faults[0].At != 2*time.Millisecond || r.Faults[0].Until != 4*time.Millisecond {
		t.Fatalf("%+v", r.Faults)
	}
	if again := r.Faults[0].Recovered; again == nil || *again <= 0 {
		t.Errorf("recovered after %v", again)
	}
	// Other pairs of ranks are not affected.
	if r.Ranks[2].Resent+r.Ranks[3].Resent != 0 || r.Ranks[0].Resent == 0 {
		t.Errorf("resent: %d, %d, %d, %d", r.Ranks[0].Resent, r.Ranks[1].Resent, r.Ranks[2].Resent, r.Ranks[3].Resent)
	}
	if got := cable(t, r, "switch0", "host1/rdma0").Lost["link_down"]; got == 0 {
		t.Error("the link that was down lost no packet")
	}
}

func TestPartitionHeals(t *testing.T) {
	r := runPassing(t, "fabric: {kind: star, hosts: 4}\n"+pingpong+`
faults: [{at: 2ms, do: partition, groups: [[host0], [host1, host2, host3]], for: 2ms}]
expect: {lost: {min: 1}, recovery: 3ms}
`)
	if got := cable(t, r, "switch0", "host1/rdma0").Lost["partition"]; got == 0 {
		t.Error("the partition lost no packet")
	}
	if r.Ranks[2].Resent != 0 {
		t.Error("the partition affected hosts on the same side")
	}
}

func TestImpairmentsAreReplacedAndRestored(t *testing.T) {
	r := runPassing(t, "fabric: {kind: pair}\n"+pingpong+`
faults: [{at: 5ms, do: impair, set: {on: [host0], loss: 100%}, for: 2ms}]
expect: {lost: {min: 1, max: 4}}
`)
	l := cable(t, r, "host0/rdma0", "host1/rdma0")
	if l.Lost["loss"] == 0 || !l.Impaired || cable(t, r, "host1/rdma0", "host0/rdma0").Lost != nil {
		t.Errorf("%+v", l)
	}
}

func TestPeerOfKilledRankFails(t *testing.T) {
	r := runPassing(t, "fabric: {kind: star, hosts: 4}\n"+pingpong+`
faults: [{at: 5ms, do: kill, on: [host1]}]
expect: {killed: [host1], errors: {host0: [retry exceeded]}}
`)
	for i, want := range []string{lab.Finished, lab.Killed, lab.Finished, lab.Finished} {
		if r.Ranks[i].State != want {
			t.Errorf("rank %d: %s, want %s", i, r.Ranks[i].State, want)
		}
	}
	if r.Ranks[1].Waiting == "" || r.Ranks[1].Messages == 0 || r.Ranks[1].Counters["sent_pkts"] == 0 {
		t.Errorf("the report of the killed rank has %q, %d messages, %v", r.Ranks[1].Waiting, r.Ranks[1].Messages, r.Ranks[1].Counters)
	}
}

func TestKillOfEndedRankHasNoEffect(t *testing.T) {
	r := runText(t, "fabric: {kind: pair}\nworkload: {kind: stream, messages: 10, bytes: 64}\n"+`
faults: [{at: 1s, do: kill, on: [host1]}]
expect: {killed: [host1]}
`, lab.Options{})
	if got := check(r, "killed"); got.OK || got.Got != "none" || got.Want != "host1" {
		t.Errorf("%+v", got)
	}
}

func TestFrozenHostResumes(t *testing.T) {
	r := runPassing(t, "fabric: {kind: pair}\n"+pingpong+`
faults: [{at: 5ms, do: freeze, on: [host1], for: 3ms}]
expect: {retransmits: {min: 1}, recovery: 1ms}
`)
	for _, s := range r.Ranks[1].Samples {
		if s.At > 5*time.Millisecond && s.At < 8*time.Millisecond {
			t.Errorf("the frozen rank reported a mark at %v", s.At)
		}
	}
}

func TestRanksReconnectAfterQPError(t *testing.T) {
	const text = "fabric: {kind: pair}\nworkload: {kind: pingpong, messages: 500, think: 10us, timeout: 1ms, retries: 3%s}\nfaults: [{at: 2ms, do: qp-error, on: [host1]}]\n"
	runPassing(t, strings.Replace(text, "%s", ", reconnect: true", 1)+"expect: {reconnects: {min: 1}, recovery: 20ms}\n")
	r := runText(t, strings.Replace(text, "%s", "", 1)+"expect: {delivered: at-most-once}\n", lab.Options{})
	if r.Ranks[0].Failures+r.Ranks[1].Failures == 0 {
		t.Errorf("no rank reported an error: %s %s", r.Verdict, r.Reason)
	}
}

func TestHungRunReportsRankStates(t *testing.T) {
	// The NICs lose completions. Rank 1 has nothing to do while rank 0 reads, and hangs, too.
	r := runText(t, "fabric: {kind: pair}\nnic: {defects: [WCLost]}\nworkload: {kind: stream, op: read, messages: 100, timeout: 1ms, retries: 1}\n"+`
limit: 2s
`, lab.Options{})
	if r.Verdict != report.Failed || !strings.HasPrefix(r.Reason, "programs: rank 0 on host0 did not end: ") {
		t.Fatalf("%s: %s", r.Verdict, r.Reason)
	}
	for _, k := range r.Ranks {
		if k.State != lab.Hung || k.Waiting == "" {
			t.Errorf("rank %d: %s, waiting: %q", k.Rank, k.State, k.Waiting)
		}
	}
	if !strings.Contains(r.Detail, "rank 0 on host0 hung") || !strings.Contains(r.Detail, "rank 1 on host1 hung") {
		t.Errorf("detail:\n%s", r.Detail)
	}
}

// A slow receiver with a connection on each of two rails posts receives on both. The pauses of a
// rank share one timer. The delay determines which connection ends first.
func TestPauseEndsOnEveryRail(t *testing.T) {
	for _, service := range []string{"rc", "srq"} {
		for _, direction := range []string{"in", "out", "both"} {
			for _, delay := range []string{"1ms", "6ms"} {
				text := "fabric: {kind: star, hosts: 2, rails: 2}\n" +
					fmt.Sprintf("impair: [{on: [host1/rdma1], way: %s, delay: %s}]\n", direction, delay) +
					fmt.Sprintf("workload: {kind: stream, op: send, services: [%s], messages: 200, bytes: 4KiB, pause: 5ms, timeout: 30ms}\n", service)
				t.Run(fmt.Sprint(service, " ", direction, " ", delay), func(t *testing.T) {
					t.Parallel()
					runPassing(t, text)
				})
			}
		}
	}
}

// With loss, the seed determines in which order the pauses of two rails end.
func TestPauseEndsForEverySeed(t *testing.T) {
	const text = "fabric: {kind: star, hosts: 2, rails: 2}\nimpair: [{on: [host1/rdma0], way: in, loss: 3%}]\n" +
		"workload: {kind: stream, op: send, messages: 200, bytes: 1KiB, pause: 2ms, timeout: 5ms}\n"
	for seed := uint64(1); seed <= 15; seed++ {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			if r := runText(t, text, lab.Options{Seed: seed}); r.Verdict != report.Passed {
				t.Errorf("%s: %s\n%s", r.Verdict, r.Reason, r.Detail)
			}
		})
	}
}

// The responder of a stream rejects the first message and ends. The requester
// learns that on the control channel 2 ms before the NAK arrives.
func TestRequesterReportsNAKReceivedAfterPeerEnded(t *testing.T) {
	runPassing(t, `
fabric: {kind: pair, link: {latency: 2ms}}
workload: {kind: stream, op: send, messages: 20, bytes: 16KiB, mtu: [4096, 1024], timeout: 30ms}
expect: {delivered: at-most-once, errors: {host0: [remote invalid request]}}
`)
}

// With this seed 16 connections in a row lose no MAD and are in time wait at the same time: the
// maximum of the connection manager. The client waits until one is freed.
func TestCallsWaitUntilAConnectionIsFreed(t *testing.T) {
	for _, s := range shipped(t) {
		if s.Name != "calls-loss" {
			continue
		}
		if r := Run(context.Background(), s, lab.Options{Seed: 914}); r.Verdict != report.Passed {
			t.Errorf("%s: %s\n%s", r.Verdict, r.Reason, r.Detail)
		}
		return
	}
	t.Error("there is no scenario calls-loss")
}
