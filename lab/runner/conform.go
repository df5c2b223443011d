package runner

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/fabrictest/fabrictest/conformance"
	"github.com/fabrictest/fabrictest/conformance/judge"
	"github.com/fabrictest/fabrictest/internal/cli"
	"github.com/fabrictest/fabrictest/lab/nics"
	"github.com/fabrictest/fabrictest/report/conform"
	"github.com/fabrictest/fabrictest/scenarios"
)

// Conformance selects emulated devices, the cases that run on them, and how they run.
type Conformance struct {
	conformance.Filter
	Selection
	judge.Options // Workers may be 0 for the default; RealTime and Part follow from the others
	Tier          scenarios.Tier
	Deviations    string // a file; empty for those that are known of the devices
	// Replay returns the command line that repeats a case on a device.
	Replay func(device, id string) string
}

// Plan checks the options, and returns a judge that will run the selected cases on the devices.
func (c *Conformance) Plan() (*judge.Judge, error) {
	j, err := c.judge()
	if err != nil {
		return nil, err
	}
	selected, err := c.Selection.Devices()
	if err != nil {
		return nil, err
	}
	c.IncludeDangerous = true // an emulated device that a case breaks is simply created again
	if err := checkFilter(&c.Filter, selected); err != nil {
		return nil, err
	}
	for _, d := range selected {
		if d.Cases = judge.Select(&c.Filter, suites(d)); len(d.Cases) > 0 {
			j.Devices = append(j.Devices, d)
		}
	}
	if len(j.Devices) == 0 {
		return nil, cli.Errorf("no case matches the names, --level, --label and --without: 'fabrictest list cases' shows all")
	}
	return j, c.addDeviations(j.Devices)
}

// addDeviations sets the known deviations of the devices, the cases that they are expected to fail:
// those of the file c.Deviations, which needs a single device, or those that ship with fabrictest.
func (c *Conformance) addDeviations(devices []*judge.Device) (err error) {
	if c.Deviations != "" {
		if len(devices) > 1 {
			return cli.Errorf("--deviations: the file is for one device: name the device with --device")
		}
		devices[0].Deviations, err = judge.ReadDeviations(c.Deviations, string(c.Tier), suites(devices[0]))
		return err
	}
	for _, d := range devices {
		if len(d.Defects) > 0 || c.Profile != "" {
			continue // the deviations are those of devices without injected defects and without a profile
		}
		if d.Deviations, err = conformance.DeviationsOf(d.Name, string(c.Tier)); err != nil {
			return err
		}
	}
	return nil
}

// PlanMeasurement checks the options, and returns a judge, which will measure the recovery of the
// devices from loss and congestion. Without names these are all devices that can be measured.
func (c *Conformance) PlanMeasurement() (*judge.Judge, error) {
	j, err := c.judge()
	if err != nil {
		return nil, err
	}
	if len(c.Names) == 0 && c.Profile == "" {
		c.Names = Measurable()
	}
	if j.Devices, err = c.Selection.Devices(); err != nil {
		return nil, err
	}
	for _, d := range j.Devices {
		if d.Protocol != conformance.RoCE {
			return nil, cli.Errorf("%s cannot be measured: recovery from loss and congestion is measured for RoCE only; choose %s", d.Name, strings.Join(Measurable(), ", "))
		}
	}
	return j, nil
}

// Measurable returns the providers whose devices the command conform measure supports.
func Measurable() []string {
	return nics.NamesWith(func(p *nics.Provider) bool { return p.Protocol == conformance.RoCE })
}

// judge checks the options other than those that select devices and cases. It returns a judge,
// which runs cases on devices, but has no devices yet.
func (c *Conformance) judge() (*judge.Judge, error) {
	switch {
	case c.Tier != scenarios.Sim && c.Tier != scenarios.NetNS:
		return nil, cli.Errorf("--on %s: give sim or netns", c.Tier)
	case c.Matrix && !c.CheckCases:
		return nil, cli.Errorf("--matrix needs --check-cases: give both")
	case c.CheckCases && (len(c.Defects) > 0 || c.Profile != ""):
		return nil, cli.Errorf("--check-cases: the cases are judged on devices that have one defect at a time: leave out --defect and --as")
	case c.CheckCases && c.Deviations != "":
		return nil, cli.Errorf("--check-cases: the cases are judged on a device that has no known deviations: leave out --deviations")
	}
	labs := &labs{tier: c.Tier, workers: c.Workers, schedules: c.Schedules}
	o := c.Options
	o.RealTime, o.Workers = c.Tier != scenarios.Sim, labs.caseWorkers()
	o.Filtered = len(c.IDs) > 0 || c.Level != "" || len(c.Labels) > 0 || len(c.ExcludeLabels) > 0
	return &judge.Judge{Options: o, Hooks: judge.Hooks{
		Open: labs.open, SelectMutant: selectMutant, CheckDefect: nics.CheckDefect,
		Replay: func(d *judge.Device, id string) string { return c.Replay(d.Name, id) },
	}}, nil
}

// Measure measures how j.Devices recover from loss and congestion, and adds their reports to a run.
// It continues after an error, and returns the errors of all devices.
func Measure(ctx context.Context, j *judge.Judge, run *conform.Run) (errs error) {
	for _, d := range j.Devices {
		r := d.Report()
		j.Show.Start(d.Name)
		var err error
		r.Measured, err = j.Measure(ctx, d)
		j.Show.End(d.Name)
		if err != nil {
			errs = errors.Join(errs, fmt.Errorf("measure %s: %w", r.Label(), err))
		}
		run.Devices = append(run.Devices, r)
	}
	return errs
}
