package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/fabrictest/fabrictest/conformance/judge"
	"github.com/fabrictest/fabrictest/emu/defects/mutants"
	"github.com/fabrictest/fabrictest/internal/mutant"
	"github.com/fabrictest/fabrictest/internal/mutate"
	"github.com/fabrictest/fabrictest/lab/bench"
	"github.com/fabrictest/fabrictest/lab/nics"
	"github.com/fabrictest/fabrictest/scenarios"
)

// Limits of a case with --schedules, after which it counts as hung: for the case, and for
// each schedule. The longest schedule has a few thousand events and a few timeouts.
const (
	caseEvents, scheduleEvents     = 20_000_000, 50_000
	caseTime, scheduleTime         = 2 * time.Hour, 10 * time.Second
	realCaseTime, realScheduleTime = 2 * time.Minute, 5 * time.Second
)

// open opens the lab for a device.
func (o *conformOptions) open(d *judge.Device) (judge.Lab, error) {
	provider, err := nics.Find(d.Name)
	if err != nil {
		return nil, err
	}
	var restrictions nics.Restrictions
	if d.Profile != "" {
		profile, err := nics.FindProfile(d.Profile)
		if err != nil {
			return nil, err
		}
		restrictions = profile.Restrictions
	}
	if o.on == string(scenarios.Sim) {
		opt := bench.SimOptions{Restrictions: restrictions}
		if o.schedules > 0 {
			opt.MaxEvents, opt.MaxTime = caseEvents+uint64(o.schedules)*scheduleEvents, caseTime+time.Duration(o.schedules)*scheduleTime
		}
		return bench.InSimulation(provider, opt), nil
	}
	opt := bench.NamespaceOptions{Parallel: o.caseWorkers(), Restrictions: restrictions}
	if o.schedules > 0 {
		opt.MaxTime = realCaseTime + time.Duration(o.schedules)*realScheduleTime
	}
	return bench.InNamespaces(provider, opt)
}

// needsMutants reports whether cases run on devices with mutants, and this program was
// built without them.
func needsMutants(j *judge.Judge) bool {
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

// dropMutants leaves out the mutants where they cannot be built. It returns an error if
// --defect names one.
func dropMutants(j *judge.Judge, why error) error {
	for _, d := range j.Devices {
		if i := slices.IndexFunc(d.Defects, nics.IsMutant); i >= 0 {
			return fmt.Errorf("the defect %s is built into the device: %w", d.Defects[i], why)
		}
	}
	j.WithoutMutants = true
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
