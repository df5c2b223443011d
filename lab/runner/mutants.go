package runner

import (
	"fmt"
	"slices"

	"github.com/fabrictest/fabrictest/conformance/judge"
	"github.com/fabrictest/fabrictest/internal/cmdline"
	"github.com/fabrictest/fabrictest/internal/mutant"
	"github.com/fabrictest/fabrictest/lab/nics"
)

// selectMutant makes devices of this program have the mutant among some defects, if there
// is one, until restore is called.
func selectMutant(defects []string) (restore func(), err error) {
	i := slices.IndexFunc(defects, nics.IsMutant)
	switch {
	case i < 0:
		return func() {}, nil
	case slices.ContainsFunc(defects[i+1:], nics.IsMutant):
		return nil, cmdline.Errorf("--defect: %s is built into the device, and so is another: give one of them", defects[i])
	case !mutant.Select(defects[i]):
		return nil, fmt.Errorf("this program was built without the defect %s", defects[i])
	}
	return func() { mutant.Select("") }, nil
}

// NeedsMutants reports whether cases run on devices with mutants, and this program was
// built without them.
func NeedsMutants(j *judge.Judge) bool {
	if len(mutant.Names()) > 0 {
		return false
	}
	for _, d := range j.Devices {
		if slices.ContainsFunc(d.Defects, nics.IsMutant) {
			return true
		}
		if j.CheckCases && slices.ContainsFunc(j.TrialDefects(d), nics.IsMutant) {
			return true
		}
	}
	return false
}

// DropMutants leaves out the mutants where they cannot be built. It returns an error if
// --defect names one.
func DropMutants(j *judge.Judge, why error) error {
	for _, d := range j.Devices {
		if i := slices.IndexFunc(d.Defects, nics.IsMutant); i >= 0 {
			return fmt.Errorf("the defect %s is built into the device: %w", d.Defects[i], why)
		}
	}
	j.WithoutMutants = true
	return nil
}
