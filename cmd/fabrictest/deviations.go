package main

import (
	"slices"

	"github.com/fabrictest/fabrictest/conformance"
	"github.com/fabrictest/fabrictest/conformance/ledger"
	"github.com/fabrictest/fabrictest/conformance/suites"
	"github.com/fabrictest/fabrictest/internal/cmdline"
	"github.com/fabrictest/fabrictest/internal/regularfile"
	"github.com/fabrictest/fabrictest/lab/nics"
)

// maxDeviations is the length of the longest file of deviations that is read.
const maxDeviations = 4 << 20

// readDeviations reads a file of deviations, and returns the reasons of those that hold
// on a tier, by case. A case that the device is not judged by is a mistake, and so is a
// deviation without a reason.
func readDeviations(file, tier string, p *nics.Provider) (map[string]conformance.Deviation, error) {
	b, err := regularfile.ReadFile(file, maxDeviations)
	if err != nil {
		return nil, cmdline.Errorf("--deviations: %w", err)
	}
	known, err := ledger.ParseDeviations(b)
	if err != nil {
		return nil, cmdline.Errorf("--deviations %s: %w", file, err)
	}
	var ids []string
	for _, s := range suites.Of(suites.ProtocolOf(p.Name)) {
		for i := range s.Cases {
			ids = append(ids, s.Cases[i].ID)
		}
	}
	for id := range known {
		if !slices.Contains(ids, id) {
			return nil, cmdline.Errorf("--deviations %s: %s is judged by no case %q%s", file, p.Name, id, cmdline.Guess(id, ids))
		}
	}
	return known.On(tier), nil
}

// knownOf returns the deviations that ship with us: those of a device as it comes.
func (o *conformOptions) knownOf(s *subject) (map[string]conformance.Deviation, error) {
	if len(s.defects) > 0 || o.profile != "" {
		return nil, nil
	}
	return ledger.DeviationsOf(s.provider.Name, o.on)
}
