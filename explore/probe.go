package explore

import (
	"cmp"
	"context"
	"math/rand/v2"
	"time"
)

const (
	maxProbes     = 200
	maxProbeSteps = 10_000
	maxProbeTime  = time.Second
)

// probe estimates from random runs what was not explored. A run that fails is the failure of the
// search.
func (s *search) probe(ctx context.Context) (u Unexplored) {
	ctx, cancel := context.WithTimeout(ctx, maxProbeTime)
	defer cancel()
	rng := rand.New(rand.NewPCG(s.Seed, 0))
	states, unseen, ends := 0, 0, 0
	for u.Probes < maxProbes && (ctx.Err() == nil || u.Probes == 0) && s.failure == nil {
		p := prober{search: s, rng: rng, runs: 1}
		if p.run() {
			u.AllRuns += p.runs
			ends++
		}
		states, unseen = states+p.states, unseen+p.unseen
		u.Probes++
	}
	if states > 0 {
		u.NewStates = float64(unseen) / float64(states)
	}
	if ends > 0 {
		u.AllRuns /= float64(u.Probes)
	}
	return u
}

// prober makes one random run.
type prober struct {
	*search
	rng            *rand.Rand
	inner          Path // of the last step
	states, unseen int
	runs           float64 // product of the numbers of alternatives
}

// Choose implements Chooser.
func (p *prober) Choose(kind string, n int) int {
	picked := p.rng.IntN(n)
	p.runs *= float64(n)
	if n > 1 {
		p.inner = append(p.inner, Choice{kind, picked, n})
	}
	return picked
}

// run reports whether the run has reached an end.
func (p *prober) run() (ended bool) {
	m := p.initial()
	if c, ok := m.(ChoosingMachine); ok {
		c.SetChooser(p)
	}
	var trail []taken
	for len(trail) < maxProbeSteps && (p.MaxDepth == 0 || len(trail) < p.MaxDepth) {
		steps := m.Enabled(nil)
		if len(steps) == 0 {
			break
		}
		picked := p.Choose("", len(steps))
		p.inner = nil
		err := m.Take(steps[picked])
		trail = append(trail, taken{steps[picked], picked, len(steps), p.inner})
		if err = cmp.Or(err, m.Check()); err != nil {
			p.fail(trail, err)
			return true
		}
		if p.states++; !p.visited.has(m.Fingerprint()) {
			p.unseen++
		}
	}
	steps := m.Enabled(nil)
	if err := finish(m, steps); err != nil {
		p.fail(trail, err)
	}
	return len(steps) == 0
}
