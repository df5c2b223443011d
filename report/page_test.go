package report_test

import (
	"bytes"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/fabrictest/fabrictest/internal/must"
	"github.com/fabrictest/fabrictest/internal/testutil"
	"github.com/fabrictest/fabrictest/netns/topology"
	"github.com/fabrictest/fabrictest/report"
)

func html(t testing.TB, run *report.Run) string {
	t.Helper()
	var b bytes.Buffer
	must.Do(t, report.WriteHTML(&b, run))
	return b.String()
}

func TestPageShowsAllResults(t *testing.T) {
	page := html(t, sampleRun())
	for _, want := range []string{
		"3 of 14 did not pass", "fabrictest run --seed 7", "linux/amd64, 6.18.2, 2 CPUs", "15 Nov 2025, 09:30:12 UTC",
		"no user namespaces: run as root", "errors: none may occur, but rank 0 had 3 (retry exceeded)",
		"fabrictest run rc-flap-short --on netns --seed 7", "work request flushed (2)", "IBV_WC_RETRY_EXC_ERR",
		`href="captures/rc-flap-short-netns.pcapng"`, "46.6 MiB", "link_down", "host1/rdma0 down", "48 ms",
		"message 1107 to rank 1 was completed with an error, and arrived",
		"Ranks 1–7, 9–15", "waits for the border of the left neighbour", "killed, SIGKILL", "Both directions lose 5 %",
		"64 hosts, 8 leaves, 4 spines", "6 hosts, 1 switch, 100 Gb/s, 1 µs, MTU 4200", "2 hosts back to back",
		"connected ×64", "ack.Late, cm.NoMRA", "Throughput by rank", "Throughput, a rank", "Packets sent again", "Errors, so far",
	} {
		if !strings.Contains(page, want) {
			t.Errorf("%q is not on the page", want)
		}
	}
}

// A page loads no resources, and its links have targets, even if every text has HTML in it.
func TestPageIsSelfContained(t *testing.T) {
	twice := sampleRun()
	twice.Scenarios = append(twice.Scenarios, twice.Scenarios[0], twice.Scenarios[0])
	testutil.CheckPage(t, "results twice", html(t, twice))
	testutil.CheckPage(t, "hostile", html(t, hostileRun()))
}

// TestPageLinksOnlyIntoFolder: the page names files outside of the folder without a link.
func TestPageLinksOnlyIntoFolder(t *testing.T) {
	run := &report.Run{Scenarios: []report.Result{{Verdict: report.Passed, Files: []report.File{
		{Kind: "log", Path: "logs/a b#1?.log"}, {Kind: "log", Path: "../../etc/passwd"}, {Kind: "log", Path: "/etc/shadow"}, {Kind: "log", Path: "javascript:alert(1)"},
	}}}}
	page := html(t, run)
	if !strings.Contains(page, `href="logs/a%20b%231%3F.log"`) || !strings.Contains(page, `href="./javascript:alert%281%29"`) {
		t.Error("a file in the folder is not linked to by its name")
	}
	if strings.Contains(page, `href="../`) || strings.Contains(page, `href="/`) || !strings.Contains(page, "/etc/shadow") {
		t.Error("a file elsewhere is linked to, or not named")
	}
}

// TestPageOfLargeRunIsSmall uses the largest supported run: seventy results of 64 ranks each.
func TestPageOfLargeRunIsSmall(t *testing.T) {
	t.Parallel()
	run := largeRun(1, 300)
	for len(run.Scenarios) < 70 {
		run.Scenarios = append(run.Scenarios, run.Scenarios[0])
	}
	page := html(t, run)
	if len(page) > 4<<20 {
		t.Errorf("%d bytes, more than 4 MiB", len(page))
	}
	if !strings.Contains(page, "directions more, in result.json") {
		t.Error("the page does not mention the omitted rows")
	}
}

// TestPageShowsUnusualResults: incomplete results of a failed run have a page.
func TestPageShowsUnusualResults(t *testing.T) {
	second := time.Second
	odd := map[string]report.Result{
		"nothing":         {},
		"one sample at 0": {Ranks: []report.Rank{{Samples: []report.Sample{{}}}}},
		"counts that fall, times out of order": {Elapsed: second, Ranks: []report.Rank{{Samples: []report.Sample{
			{At: 900, Bytes: 10}, {At: -5, Bytes: math.MaxUint64}, {At: 3 * second, Bytes: 1}, {At: 3 * second, Resent: 9}, {At: math.MaxInt64, Errors: math.MaxUint64},
		}}}},
		"marks and faults outside": {
			Elapsed: second, Faults: []report.Fault{{At: -second, Until: 9 * second, What: "x"}, {At: 5, Until: 1}, {At: math.MaxInt64}},
			Ranks: []report.Rank{{Samples: []report.Sample{{At: 5, Bytes: 1}}, Marks: []report.Mark{{At: -1, What: "m"}, {At: math.MaxInt64}}}},
		},
		"a fabric without cables": {Fabric: &topology.Topology{Hosts: []topology.Host{{Name: "a"}}}},
		"cables to nowhere": {Fabric: &topology.Topology{
			Hosts:  []topology.Host{{Name: "a"}, {Name: "b"}, {Name: "c"}},
			Cables: []topology.Cable{{A: topology.Port{Node: "a"}, B: topology.Port{Node: "zzz"}}, {A: topology.Port{Node: "a"}, B: topology.Port{Node: "a"}}},
		}},
		"switches without hosts": {Fabric: &topology.Topology{
			Hosts: []topology.Host{{Name: "a"}}, Switches: []topology.Switch{{Name: "s"}, {Name: "t", Tier: 9}, {Name: "u", Rail: -3, Tier: 2}},
		}},
		"a thousand hosts":                 {Fabric: fatTreeOf(1000, 10, 4)},
		"a star of two hundred, two rails": {Fabric: starOf(200, 2)},
		"four rails":                       {Fabric: starOf(6, 4)},
		"a thousand faults": {
			Elapsed: second, Ranks: []report.Rank{{Samples: []report.Sample{{At: second, Bytes: 5}}}},
			Faults: func() (f []report.Fault) {
				for i := range 1000 {
					f = append(f, report.Fault{At: time.Duration(i) * time.Millisecond, What: "flap"})
				}
				return f
			}(),
		},
	}
	run := &report.Run{}
	for name, r := range odd {
		r.Name, r.Verdict = name, report.Failed
		run.Scenarios = append(run.Scenarios, r)
	}
	page := html(t, run)
	for _, bad := range []string{"NaN", "Inf", "%!", "ZgotmplZ"} {
		if i := strings.Index(page, bad); i >= 0 {
			t.Errorf("%s in …%s…", bad, page[max(0, i-120):i+40])
		}
	}
	if len(page) > 1<<20 {
		t.Errorf("%d bytes", len(page))
	}
	junit(t, run)
	if page := html(t, &report.Run{}); !strings.Contains(page, "Nothing was run") {
		t.Error("an empty run has no page")
	}
}

func TestHeadlines(t *testing.T) {
	for want, verdicts := range map[string][]report.Verdict{
		"Nothing was run":     {},
		"It passed":           {report.Passed},
		"All 2 passed":        {report.Passed, report.Passed},
		"1 passed, 1 skipped": {report.Passed, report.Skipped},
		"All 2 were skipped":  {report.Skipped, report.Skipped},
		"2 of 3 did not pass": {report.Failed, report.Passed, report.Broken},
		"1 of 1 did not pass": {"nonsense"},
		"1 of 2 did not pass": {report.Broken, report.Skipped},
	} {
		run := &report.Run{}
		for _, v := range verdicts {
			run.Scenarios = append(run.Scenarios, report.Result{Verdict: v})
		}
		if page := html(t, run); !strings.Contains(page, "<h1>"+want+"</h1>") {
			t.Errorf("%v: no %q", verdicts, want)
		}
	}
}

func BenchmarkWriteHTML(b *testing.B) {
	run := largeRun(4, 1000)
	for b.Loop() {
		html(b, run)
	}
}

// longReasonRun is a run with a long reason of a failure.
func longReasonRun() *report.Run {
	what := "host0 with host1: lane 3 (XRC), A to B, request 26 (IBV_WR_RDMA_READ, 8192 bytes): " + strings.Repeat("byte 4096 is 0xa5, not 0xc2; ", 12)
	fabric := starOf(4, 1)
	return &report.Run{Scenarios: []report.Result{{
		Name: "long-reason", Tier: "sim", Verdict: report.Failed, Reason: "memory: want identical, got rank 0 on host0: " + what, Fabric: fabric,
		Checks: []report.Check{
			{Name: "programs", Want: "every program ends without an error", Got: "2 of 2 did", OK: true},
			{Name: "memory", Want: "identical", Got: "rank 0 on host0: " + what},
			{Name: "violations", Want: "none", Got: "2, listed under memory"},
		},
		Ranks: []report.Rank{
			{Host: "host0", State: "finished", Violations: []string{what}},
			{Rank: 1, Host: "host1", State: "finished", Violations: []string{"a completion that nobody waits for"}},
		},
	}}}
}

// The page has the whole reason once, with the checks.
func TestPageShowsReasonOnce(t *testing.T) {
	run := longReasonRun()
	page := html(t, run)
	if n := strings.Count(page, run.Scenarios[0].Ranks[0].Violations[0]); n != 1 {
		t.Errorf("the same paragraph %d times", n)
	}
	for _, want := range []string{"Not as expected: memory, violations", "a completion that nobody waits for"} {
		if !strings.Contains(page, want) {
			t.Errorf("%q is not on the page", want)
		}
	}
}

// Corrupted packets count as lost ones, and the counters of the kernel name them.
func TestCorruptedPacketsCountAsLost(t *testing.T) {
	run := &report.Run{Scenarios: []report.Result{{Name: "damage", Tier: "netns", Verdict: report.Passed, Links: []report.Link{
		{From: "host0/rdma0", To: "switch0", Packets: 1000, Corrupted: 30, Lost: map[string]uint64{"loss": 12}},
		{From: "switch0", To: "host0/rdma0", Packets: 70, KernelCounted: true},
	}}}}
	r := &run.Scenarios[0]
	if l := r.Links[0]; l.LostPackets() != 42 || r.Totals().Lost != 42 {
		t.Errorf("%d and %d packets lost, want 42", l.LostPackets(), r.Totals().Lost)
	}
	if got := r.Links[0].Causes(); len(got) != 2 || got[0] != (report.Cause{Name: "damaged", Packets: 30}) {
		t.Errorf("causes %v", got)
	}
	page := html(t, run)
	for _, want := range []string{"damaged 30, loss 12", "<td class=\"n\">42", "Counted by", "it may count dozens of consecutive packets"} {
		if !strings.Contains(page, want) {
			t.Errorf("%q is not on the page", want)
		}
	}
	r.Links[1].KernelCounted = false
	page = html(t, run)
	if strings.Contains(page, "dozens of packets") || strings.Contains(page, "Counted by") {
		t.Error("the page names a counter that the kernel lacks")
	}
}

// hostileRun is a run with HTML and terminal escapes in every string.
func hostileRun() *report.Run {
	run := sampleRun()
	testutil.AppendToStrings(run, testutil.Hostile)
	for i := range run.Scenarios {
		run.Scenarios[i].Verdict = report.Verdicts()[i%4]
	}
	return run
}
