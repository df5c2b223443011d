// Package specs wraps conformance cases as Ginkgo specs, for its labels, parallel runs and JUnit
// and JSON reports. A spec passes, is skipped or fails by the verdict of [conformance.Judge].
//
//	ginkgo --label-filter='service:rc && level:must' ./conformance/specs
//
// Cases that can crash or wedge a real device are skipped unless the filter names
// them: --label-filter='dangerous || level:must'.
package specs

import (
	"fmt"
	"strings"

	"github.com/onsi/ginkgo/v2"

	"github.com/fabrictest/fabrictest/conformance"
)

// Add adds a spec for every case of the suite. Call it within a container node.
func Add(s *conformance.Suite, lab func() conformance.Lab, opt conformance.Options) {
	for i := range s.Cases {
		c := &s.Cases[i]
		ginkgo.It(c.ID+": "+c.Title, ginkgo.Label(append(c.AllLabels(), "suite:"+s.Name)...), func(ctx ginkgo.SpecContext) {
			if c.Dangerous() && !strings.Contains(ginkgo.GinkgoLabelFilter(), conformance.Dangerous) {
				ginkgo.Skip("the case can crash or wedge a real device, and runs only if --label-filter names " + conformance.Dangerous)
			}
			res := conformance.Judge(ctx, lab(), c, opt)
			ginkgo.AddReportEntry("verdict", string(res.Verdict), ginkgo.ReportEntryVisibilityFailureOrVerbose)
			switch {
			case res.Verdict == conformance.VerdictUnsupported:
				ginkgo.Skip(res.Err.Error())
			case !res.Verdict.Acceptable():
				ginkgo.AddReportEntry("events", ginkgo.ReportEntryVisibilityFailureOrVerbose, formatEvents(s, &res))
				ginkgo.Fail(fmt.Sprintf("%s: %s [%s]: %v", res.Verdict, c.ID, c.Cite, res.Err))
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
