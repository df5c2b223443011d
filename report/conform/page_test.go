package conform_test

import (
	"bytes"
	"encoding/xml"
	"io"
	"reflect"
	"strings"
	"testing"

	"github.com/fabrictest/fabrictest/internal/must"
	"github.com/fabrictest/fabrictest/internal/testutil"
	"github.com/fabrictest/fabrictest/report/conform"
)

func html(t testing.TB, run *conform.Run) string {
	t.Helper()
	var b bytes.Buffer
	must.Do(t, conform.WriteHTML(&b, run))
	return b.String()
}

func TestPageShowsAllResults(t *testing.T) {
	page := html(t, sample())
	for _, want := range []string{
		"4 of 47 cases want attention", "fabrictest conform --on sim --seed 7", "softroce as rxe-6.12", "15 Nov 2025, 09:30:12 UTC",
		"rc/psn/behaviour-0", `href="captures/softroce/rc/psn/behaviour-0.pcapng"`, "<mark>257</mark>", "want ACK psn 256 with PSN 256",
		"60 s pass", "⋮ 31 more ⋮", "completion of 1: IBV_WC_RECV, 8 bytes", "(stream 2) RST", "goroutine 7 [running]",
		"[C9-105, V1C09-105#01]", "no packet shows it", "no case checks it yet", "Not tested: Another document (1 requirement)",
		"softroce as rxe-6.12: 1 of 3 defects are detected", "which this bench cannot run", "Defects that no case detects", "data arrives late",
		"not PSNUnsigned: pass", "Not met, for reasons on record: 1 MUST", "Known: the kernel acknowledges twice (seen on every version)", "Why cases are not supported",
		"How it gets over losses and congestion", "nak/generation: 2.5", "timeout 4.19 ms", "position of the packet that is lost, of 8", "what timeout/code-10 is", "it is known: the kernel does so since 4.8", "1 not met, 1 not supported, 1 not tested, 1 without a case, 1 untestable",
	} {
		if !strings.Contains(page, want) {
			t.Errorf("%q is not on the page", want)
		}
	}
}

// A run of selected cases does not report defects that other cases detect.
func TestPartialRunIgnoresDefectsOfOtherCases(t *testing.T) {
	run := sample()
	run.Devices[0].DefectChecks = append(run.Devices[0].DefectChecks, conform.DefectCheck{Defect: "ForOthers", Does: "something else"})
	if page := html(t, run); !strings.Contains(page, "ForOthers") {
		t.Error("an undetected defect is not on the page")
	}
	run.Part = true
	if page := html(t, run); strings.Contains(page, "ForOthers") || !strings.Contains(page, "1 defects are for cases that were not selected") || !strings.Contains(page, "PSNUnsigned") {
		t.Error("a defect of other cases is on the page, or a defect of selected cases is not")
	}
}

// hostileRun is a run in which every string except verdicts is hostile.
func hostileRun() *conform.Run {
	run := sample()
	testutil.AppendToStrings(run, testutil.Hostile, reflect.TypeFor[conform.Verdict]())
	return run
}

// A page loads nothing and its links are valid, also if every text is hostile.
func TestPageIsSelfContained(t *testing.T) {
	twice := sample()
	twice.Devices = append(twice.Devices, twice.Devices[0])
	testutil.CheckPage(t, "results twice", html(t, twice))
	testutil.CheckPage(t, "hostile", html(t, hostileRun()))
}

func TestPageHeadlines(t *testing.T) {
	for want, verdicts := range map[string][]conform.Verdict{
		"Nothing was judged":                            {},
		"The clause is met":                             {conform.Pass},
		"The clause is not met":                         {conform.Fail},
		"All 2 cases pass":                              {conform.Pass, conform.Pass},
		"The one case that the device supports passes":  {conform.Pass, conform.Unsupported},
		"1 pass, with 1 known deviation":                {conform.Pass, conform.Deviates, conform.Unsupported},
		"2 pass, with 2 known deviations":               {conform.Pass, conform.Pass, conform.Deviates, conform.Deviates},
		"The clause is not met, for a reason on record": {conform.Deviates},
		"None of 2 cases has a verdict":                 {conform.Unsupported, conform.Unsupported},
		"1 of 3 cases fail":                             {conform.Fail, conform.Pass, conform.Unsupported},
		"2 of 3 cases want attention":                   {conform.Fail, conform.Pass, conform.Stale},
	} {
		run := &conform.Run{Devices: []conform.Device{{}}}
		for _, v := range verdicts {
			run.Devices[0].Results = append(run.Devices[0].Results, conform.Result{Verdict: v})
		}
		if page := html(t, run); !strings.Contains(page, "<h1>"+want+"</h1>") {
			t.Errorf("%v: no %q", verdicts, want)
		}
	}
	if run := (&conform.Run{Devices: []conform.Device{{Results: []conform.Result{{Verdict: conform.Pass}}}}, Faults: []conform.Fault{{}}}); !strings.Contains(html(t, run), "the cases have 1 fault") || run.Good() {
		t.Error("a fault is not reported")
	}
}

// The page of a large run must load fast.
func TestPageOfLargeRunIsSmall(t *testing.T) {
	run := sample()
	d := &run.Devices[0]
	bad := d.Results[0]
	for range 2000 {
		d.Results = append(d.Results, bad, result("uc/psn", 1, conform.Pass))
	}
	if page := html(t, run); len(page) > 12<<20 || strings.Count(page, `<svg class="ladder"`) > 150 {
		t.Errorf("%d bytes, %d ladders", len(page), strings.Count(page, `<svg class="ladder"`))
	}
}

// A page may list thousands of passing cases.
func TestPassingCasesAreShort(t *testing.T) {
	size := func(cases int) int {
		run := sample()
		d := &run.Devices[0]
		for i := range cases {
			d.Results = append(d.Results, result("uc/psn", 100+i, conform.Pass))
		}
		run.Devices = append(run.Devices, conform.Device{Name: "another", Results: d.Results})
		return len(html(t, run))
	}
	if each := (size(1000) - size(0)) / 1000; each > 800 {
		t.Errorf("a case that passes on two devices takes %d bytes of the page", each)
	}
}

func TestJUnitIsGolden(t *testing.T) {
	run := sample()
	run.Devices[0].Results = run.Devices[0].Results[:7]
	var b bytes.Buffer
	must.Do(t, conform.WriteJUnit(&b, run))
	testutil.Golden(t, "testdata/junit.golden.xml", b.Bytes(), *update)
	for _, run := range []*conform.Run{sample(), hostileRun(), {}} {
		b.Reset()
		must.Do(t, conform.WriteJUnit(&b, run))
		d := xml.NewDecoder(&b)
		for {
			if _, err := d.Token(); err == io.EOF {
				break
			} else if err != nil {
				t.Fatal(err)
			}
		}
	}
}

func TestRowVerdictIsTheWorst(t *testing.T) {
	for want, all := range map[conform.Verdict][]conform.Verdict{
		"":                  nil,
		conform.Pass:        {conform.Unsupported, conform.Pass},
		conform.Unsupported: {conform.Unsupported},
		conform.Fail:        {conform.Pass, conform.Fail, conform.Deviates},
		conform.Broken:      {conform.Fail, conform.Broken},
	} {
		if got := conform.RowVerdict(all); got != want {
			t.Errorf("%v: %q, want %q", all, got, want)
		}
	}
}

func TestOnlyStarved(t *testing.T) {
	run := &conform.Run{Devices: []conform.Device{{Results: []conform.Result{{Verdict: conform.Pass}, {Verdict: conform.Starved}}}}}
	if run.Good() || !run.OnlyStarved() {
		t.Error("a run whose only problem is a starved case is good, or not OnlyStarved")
	}
	run.Devices[0].Results[0].Verdict = conform.Fail
	if run.OnlyStarved() {
		t.Error("a run with a failure is OnlyStarved")
	}
	run.Devices[0].Results[0].Verdict, run.Faults = conform.Pass, []conform.Fault{{}}
	if run.OnlyStarved() {
		t.Error("a run with a fault of the cases is OnlyStarved")
	}
}
