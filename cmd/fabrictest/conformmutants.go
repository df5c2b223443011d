package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"

	"github.com/spf13/cobra"

	"github.com/fabrictest/fabrictest/emu/defects/mutants"
	"github.com/fabrictest/fabrictest/internal/cmdline"
	"github.com/fabrictest/fabrictest/internal/mutant"
	"github.com/fabrictest/fabrictest/internal/mutate"
	"github.com/fabrictest/fabrictest/lab/nics"
)

// needsMutants reports whether cases are to be judged on devices with mutants, which
// this program does not have.
func (j *judgement) needsMutants() bool {
	if len(mutant.Names()) > 0 {
		return false
	}
	for _, s := range j.subjects {
		if slices.ContainsFunc(s.defects, nics.IsMutant) {
			return true
		}
		if j.opts.checkCases && slices.ContainsFunc(j.defects(s), func(d caseDefect) bool { return nics.IsMutant(d.spec) }) {
			return true
		}
	}
	return false
}

// dropMutants leaves out the mutants where they cannot be built. It returns an error if
// the user asked for one by its name.
func (j *judgement) dropMutants(why error) error {
	for _, s := range j.subjects {
		if i := slices.IndexFunc(s.defects, nics.IsMutant); i >= 0 {
			return fmt.Errorf("the defect %s is built into the device: %w", s.defects[i], why)
		}
	}
	j.withoutMutants = true
	return nil
}

// runWithMutants runs the command again, in a build of this program with mutants.
func runWithMutants(cmd *cobra.Command, args []string, dir string) (err error) {
	tmp, err := os.MkdirTemp("", "fabrictest-mutants-*")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(tmp)) }()
	all := mutants.All()
	fmt.Fprintf(cmd.ErrOrStderr(), "Building the devices with %d mutants...\n", len(all))
	program, err := mutate.Build(cmd.Context(), tmp, "cmd/fabrictest", all)
	if err != nil {
		return err
	}
	return runAgain(cmd, program, args, dir, (*exec.Cmd).Start)
}

// selectMutant selects the mutant among some defects, if there is one, and returns a
// function that ends that.
func selectMutant(defects []string) (func(), error) {
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
