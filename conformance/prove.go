package conformance

import (
	"context"
	"fmt"
	"slices"
)

// Proof says whether a case can tell a sound device from flawed ones.
type Proof struct {
	Case *Case
	// Sound is the result on the device without defects.
	Sound Result
	// Flawed are those with each of the case's mutants.
	Flawed []Result
}

// Errs is why the case proves nothing; empty if it does. A case that the sound
// device does not support has nothing to prove there.
func (p *Proof) Errs() (errs []error) {
	if p.Sound.Verdict == VerdictUnsupported {
		return nil
	}
	if !p.Sound.Verdict.Good() {
		errs = append(errs, fmt.Errorf("%s: %s on the sound device: %w", p.Case.ID, p.Sound.Verdict, p.Sound.Err))
	}
	for _, f := range p.Flawed {
		switch {
		case f.Verdict == VerdictFail:
		case f.Err == nil:
			errs = append(errs, fmt.Errorf("%s: %s with %s, which it is to catch", p.Case.ID, f.Verdict, f.Quirks[0]))
		default:
			errs = append(errs, fmt.Errorf("%s: %s with %s, which it is to catch: %w", p.Case.ID, f.Verdict, f.Quirks[0], f.Err))
		}
	}
	return errs
}

// Prove judges each case on the sound device and on one with each of its mutants.
// knows reports whether the device under test can have a defect; others are left out,
// for a case may run on several kinds of devices.
func (r *Runner) Prove(ctx context.Context, cases []*Case, knows func(quirk string) bool) ([]Proof, error) {
	var trials []trial
	for _, c := range cases {
		trials = append(trials, trial{c, Options{Seed: r.Seed}})
		for _, q := range c.Mutants {
			if knows(q) {
				trials = append(trials, trial{c, Options{Seed: r.Seed, Quirks: []string{q}}})
			}
		}
	}
	results, err := r.all(ctx, trials)
	var proofs []Proof
	for _, res := range results {
		switch {
		case len(res.Quirks) == 0:
			proofs = append(proofs, Proof{Case: res.Case, Sound: res})
		case len(proofs) > 0 && proofs[len(proofs)-1].Case == res.Case:
			last := &proofs[len(proofs)-1]
			last.Flawed = append(last.Flawed, res)
		}
	}
	return proofs, err
}

// Matrix judges every case on a device with each of the quirks, and returns for each
// quirk the cases that catch it.
func (r *Runner) Matrix(ctx context.Context, cases []*Case, quirks []string) (map[string][]string, error) {
	var trials []trial
	for _, q := range quirks {
		for _, c := range cases {
			trials = append(trials, trial{c, Options{Seed: r.Seed, Quirks: []string{q}}})
		}
	}
	results, err := r.all(ctx, trials)
	caught := make(map[string][]string)
	for _, res := range results {
		if res.Verdict == VerdictFail {
			caught[res.Quirks[0]] = append(caught[res.Quirks[0]], res.Case.ID)
		}
	}
	for _, ids := range caught {
		slices.Sort(ids)
	}
	return caught, err
}
