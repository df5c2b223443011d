package bench

import (
	"testing"
	"time"

	"github.com/fabrictest/fabrictest/conformance"
	"github.com/fabrictest/fabrictest/conformance/judge"
	"github.com/fabrictest/fabrictest/internal/must"
)

// Verb calls through an agent on a busy virtual machine are slow, and must not
// change verdicts. Datagram-iWARP has no device behind an agent.
func TestSlowVerbsChangeNoVerdict(t *testing.T) {
	for _, p := range protocols {
		if p.protocol == conformance.DatagramIWARP {
			continue
		}
		known := must.Get(conformance.DeviationsOf(p.provider, "wire"))(t)
		t.Run(p.provider, func(t *testing.T) {
			lab := InSimulation(provider(t, p.provider), SimOptions{VerbTime: 40 * time.Millisecond})
			r := &conformance.Runner{Lab: lab, Workers: 2, Options: conformance.Options{Deviations: known}}
			var cases []*conformance.Case
			for _, s := range judge.SuitesOf(p.protocol) {
				for i := range s.Cases {
					cases = append(cases, &s.Cases[i])
				}
			}
			results := must.Get(r.Run(t.Context(), cases))(t)
			for _, res := range results {
				if !res.Verdict.Acceptable() {
					t.Errorf("%s: %s: %v", res.Case.ID, res.Verdict, res.Err)
				}
			}
		})
	}
}
