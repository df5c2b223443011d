package judge

import (
	"slices"

	"github.com/fabrictest/fabrictest/conformance"
	"github.com/fabrictest/fabrictest/conformance/ledger"
	"github.com/fabrictest/fabrictest/internal/cmdline"
)

// maxDeviations bounds the size of a file of deviations, in bytes.
const maxDeviations = 4 << 20

// ReadDeviations reads a file of deviations and returns those that apply to a tier, by
// case. Every deviation must have a reason and name a case of the suites.
func ReadDeviations(file, tier string, all []*conformance.Suite) (map[string]conformance.Deviation, error) {
	b, err := cmdline.ReadFile(file, maxDeviations)
	if err != nil {
		return nil, cmdline.Errorf("--deviations: %w", err)
	}
	known, err := ledger.ParseDeviations(b)
	if err != nil {
		return nil, cmdline.Errorf("--deviations %s: %w", file, err)
	}
	var ids []string
	for _, s := range all {
		for i := range s.Cases {
			ids = append(ids, s.Cases[i].ID)
		}
	}
	for id := range known {
		if !slices.Contains(ids, id) {
			return nil, cmdline.Errorf("--deviations %s: the device is judged by no case %q%s", file, id, cmdline.Guess(id, ids))
		}
	}
	return known.On(tier), nil
}
