package judge_test

import (
	"fmt"
	"strings"
	"testing"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/fabrictest/fabrictest/conformance"
	"github.com/fabrictest/fabrictest/conformance/judge"
	"github.com/fabrictest/fabrictest/lab/bench"
	"github.com/fabrictest/fabrictest/lab/nics"
)

// TestSpecs runs the cases as Ginkgo specs, for its labels, parallel runs and reports:
//
//	ginkgo --label-filter='service:rc && level:must' ./conformance/judge
//
// Cases that can crash or wedge a real device are skipped unless the filter names
// them: --label-filter='dangerous || level:must'.
func TestSpecs(t *testing.T) {
	RegisterFailHandler(Fail)
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
			for _, s := range judge.SuitesOf(p.Protocol) {
				Describe(s.Title, func() {
					addSpecs(s, func() conformance.Lab { return lab }, conformance.Options{Seed: 1, Deviations: known})
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
		It(c.ID+": "+c.Title, Label(append(c.AllLabels(), "suite:"+s.Name)...), func(ctx SpecContext) {
			if c.Dangerous() && !strings.Contains(GinkgoLabelFilter(), conformance.Dangerous) {
				Skip("the case can crash or wedge a real device, and runs only if --label-filter names " + conformance.Dangerous)
			}
			res := conformance.Judge(ctx, lab(), c, opt)
			AddReportEntry("verdict", string(res.Verdict), ReportEntryVisibilityFailureOrVerbose)
			switch {
			case res.Verdict == conformance.VerdictUnsupported:
				Skip(res.Err.Error())
			case !res.Verdict.Acceptable():
				AddReportEntry("events", ReportEntryVisibilityFailureOrVerbose, formatEvents(s, &res))
				Fail(fmt.Sprintf("%s: %s [%s]: %v", res.Verdict, c.ID, c.Cite, res.Err))
			}
		})
	}
}

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
