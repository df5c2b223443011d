package nslab

import (
	"strings"
	"testing"

	"github.com/fabrictest/fabrictest/lab"
	"github.com/fabrictest/fabrictest/netns"
	"github.com/fabrictest/fabrictest/report"
	"github.com/fabrictest/fabrictest/scenarios"
)

func TestShipped(t *testing.T) {
	if err := netns.Available(); err != nil {
		t.Skip(err)
	}
	all, err := scenarios.Builtin()
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range all {
		if !s.RunsOn(scenarios.NetNS) {
			continue
		}
		t.Run(s.Name, func(t *testing.T) {
			r := Run(t.Context(), s, lab.Options{Dir: t.TempDir()})
			if r.Verdict != report.Passed {
				t.Errorf("%s: %s\n%s", r.Verdict, r.Reason, r.Detail)
			}
			var bad []string
			for _, c := range r.Checks {
				if !c.OK {
					bad = append(bad, c.Name+": want "+c.Want+" got "+c.Got)
				}
			}
			t.Logf("%v wall %v %s", r.Elapsed, r.Wall, strings.Join(bad, "; "))
		})
	}
}
