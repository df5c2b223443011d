package main

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/fabrictest/fabrictest/conformance"
	"github.com/fabrictest/fabrictest/conformance/judge"
	"github.com/fabrictest/fabrictest/conformance/ledger"
	"github.com/fabrictest/fabrictest/conformance/suites"
	"github.com/fabrictest/fabrictest/internal/cmdline"
	"github.com/fabrictest/fabrictest/lab/bench"
	"github.com/fabrictest/fabrictest/lab/nics"
	"github.com/fabrictest/fabrictest/scenarios"
)

// plan checks the flags, and returns the devices with the cases to run.
func (o *conformOptions) plan() (*judge.Judge, error) {
	j, err := o.judge()
	if err != nil {
		return nil, err
	}
	devices, err := o.judgedDevices()
	if err != nil {
		return nil, err
	}
	if err := o.checkCaseNames(devices); err != nil {
		return nil, err
	}
	for _, d := range devices {
		if d.Cases = judge.Select(&o.Filter, suitesFor(d)); len(d.Cases) > 0 {
			j.Devices = append(j.Devices, d)
		}
	}
	if len(j.Devices) == 0 {
		return nil, o.noCases(devices)
	}
	if o.deviations != "" {
		if len(j.Devices) > 1 {
			return nil, cmdline.Errorf("--deviations: a file is about one device: name it with --device")
		}
		j.Devices[0].Deviations, err = judge.ReadDeviations(o.deviations, o.on, suitesFor(j.Devices[0]))
		return j, err
	}
	for _, d := range j.Devices {
		if len(d.Defects) > 0 || o.profile != "" {
			continue // the known deviations are those of the device as it comes
		}
		if d.Deviations, err = ledger.DeviationsOf(d.Name, o.on); err != nil {
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
	return &judge.Judge{
		Options: judge.Options{
			Seed: seed, RealTime: o.on != string(scenarios.Sim), Workers: o.caseWorkers(), Schedules: o.schedules, Dangerous: o.IncludeDangerous,
			Part: o.part(), CheckCases: o.checkCases, Matrix: o.matrix, Ladders: o.packets, Capture: o.capture,
		},
		Hooks: judge.Hooks{
			Open: o.open, SelectMutant: bench.SelectMutant, CheckDefect: nics.CheckDefect,
			Replay: func(d *judge.Device, id string) string { return o.replay(d.Name, id, seed) },
		},
	}, nil
}

// suitesFor returns the suites of an emulated device.
func suitesFor(d *judge.Device) []*conformance.Suite { return suites.Of(suites.ProtocolOf(d.Name)) }

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

// judgedDevices returns the devices of --device; without it, those that can have the
// defects of --defect.
func (o *conformOptions) judgedDevices() (all []*judge.Device, err error) {
	var profile *nics.Profile
	if o.profile != "" {
		if profile, err = nics.FindProfile(o.profile); err != nil {
			return nil, cmdline.Errorf("--as: %w%s", err, cmdline.Guess(o.profile, nics.ProfileNames()))
		}
	}
	names := o.devices
	switch {
	case len(names) == 0 && profile != nil:
		names = []string{profile.Provider}
	case len(names) == 0:
		names = nics.Names()
	}
	var mistake error
	for _, name := range names {
		p, err := nics.Find(name)
		if err != nil {
			return nil, cmdline.Errorf("--device: %w%s", err, cmdline.Guess(name, nics.Names()))
		}
		if slices.ContainsFunc(all, func(d *judge.Device) bool { return d.Name == p.Name }) {
			continue
		}
		d := &judge.Device{Name: p.Name, Title: p.Title, Defects: o.defects, Known: knownDefects(p)}
		if profile != nil {
			if profile.Provider != p.Name {
				return nil, cmdline.Errorf("--as %s: that is a %s, and --device says %s", profile.Name, profile.Provider, p.Name)
			}
			d.Profile, d.Defects = profile.Name, slices.Concat(profile.Defects, o.defects)
		}
		if err := checkDefects(p, d.Defects); err != nil {
			mistake = err
			var foreign *nics.ForeignDefectError
			if len(o.devices) > 0 || !errors.As(err, &foreign) {
				return nil, err
			}
			continue
		}
		all = append(all, d)
	}
	if len(all) == 0 {
		return nil, mistake
	}
	return all, nil
}

func checkDefects(p *nics.Provider, defects []string) error {
	for _, q := range defects {
		if err := p.CheckDefect(q); err != nil {
			return defectMistake(err)
		}
	}
	return nil
}

// knownDefects returns the defects that a provider's devices can have.
func knownDefects(p *nics.Provider) (all []judge.Defect) {
	for _, q := range p.Defects {
		all = append(all, judge.Defect{
			Name: q.Name, Imitates: q.Imitates, Does: q.Does, Mutant: q.Mutant, NeedsNumber: p.CheckDefect(q.Name) != nil,
		})
	}
	return all
}

// checkCaseNames returns an error for a case or a label that the devices do not have.
func (o *conformOptions) checkCaseNames(devices []*judge.Device) error {
	var all []*conformance.Suite
	var names []string
	for _, d := range devices {
		all = append(all, suitesFor(d)...)
		names = append(names, d.Name)
	}
	if err := cmp.Or(judge.CheckLabels("--label", o.Labels, all), judge.CheckLabels("--without", o.ExcludeLabels, all)); err != nil {
		return err
	}
	var none *conformance.NoCaseError
	if err := o.CheckPatterns(all...); !errors.As(err, &none) {
		return err
	}
	if err := o.CheckPatterns(suites.All()...); err == nil {
		return cmdline.Errorf("%s is no case for %s: ask for devices that it is for, or for none by name", none.Pattern, strings.Join(names, " or "))
	}
	return judge.NoSuchCase(none.Pattern)
}

// noCases returns the error for flags that select no case.
func (o *conformOptions) noCases(devices []*judge.Device) error {
	dangerous := o.Filter
	dangerous.IncludeDangerous = true
	for _, d := range devices {
		if len(judge.Select(&dangerous, suitesFor(d))) > 0 {
			return cmdline.Errorf("what is asked for can crash or wedge a real device: add --dangerous")
		}
	}
	return cmdline.Errorf("no case has all that is asked for by name, --level, --label and --without: 'fabrictest conform list' shows all")
}

// part reports whether some cases are left out.
func (o *conformOptions) part() bool {
	return len(o.IDs) > 0 || o.level != "" || len(o.Labels) > 0 || len(o.ExcludeLabels) > 0
}

// command is the command line that repeats the run.
func (o *conformOptions) command(seed uint64) string {
	words := []string{o.program + " conform"}
	for _, id := range o.IDs {
		words = append(words, cmdline.Quote(id))
	}
	for _, d := range o.devices {
		words = append(words, "--device "+d)
	}
	if o.level != "" {
		words = append(words, "--level "+strings.ToLower(o.level))
	}
	for _, l := range o.Labels {
		words = append(words, "--label "+cmdline.Quote(l))
	}
	for _, l := range o.ExcludeLabels {
		words = append(words, "--without "+cmdline.Quote(l))
	}
	words = append(words, o.conditions(seed))
	if o.checkCases {
		words = append(words, "--check-cases")
	}
	if o.matrix {
		words = append(words, "--matrix")
	}
	return strings.Join(words, " ")
}

// replay is the command line that repeats one case.
func (o *conformOptions) replay(device, id string, seed uint64) string {
	return fmt.Sprintf("%s conform %s --device %s %s", o.program, id, device, o.conditions(seed))
}

// conditions returns the flags of a command line that affect verdicts.
func (o *conformOptions) conditions(seed uint64) string {
	words := []string{fmt.Sprintf("--on %s --seed %d", o.on, seed)}
	if o.profile != "" {
		words = append(words, "--as "+o.profile)
	}
	for _, q := range o.defects {
		words = append(words, "--defect "+cmdline.Quote(q))
	}
	if o.IncludeDangerous {
		words = append(words, "--dangerous")
	}
	if o.schedules > 0 {
		words = append(words, fmt.Sprintf("--schedules %d", o.schedules))
	}
	if o.deviations != "" {
		words = append(words, "--deviations "+cmdline.Quote(o.deviations))
	}
	return strings.Join(words, " ")
}
