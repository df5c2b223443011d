package judge_test

import (
	"context"
	"strings"
	"testing"

	"github.com/fabrictest/fabrictest/conformance"
	"github.com/fabrictest/fabrictest/conformance/judge"
	"github.com/fabrictest/fabrictest/lab/bench"
	"github.com/fabrictest/fabrictest/lab/nics"
	"github.com/fabrictest/fabrictest/verbs"
)

// wrongCounterLab is a lab whose devices report a wrong value of one counter.
type wrongCounterLab struct {
	conformance.Lab
	name   string
	change func(uint64) uint64
}

func (l wrongCounterLab) WithBench(ctx context.Context, job conformance.BenchSpec, body func(*conformance.Bench) error) error {
	return l.Lab.WithBench(ctx, job, func(b *conformance.Bench) error {
		b.Device = device{b.Device, l}
		return body(b)
	})
}

type device struct {
	verbs.Context
	lab wrongCounterLab
}

func (d device) Counters() []verbs.Counter {
	all := d.Context.Counters()
	for i := range all {
		if all[i].Name == d.lab.name {
			all[i].Value = d.lab.change(all[i].Value)
		}
	}
	return all
}

// Each case fails if one of its counters does not change, or increases too much.
func TestCasesDetectWrongCounters(t *testing.T) {
	for _, p := range nics.All() {
		var cases []conformance.Case
		for _, suite := range judge.SuitesOf(p.Protocol) {
			cases = append(cases, suite.Cases...)
		}
		lab := bench.InSimulation(p, bench.SimOptions{})
		for i := range cases {
			c := &cases[i]
			for _, m := range c.Defects {
				name, ok := strings.CutPrefix(m, "CounterStuck=")
				if missing := c.Needs &^ (p.Caps | p.ReliableCaps); !ok || missing != 0 {
					continue
				}
				for kind, change := range map[string]func(uint64) uint64{
					"does not change":    func(uint64) uint64 { return 0 },
					"counts three times": func(n uint64) uint64 { return 3 * n },
				} {
					r := conformance.Judge(t.Context(), wrongCounterLab{lab, name, change}, c, conformance.Options{Seed: 1})
					if r.Verdict != conformance.VerdictFail || !strings.Contains(r.Err.Error(), name) && !strings.Contains(r.Err.Error(), "increased by") {
						t.Errorf("%s: %s with %s, which %s: %v", c.ID, r.Verdict, name, kind, r.Err)
					}
				}
			}
		}
	}
}
