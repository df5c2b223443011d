package main

import (
	"fmt"
	"strings"

	"github.com/fabrictest/fabrictest/conformance"
	"github.com/fabrictest/fabrictest/conformance/judge"
	"github.com/fabrictest/fabrictest/internal/cmdline"
	"github.com/fabrictest/fabrictest/lab/devices"
	"github.com/fabrictest/fabrictest/lab/nics"
	"github.com/fabrictest/fabrictest/scenarios"
)

// plan checks the flags, and returns the devices with the cases to run.
func (o *conformOptions) plan() (*judge.Judge, error) {
	j, err := o.judge()
	if err != nil {
		return nil, err
	}
	selected, err := o.selection().Devices()
	if err != nil {
		return nil, err
	}
	if err := devices.CheckFilter(&o.Filter, selected); err != nil {
		return nil, err
	}
	for _, d := range selected {
		if d.Cases = judge.Select(&o.Filter, devices.Suites(d)); len(d.Cases) > 0 {
			j.Devices = append(j.Devices, d)
		}
	}
	if len(j.Devices) == 0 {
		return nil, devices.NoCasesError(&o.Filter, selected)
	}
	if o.deviations != "" {
		if len(j.Devices) > 1 {
			return nil, cmdline.Errorf("--deviations: a file is about one device: name it with --device")
		}
		j.Devices[0].Deviations, err = judge.ReadDeviations(o.deviations, o.on, devices.Suites(j.Devices[0]))
		return j, err
	}
	for _, d := range j.Devices {
		if len(d.Defects) > 0 || o.profile != "" {
			continue // the known deviations are those of the device as it comes
		}
		if d.Deviations, err = conformance.DeviationsOf(d.Name, o.on); err != nil {
			return nil, err
		}
	}
	return j, nil
}

// judge checks the flags but for those that select devices and cases.
func (o *conformOptions) judge() (*judge.Judge, error) {
	seed, err := parseSeed(o.seed, 1)
	if err != nil {
		return nil, err
	}
	if err := o.check(); err != nil {
		return nil, err
	}
	labs := &devices.Labs{Tier: scenarios.Tier(o.on), Workers: o.workers, Schedules: o.schedules}
	return &judge.Judge{
		Options: judge.Options{
			Seed: seed, RealTime: o.on != string(scenarios.Sim), Workers: labs.CaseWorkers(), Schedules: o.schedules, Dangerous: o.IncludeDangerous,
			Part: o.part(), CheckCases: o.checkCases, Matrix: o.matrix, Ladders: o.packets, Capture: o.capture,
		},
		Hooks: judge.Hooks{
			Open: labs.Open, SelectMutant: devices.SelectMutant, CheckDefect: nics.CheckDefect,
			Replay: func(d *judge.Device, id string) string { return o.replay(d.Name, id, seed) },
		},
	}, nil
}

// selection returns the flags that select devices.
func (o *conformOptions) selection() *devices.Selection {
	return &devices.Selection{Names: o.devices, Profile: o.profile, Defects: o.defects}
}

// check returns an error for flags that are wrong or contradict each other.
func (o *conformOptions) check() error {
	var err error
	if o.Level, err = judge.ParseLevel(o.level); err != nil {
		return err
	}
	switch {
	case o.on != string(scenarios.Sim) && o.on != string(scenarios.NetNS):
		return cmdline.Errorf("--on %s: give sim or netns", o.on)
	case o.given("workers") && o.workers < 1:
		return cmdline.Errorf("--workers %d: give a number from 1 on", o.workers)
	case o.given("schedules") && o.schedules < 1:
		return cmdline.Errorf("--schedules %d: give a number from 1 on", o.schedules)
	case o.matrix && !o.checkCases:
		return cmdline.Errorf("--matrix: it is about --check-cases: give both")
	case o.checkCases && (len(o.defects) > 0 || o.profile != ""):
		return cmdline.Errorf("--check-cases: the cases are judged on devices that have one defect at a time: leave out --defect and --as")
	case o.checkCases && o.deviations != "":
		return cmdline.Errorf("--check-cases: the cases are judged on a device that has no known deviations: leave out --deviations")
	}
	return nil
}

// part reports whether some cases are left out.
func (o *conformOptions) part() bool {
	return len(o.IDs) > 0 || o.level != "" || len(o.Labels) > 0 || len(o.ExcludeLabels) > 0
}

// command is the command line that repeats the run.
func (o *conformOptions) command(seed uint64) string {
	l := cmdline.NewLine(o.program+" conform").Args(o.IDs...).Flag("device", o.devices...).Flag("level", strings.ToLower(o.level))
	l.Flag("label", o.Labels...).Flag("without", o.ExcludeLabels...)
	return o.addConditions(l, seed).Switch("check-cases", o.checkCases).Switch("matrix", o.matrix).String()
}

// replay is the command line that repeats one case.
func (o *conformOptions) replay(device, id string, seed uint64) string {
	return o.addConditions(cmdline.NewLine(o.program+" conform "+id).Flag("device", device), seed).String()
}

// addConditions adds the flags that affect verdicts to a command line.
func (o *conformOptions) addConditions(l *cmdline.Line, seed uint64) *cmdline.Line {
	l.Flag("on", o.on).Flag("seed", fmt.Sprint(seed)).Flag("as", o.profile).Flag("defect", o.defects...)
	return l.Switch("dangerous", o.IncludeDangerous).Flag("schedules", numberUnless0(o.schedules)).Flag("deviations", o.deviations)
}
