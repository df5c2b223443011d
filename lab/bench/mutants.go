package bench

import (
	"fmt"
	"slices"

	"github.com/fabrictest/fabrictest/internal/cmdline"
	"github.com/fabrictest/fabrictest/internal/mutant"
	"github.com/fabrictest/fabrictest/lab/nics"
)

// SelectMutant makes devices of this program have the mutant among some defects, if there
// is one, until restore is called.
func SelectMutant(defects []string) (restore func(), err error) {
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
