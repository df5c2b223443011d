package perf

// Target is a required value of a figure.
type Target struct {
	Name  string  `json:"name"`
	Got   float64 `json:"got"`
	Want  float64 `json:"want"`
	IsMax bool    `json:"most"` // Want is a maximum, else a minimum
	Unit  string  `json:"unit,omitempty"`
	Noise float64 `json:"noise"`
	// Verdict is "holds", "missed" or "unclear".
	Verdict string `json:"verdict"`
}

// Verdicts on a target. A target that is missed by less than the noise is unclear;
// in a noisy run, also one that is met by less.
const (
	Holds   = "holds"
	Missed  = "missed"
	Unclear = "unclear"
)

// NoisyThreshold is the noise from which on a run is inconclusive.
const NoisyThreshold = 0.15

func (t Target) withVerdict() Target {
	// The range of the figure, given the noise.
	worst, best := t.Got*(1-t.Noise), t.Got*(1+t.Noise)
	if t.IsMax {
		worst, best = best, worst
	}
	reached := func(got float64) bool { return t.IsMax && got <= t.Want || !t.IsMax && got >= t.Want }
	switch {
	case reached(worst), reached(t.Got) && t.Noise < NoisyThreshold:
		t.Verdict = Holds
	case reached(best), t.Noise >= NoisyThreshold:
		t.Verdict = Unclear
	default:
		t.Verdict = Missed
	}
	return t
}

// quickTargets returns the targets of a quick run, for two hosts with a core each.
func (q *Result) quickTargets() []Target {
	return []Target{
		{Name: "write of 1 MiB to bare sockets", Got: q.Ratios.WriteToLimit, Want: 0.6, Noise: q.Noises.Write},
		{Name: "half round trip of 8 B to bare sockets, spinning", Got: q.Ratios.LatencyToRawSpinning, Want: 1.6, IsMax: true, Noise: q.Noises.Spinning},
		{Name: "half round trip of 8 B to bare sockets, blocking", Got: q.Ratios.LatencyToRawBlocking, Want: 1.6, IsMax: true, Noise: q.Noises.Blocking},
		{Name: "sends of 64 B, depth 64", Got: q.Rates.Send64PerS, Want: 600_000, Unit: "1/s", Noise: q.Noises.Rate},
		{Name: "the same over up to 64 QPs to that over one", Got: q.Rates.QPsFlatness, Want: 0.8, Noise: q.Noises.Rate},
		q.memoryTarget(),
	}
}

func (q *Result) memoryTarget() Target {
	return Target{Name: "memory of an idle host", Got: q.Memory.IdleMB, Want: 40, IsMax: true, Unit: "MB"}
}

// withVerdicts sets the verdict of each target.
func withVerdicts(all []Target) []Target {
	for i := range all {
		all[i] = all[i].withVerdict()
	}
	return all
}

// Verdict returns Missed if a target is missed, else Unclear if one is unclear,
// else Holds.
func (q *Result) Verdict() string {
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
