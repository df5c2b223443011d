package judge_test

import (
	"flag"
	"fmt"
	"maps"
	"os"
	"runtime/debug"
	"slices"
	"strings"
	"testing"

	. "github.com/onsi/ginkgo/v2"
	"github.com/onsi/ginkgo/v2/types"

	"github.com/fabrictest/fabrictest/conformance"
	"github.com/fabrictest/fabrictest/conformance/judge"
	"github.com/fabrictest/fabrictest/internal/must"
	"github.com/fabrictest/fabrictest/lab/bench"
	"github.com/fabrictest/fabrictest/lab/nics"
)

// all makes TestSpecs as thorough as fabrictest conform is, which CI runs too. By default slow
// cases are left out, and litmus tests and dialogues explore few schedules.
var all = flag.Bool("all", false, "run slow cases too, and explore as many schedules as fabrictest conform does")

// TestSpecs runs the cases as Ginkgo specs, for its labels, parallel runs and reports:
//
//	ginkgo --label-filter='service:rc && level:must' ./conformance/judge -- -all
//
// A case that is unsupported is skipped. unsupportedFile lists how many are, for each device and
// reason: a device that refuses something new, or a bench that can do less, is noticed.
func TestSpecs(t *testing.T) {
	debug.SetGCPercent(400)         // hundreds of small worlds are created and become garbage
	debug.SetMemoryLimit(512 << 20) // a case that registers 1 GiB would have 4 GiB of garbage kept
	RunSpecs(t, "Conformance of the emulated devices")
}

var _ = Describe("in simulation", func() {
	for _, p := range nics.All() {
		Describe(p.Name, Label("device:"+p.Name), func() {
			known, err := conformance.DeviationsOf(p.Name, "sim")
			if err != nil {
				panic(err)
			}
			lab := bench.InSimulation(p, bench.SimOptions{})
			opt := conformance.Options{Seed: 1, Deviations: known, Schedules: 5}
			if *all {
				opt.Schedules = 0 // the number of each case
			}
			for _, s := range judge.SuitesOf(p.Protocol) {
				Describe(s.Title, func() {
					addSpecs(s, func() conformance.Lab { return lab }, opt)
				})
			}
		})
	}
})

// addSpecs adds a spec for every case of the suite. It passes, is skipped or fails by the
// verdict of [conformance.Judge].
func addSpecs(s *conformance.Suite, lab func() conformance.Lab, opt conformance.Options) {
	for i := range s.Cases {
		c := &s.Cases[i]
		if slices.Contains(c.Labels, conformance.Slow) && !*all {
			continue
		}
		It(c.ID+": "+c.Title, Label(append(c.AllLabels(), "suite:"+s.Name)...), func(ctx SpecContext) {
			res := conformance.Judge(ctx, lab(), c, opt)
			AddReportEntry("verdict", string(res.Verdict), ReportEntryVisibilityFailureOrVerbose)
			switch {
			case res.Verdict == conformance.VerdictUnsupported:
				Skip(conformance.UnsupportedReason(res.Err))
			case !res.Verdict.Acceptable():
				AddReportEntry("events", ReportEntryVisibilityFailureOrVerbose, formatEvents(s, &res))
				Fail(fmt.Sprintf("%s: %s [%s]: %v", res.Verdict, c.ID, c.Cite, res.Err))
			}
		})
	}
}

// unsupportedFile has the number of unsupported cases in simulation, by device and reason.
const unsupportedFile = ledgerDir + "/unsupported.txt"

var _ = ReportAfterSuite("unsupported cases are those of the list", func(r Report) {
	if *all || r.SuiteConfig.LabelFilter != "" || len(r.SuiteConfig.FocusStrings)+len(r.SuiteConfig.SkipStrings) > 0 {
		return // the list has the cases of a run without these flags
	}
	numbers := map[string]int{} // by device and reason
	for i := range r.SpecReports {
		s := &r.SpecReports[i]
		if s.State == types.SpecStateSkipped {
			device := strings.TrimPrefix(s.Labels()[slices.IndexFunc(s.Labels(), func(l string) bool { return strings.HasPrefix(l, "device:") })], "device:")
			numbers[fmt.Sprintf("%-10s %s", device, s.FailureMessage())]++
		}
	}
	var now strings.Builder
	for _, line := range slices.Sorted(maps.Keys(numbers)) {
		fmt.Fprintf(&now, "%4d  %s\n", numbers[line], line)
	}
	if update.on {
		must.Do(GinkgoTB(), os.WriteFile(unsupportedFile, []byte(now.String()), 0o666))
	}
	listed := must.Get(os.ReadFile(unsupportedFile))(GinkgoTB())
	if now.String() != string(listed) {
		Fail(fmt.Sprintf("the unsupported cases are\n%sand differ from %s; if that is intended, run go test ./conformance/judge -update", &now, unsupportedFile))
	}
})

// formatEvents returns the recorded events of the wire, one line each.
func formatEvents(s *conformance.Suite, res *conformance.Result) (text string) {
	events, omitted := res.Record.Events()
	for i := range events {
		text += fmt.Sprintf("%12v %s\n", events[i].At, s.DescribeEvent(&events[i]))
	}
	if omitted > 0 {
		text += fmt.Sprintf("and %d more\n", omitted)
	}
	return text
}
