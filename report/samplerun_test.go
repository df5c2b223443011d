package report_test

import (
	"math/rand/v2"
	"strings"
	"time"

	"github.com/fabrictest/fabrictest/report"
)

// sampleRun is a run with all verdicts and all shapes of fabric.
func sampleRun() *report.Run {
	run := newRun(7)
	for i, make := range []func(*rand.Rand) report.Result{
		clean, cleanNetNS, loss, lossNetNS, flap, flapNetNS, incast, fatTree, rails, killed, hung, broken, skipped, sparse,
	} {
		run.Scenarios = append(run.Scenarios, make(rand.New(rand.NewPCG(7, uint64(i)))))
	}
	return total(run)
}

var exactlyOnce = report.Check{Name: "delivered", Want: "exactly-once", Got: "exactly-once", OK: true}

func clean(rng *rand.Rand) report.Result {
	r := newResult("rc-clean", "Reliable connection, nothing in its way", "sim", 7, "standard", "rc")
	(&traffic{fabric: pairOf(1), end: 416 * time.Microsecond, steps: 40, bps: 92e9, sink: func(k int) bool { return k == 1 }}).fill(&r, rng)
	r.Checks = []report.Check{exactlyOnce, {Name: "retransmits", Want: "at most 0", Got: "0", OK: true}}
	return r
}

func cleanNetNS(rng *rand.Rand) report.Result {
	r := newResult("rc-clean", "Reliable connection, nothing in its way", "netns", 7, "standard", "rc")
	(&traffic{
		fabric: pairOf(1), end: 812 * time.Millisecond, steps: 16, bps: 21e9, sink: func(k int) bool { return k == 1 }, memory: true, latency: true,
	}).fill(&r, rng)
	r.Checks = []report.Check{exactlyOnce, {Name: "max_memory", Want: "at most 40.0 MiB", Got: "34.1 MiB", OK: true}}
	r.Files = []report.File{
		{Kind: "log", Path: "logs/rc-clean-netns/rank0.log", Size: 1204},
		{Kind: "log", Path: "logs/rc-clean-netns/rank1.log", Size: 998},
		{Kind: "capture", Path: "captures/rc-clean-netns.pcapng", Size: 8_817_204},
	}
	return r
}

func loss(rng *rand.Rand) report.Result {
	r := newResult("rc-loss-5pct", "Five packets in a hundred are lost, and every byte arrives", "sim", 7, "standard", "rc", "loss")
	r.Description = "Both directions lose 5 % of all packets, acknowledgements too. The requester must find each gap by timeout or NAK, send again from there, and deliver every message once and in order."
	(&traffic{
		fabric: pairOf(1), end: 3551 * time.Microsecond, steps: 180, bps: 30e9, loss: 0.05,
		on: func(_, _ string) bool { return true }, sink: func(k int) bool { return k == 1 },
	}).fill(&r, rng)
	r.Checks = []report.Check{exactlyOnce, {Name: "retransmits", Want: "at least 1, at most 2000", Got: "468", OK: true}}
	return r
}

func lossNetNS(*rand.Rand) report.Result {
	r := newResult("rc-loss-5pct", "Five packets in a hundred are lost, and every byte arrives", "netns", 7, "standard", "rc", "loss")
	r.Verdict = report.Skipped
	r.Reason = "no user namespaces: run as root, or sysctl kernel.unprivileged_userns_clone=1"
	r.Wall = time.Millisecond
	return r
}

func flap(rng *rand.Rand) report.Result {
	r := newResult("rc-flap-short", "A link is down for less than the retry budget", "sim", 7, "standard", "rc", "fault")
	recovered := 1800 * time.Microsecond
	(&traffic{
		fabric: starOf(6, 1), end: 40 * time.Millisecond, steps: 400, bps: 11e9,
		faults: []report.Fault{
			{At: 12 * time.Millisecond, Until: 17 * time.Millisecond, What: "host1/rdma0 down", On: []string{"host1/rdma0"}, Recovered: &recovered},
			{At: 26 * time.Millisecond, Until: 28 * time.Millisecond, What: "host1/rdma0 down", On: []string{"host1/rdma0"}, Recovered: &recovered},
		},
		affected: func(k int) bool { return k < 2 },
	}).fill(&r, rng)
	r.Checks = []report.Check{exactlyOnce, {Name: "recovery", Want: "at most 5 ms", Got: "1.80 ms", OK: true}}
	return r
}

func flapNetNS(rng *rand.Rand) report.Result {
	r := newResult("rc-flap-short", "A link is down for less than the retry budget", "netns", 7, "standard", "rc", "fault")
	recovered := 48 * time.Millisecond
	(&traffic{
		fabric: starOf(6, 1), end: 1200 * time.Millisecond, steps: 24, bps: 3e9, errors: true,
		faults: []report.Fault{{
			At: 400 * time.Millisecond, Until: 655 * time.Millisecond, What: "host1/rdma0 down", On: []string{"host1/rdma0"}, Recovered: &recovered,
		}},
		affected: func(k int) bool { return k < 2 }, memory: true,
	}).fill(&r, rng)
	r.Verdict = report.Failed
	r.Reason = "errors: none may occur, but rank 0 had 3 (retry exceeded)"
	r.Detail = "rank 0, peer 1, rail 0:\n  at 612 ms  IBV_WC_RETRY_EXC_ERR\n  at 613 ms  IBV_WC_WR_FLUSH_ERR\n  at 613 ms  IBV_WC_WR_FLUSH_ERR\nThe link was down for 255 ms; 7 retries of 33.6 ms are 235 ms."
	r.Checks = []report.Check{
		exactlyOnce,
		{Name: "errors", Want: "none", Got: "rank 0: retry exceeded (1), work request flushed (2)"},
		{Name: "recovery", Want: "at most 100 ms", Got: "48.0 ms", OK: true},
	}
	r.Ranks[0].Marks = append(r.Ranks[0].Marks, report.Mark{At: 612 * time.Millisecond, What: "IBV_WC_RETRY_EXC_ERR with host1"})
	r.Ranks[0].Violations = []string{"message 1107 to rank 1 was completed with an error, and arrived"}
	r.Files = []report.File{{Kind: "capture", Path: "captures/rc-flap-short-netns.pcapng", Size: 48_817_204}, {Kind: "log", Path: "logs/rc-flap-short-netns/rank0.log", Size: 20_412}}
	return r
}

func incast(rng *rand.Rand) report.Result {
	r := newResult("incast-64", "63 senders, one receiver, and a queue that fills", "sim", 7, "standard", "scale", "congestion")
	(&traffic{
		fabric: starOf(64, 1), end: 22 * time.Millisecond, steps: 300, bps: 96e9, sink: func(k int) bool { return k == 0 },
		loss: 0.002, on: func(from, to string) bool { return from == "switch0" && to == "host0/rdma0" },
	}).fill(&r, rng)
	for i := range r.Links {
		if l := &r.Links[i]; l.To == "host0/rdma0" {
			l.Lost, l.Marked = map[string]uint64{"queue_full": 5123}, 61_220
		}
	}
	r.Checks = []report.Check{exactlyOnce, {Name: "marked", Want: "at least 1", Got: "61220", OK: true}}
	return r
}

func fatTree(rng *rand.Rand) report.Result {
	r := newResult("fat-tree-64", "All to all on 64 hosts, while a leaf loses packets", "sim", 7, "scale", "fat-tree")
	(&traffic{
		fabric: fatTreeOf(64, 8, 4), end: 180 * time.Millisecond, steps: 300, bps: 9.5e9, loss: 0.01,
		on:       func(from, to string) bool { return from == "leaf3" || to == "leaf3" },
		faults:   []report.Fault{{At: 60 * time.Millisecond, Until: 95 * time.Millisecond, What: "host17/rdma0 down", On: []string{"host17/rdma0"}}},
		affected: func(k int) bool { return k == 17 },
	}).fill(&r, rng)
	r.Checks = []report.Check{exactlyOnce, {Name: "max_time", Want: "at most 500 ms", Got: "180 ms", OK: true}}
	return r
}

func rails(rng *rand.Rand) report.Result {
	r := newResult("rails-one-cut", "Two rails, one is cut, traffic moves to the other", "sim", 7, "standard", "multi-rail", "fault")
	(&traffic{
		fabric: starOf(8, 2), end: 30 * time.Millisecond, steps: 300, bps: 40e9,
		faults:   []report.Fault{{At: 11 * time.Millisecond, What: "rail 1 cut at host2 and host5", On: []string{"host2/rdma1", "host5/rdma1"}}},
		affected: func(k int) bool { return false },
	}).fill(&r, rng)
	r.Checks = []report.Check{exactlyOnce}
	return r
}

func killed(rng *rand.Rand) report.Result {
	r := newResult("peer-killed", "A host dies without a word; the others notice and go on", "netns", 7, "fault")
	(&traffic{
		fabric: starOf(4, 1), end: 2 * time.Second, steps: 40, bps: 2.4e9, memory: true, errors: true,
		faults:   []report.Fault{{At: 900 * time.Millisecond, What: "host2 killed", On: []string{"host2"}}},
		affected: func(k int) bool { return k == 2 },
	}).fill(&r, rng)
	r.Ranks[2].State, r.Ranks[2].Signal = "killed", "SIGKILL"
	r.Checks = []report.Check{{Name: "killed", Want: "host2", Got: "host2", OK: true}, {Name: "errors", Want: "host*: retry exceeded", Got: "3 ranks: retry exceeded", OK: true}}
	return r
}

func hung(rng *rand.Rand) report.Result {
	r := newResult("halo-16", "Neighbours on a ring write into each other's borders", "sim", 7, "one-sided")
	(&traffic{
		fabric: fatTreeOf(16, 4, 2), end: 50 * time.Millisecond, steps: 250, bps: 6e9,
		faults:   []report.Fault{{At: 20 * time.Millisecond, What: "partition: host0…host7 | host8…host15"}},
		affected: allRanks,
	}).fill(&r, rng)
	r.Verdict = report.Failed
	r.Reason = "hung: nothing is left to happen, and 16 ranks wait"
	for i := range r.Ranks {
		k := &r.Ranks[i]
		k.State = "hung"
		k.Waiting = "round 41 of 100: waits for the border of the left neighbour\n  cq 0x3: 0 completions, 1 outstanding\n  qp 0x11: RTS, 1 unacknowledged, no timer"
		if i == 8 || i == 0 {
			k.Waiting = "round 41 of 100: waits for its write to the left neighbour to complete\n  qp 0x11: SQE, retries exhausted"
		}
	}
	return r
}

func broken(*rand.Rand) report.Result {
	r := newResult("mtu-mismatch", "Two ends that do not agree on the path MTU", "netns", 7, "mtu")
	r.Verdict = report.Broken
	r.Reason = "rank 1 on host1 ended with signal SIGSEGV before it was connected"
	r.Detail = strings.Repeat("goroutine 1 [running]:\nruntime.throw(…)\n", 3)
	code := -1
	r.Ranks = []report.Rank{
		{Rank: 0, Host: "host0", State: "hung", Waiting: "start-up exchange: waits for rank 1"},
		{Rank: 1, Host: "host1", State: "exited", Signal: "SIGSEGV", ExitCode: &code, Error: "signal: segmentation fault"},
	}
	r.Fabric = pairOf(1)
	r.Files = []report.File{{Kind: "log", Path: "logs/mtu-mismatch-netns/rank1.log", Size: 18_004}}
	return r
}

func skipped(*rand.Rand) report.Result {
	r := newResult("kernel-rxe", "The kernel's soft-RoCE at the other end", "netns", 7, "interop")
	r.Verdict, r.Reason, r.Wall = report.Skipped, "this kernel has no rdma_rxe: modprobe rdma_rxe, or a kernel that has it", time.Millisecond
	return r
}

// sparse has very few samples.
func sparse(rng *rand.Rand) report.Result {
	r := newResult("ud-pingpong", "Datagrams to and fro", "sim", 7, "standard", "ud")
	(&traffic{fabric: pairOf(2), end: 74 * time.Microsecond, steps: 3, bps: 1.2e9, latency: true}).fill(&r, rng)
	r.Checks = []report.Check{{Name: "delivered", Want: "at-most-once", Got: "exactly-once", OK: true}}
	r.Defects = []string{"ack.Late", "cm.NoMRA"}
	return r
}
