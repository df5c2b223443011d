package peers_test

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"

	"github.com/fabrictest/fabrictest/internal/must"
	"github.com/fabrictest/fabrictest/internal/testutil"
	"github.com/fabrictest/fabrictest/report/peers"
)

// expect checks that a text contains each of others.
func expect(t *testing.T, text string, others ...string) {
	t.Helper()
	for _, want := range others {
		if !strings.Contains(text, want) {
			t.Errorf("no %q", want)
		}
	}
}

func TestPageOfPairsHasChartsAndVerdicts(t *testing.T) {
	text := page(t, samplePairs())
	expect(t, text,
		"Messages compared with MPICH, UCX, libfabric and iperf3", "MPICH 4.0, UCX 4.0", "linux/amd64, 6.1.0, 2 CPUs", "Model 7",
		"GASNet was skipped (no program found)", "apt-get install -y gasnet",
		`<li class="v missed"><b>3</b> missed`, `<li class="v holds"><b>3</b> holds`, `<span class="v missed">missed</span>`,
		"<h2>Half round trip</h2><p class=\"lead\">Less is better.", "<h2>Bandwidth</h2><p class=\"lead\">More is better.", "<h2>Message rate</h2>",
		"MPICH, 8 B: 5.01 µs", "ours, 8 B: 6.26 µs", "ours, no ICRC, 8 B: 5.01 µs", "iperf3, 1 MiB: 27 Gb/s",
		"target beside MPICH, up to 4 KiB", "1 M/s",
		`<td class="n slower step1">1.25`, `<td class="n even">1.02`, `<td class="n faster step3">0.20`, // of times
		`<td class="n slower step2">0.60`, `<td class="n faster step2">1.40`, `<td class="n faster step3">4.00`, // of rates
	)
	if n := strings.Count(text, `<svg class="chart"`); n != 4 { // figures and ratios of half round trips and of bandwidths
		t.Errorf("%d charts, want 4", n)
	}
	if n := strings.Count(text, "target<th"); n != 1 { // bandwidths and rates have none
		t.Errorf("%d tables with targets, want 1", n)
	}
	if strings.Contains(text, `class="data heat"`) {
		t.Error("a heat map without collective operations")
	}
}

func TestPageOfCollectivesHasHeatMaps(t *testing.T) {
	text := page(t, sampleCollectives())
	expect(t, text,
		"Collective operations compared with MPICH-yielding and Open MPI", "4 of 12 (33 %)", "≥ 80 % and ≤ 1.3 ×", "<h2>Allgather</h2>", "<b>8 ranks</b>",
		`<tr class="lead-in"><th scope="row">bcast</th><td class="n">4<td class="n faster step3"`, // rows are sorted by operation, then by ranks
		`title="bcast, 8 ranks, 8 B: ours 160 µs, MPICH-yielding 400 µs, noise 5 %">0.40`,
	)
	for of, want := range map[string]int{`class="data heat"`: 4, `<svg class="chart"`: 4, "<summary>As a table": 2} {
		if n := strings.Count(text, of); n != want {
			t.Errorf("%d of %s, want %d", n, of, want)
		}
	}
}

// A page loads no other files, also if every text contains HTML.
func TestPageIsSelfContained(t *testing.T) {
	for name, r := range samples() {
		testutil.CheckPage(t, name, page(t, r))
		testutil.AppendToStrings(r, testutil.Hostile)
		text := page(t, r)
		testutil.CheckPage(t, "hostile "+name, text)
		if strings.Contains(text, "<script>alert") {
			t.Errorf("%s: a script of the result is in the page", name)
		}
	}
}

func TestTableHasComparisonsAndVersions(t *testing.T) {
	var b strings.Builder
	r := sampleCollectives()
	must.Do(t, r.WriteTable(&b))
	expect(t, b.String(), "bcast, 8 ranks, 1048576 B", "Open MPI 4.0\n", "with ICRC: faster than MPICH-yielding at 4 of 12 points (33 %)", "targets ≥ 80 % and ≤ 1.3 ×: missed", "3 rounds")
	if !r.Missed() || sampleRun().Missed() {
		t.Error("a missed target is not reported, or one without targets")
	}
	testutil.AppendToStrings(r, testutil.Hostile)
	b.Reset()
	must.Do(t, r.WriteTable(&b))
	testutil.CheckTerminal(t, b.String())
}

func TestRunRoundTripsAsJSON(t *testing.T) {
	for name, r := range samples() {
		back := new(peers.Run)
		must.Do(t, json.Unmarshal(must.Get(json.Marshal(r))(t), back))
		if !reflect.DeepEqual(back, r) {
			t.Errorf("%s: the read run differs", name)
		}
	}
}
