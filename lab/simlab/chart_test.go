package simlab

import (
	"context"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/fabrictest/fabrictest/internal/must"
	"github.com/fabrictest/fabrictest/lab"
	"github.com/fabrictest/fabrictest/report"
	"github.com/fabrictest/fabrictest/scenarios"
)

// Programs count messages in batches. The charts of the report must not exceed the
// rate of the links: 200 Gb/s to a host with two rails, 800 Gb/s to all hosts of
// the fat tree.
func TestChartsKeepToTheLinkRate(t *testing.T) {
	scale := regexp.MustCompile(`<span class="top">([^<]*)</span>`)
	for name, want := range map[string]string{"multi-rail": "200 Gb/s", "fat-tree": "800 Gb/s", "stream-write": "100 Gb/s", "rate-limited": "500 Mb/s"} {
		all := shipped(t)
		s := all[slices.IndexFunc(all, func(s *scenarios.Scenario) bool { return s.Name == name })]
		run := &report.Run{Version: report.Version, Scenarios: []report.Result{*Run(context.Background(), s, lab.Options{})}}
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
