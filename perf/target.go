package perf

// Target is what a figure must reach.
type Target struct {
	Name  string  `json:"name"`
	Got   float64 `json:"got"`
	Want  float64 `json:"want"`
	Most  bool    `json:"most"` // Want is the most that Got may be; else the least
	Unit  string  `json:"unit,omitempty"`
	Noise float64 `json:"noise"`
	// Verdict is "holds", "missed" or "unclear".
	Verdict string `json:"verdict"`
}

// Verdicts on a target. It is unclear whether one holds that is missed by less
// than the noise; and in a loud run, also one that is reached by less.
const (
	Holds   = "holds"
	Missed  = "missed"
	Unclear = "unclear"
)

// Loud is the noise from which on a run is too noisy to believe it.
const Loud = 0.15

func (t Target) judge() Target {
	// The worst and the best that the figure may be for the noise.
	worst, best := t.Got*(1-t.Noise), t.Got*(1+t.Noise)
	if t.Most {
		worst, best = best, worst
	}
	reached := func(got float64) bool { return t.Most && got <= t.Want || !t.Most && got >= t.Want }
	switch {
	case reached(worst), reached(t.Got) && t.Noise < Loud:
		t.Verdict = Holds
	case reached(best), t.Noise >= Loud:
		t.Verdict = Unclear
	default:
		t.Verdict = Missed
	}
	return t
}

// quickTargets are what we promise of a quick run's figures, for two hosts with
// a core each.
func (q *Result) quickTargets() []Target {
	return []Target{
		{Name: "write of 1 MiB to bare sockets", Got: q.Ratios.WriteToLimit, Want: 0.6, Noise: q.Noises.Write},
		{Name: "half round trip of 8 B to bare sockets, spinning", Got: q.Ratios.LatencyToRawSpinning, Want: 1.6, Most: true, Noise: q.Noises.Spinning},
		{Name: "half round trip of 8 B to bare sockets, blocking", Got: q.Ratios.LatencyToRawBlocking, Want: 1.6, Most: true, Noise: q.Noises.Blocking},
		{Name: "sends of 64 B, depth 64", Got: q.Rates.Send64PerS, Want: 600_000, Unit: "1/s", Noise: q.Noises.Rate},
		{Name: "the same over up to 64 QPs to that over one", Got: q.Rates.QPsFlatness, Want: 0.8, Noise: q.Noises.Rate},
		q.memoryTarget(),
	}
}

func (q *Result) memoryTarget() Target {
	return Target{Name: "memory of an idle host", Got: q.Memory.IdleMB, Want: 40, Most: true, Unit: "MB"}
}

// judge finds a verdict on each.
func judge(all []Target) []Target {
	for i := range all {
		all[i] = all[i].judge()
	}
	return all
}

// Worst is the verdict on the run: Missed if any target is, else Unclear if any
// is, else Holds.
func (q *Result) Worst() string {
	worst := Holds
	for _, t := range q.Targets {
		switch t.Verdict {
		case Missed:
			return Missed
		case Unclear:
			worst = Unclear
		}
	}
	return worst
}
