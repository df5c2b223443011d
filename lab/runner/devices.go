package runner

import (
	"cmp"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/fabrictest/fabrictest/conformance"
	"github.com/fabrictest/fabrictest/conformance/judge"
	"github.com/fabrictest/fabrictest/internal/cli"
	"github.com/fabrictest/fabrictest/internal/mutant"
	"github.com/fabrictest/fabrictest/lab/bench"
	"github.com/fabrictest/fabrictest/lab/nics"
	"github.com/fabrictest/fabrictest/scenarios"
)

// Selection selects emulated devices.
type Selection struct {
	Names   []string // of providers; empty for all
	Profile string   // that the devices imitate; empty for none
	Defects []string // besides those of the profile
}

// Devices returns the selected devices, without cases. Without names they are the profile's device,
// or all devices that can have the defects; a named device that cannot have them is an error.
func (s *Selection) Devices() (all []*judge.Device, err error) {
	var profile *nics.Profile
	if s.Profile != "" {
		if profile, err = nics.FindProfile(s.Profile); err != nil {
			return nil, cli.Errorf("--as: %w%s", err, cli.Guess(s.Profile, nics.ProfileNames()))
		}
	}
	names := s.Names
	switch {
	case len(names) == 0 && profile != nil:
		names = []string{profile.Provider}
	case len(names) == 0:
		names = nics.Names()
	}
	var lastErr error // why a device was omitted
	for _, name := range names {
		p, err := nics.Find(name)
		if err != nil {
			return nil, cli.Errorf("--device: %w%s", err, cli.Guess(name, nics.Names()))
		}
		if slices.ContainsFunc(all, func(d *judge.Device) bool { return d.Name == p.Name }) {
			continue
		}
		d := &judge.Device{Name: p.Name, Title: p.Title, Protocol: p.Protocol, Defects: s.Defects, Known: knownDefects(p)}
		if profile != nil {
			if profile.Provider != p.Name {
				return nil, cli.Errorf("--as %s is a profile of %s, not of --device %s", profile.Name, profile.Provider, p.Name)
			}
			d.Profile, d.Defects = profile.Name, slices.Concat(profile.Defects, s.Defects)
		}
		if err := checkDefects(p.CheckDefect, d.Defects); err != nil {
			lastErr = err
			// Without names, omit the devices of other providers than the defect's.
			if _, foreign := errors.AsType[*nics.ForeignDefectError](err); len(s.Names) > 0 || !foreign {
				return nil, err
			}
			continue
		}
		all = append(all, d)
	}
	if len(all) == 0 {
		return nil, lastErr
	}
	return all, nil
}

// checkDefects returns the error of the first defect that check rejects.
func checkDefects(check func(name string) error, defects []string) error {
	for _, name := range defects {
		if err := check(name); err != nil {
			return nics.DefectFlagError(err)
		}
	}
	return nil
}

// knownDefects returns the defects that a provider's devices can have, mutants included.
func knownDefects(p *nics.Provider) (all []judge.Defect) {
	for _, d := range p.AllDefects() {
		needsNumber := p.CheckDefect(d.Name) != nil // the name alone is incomplete
		all = append(all, judge.Defect{
			Name: d.Name, Imitates: d.Imitates, Does: d.Does, Mutant: d.Mutant, NeedsNumber: needsNumber,
		})
	}
	return all
}

// checkFilter returns an error if the filter names a case or a label that none of the devices has.
func checkFilter(filter *conformance.Filter, devices []*judge.Device) error {
	all := make([]*conformance.Suite, 0, len(devices))
	names := make([]string, 0, len(devices))
	for _, d := range devices {
		all = append(all, suites(d)...)
		names = append(names, d.Name)
	}
	if err := cmp.Or(judge.CheckLabels("--label", filter.Labels, all), judge.CheckLabels("--without", filter.ExcludeLabels, all)); err != nil {
		return err
	}
	var none *conformance.NoCaseError
	if err := filter.CheckPatterns(all...); !errors.As(err, &none) {
		return err
	}
	if err := filter.CheckPatterns(judge.Suites()...); err == nil {
		return cli.Errorf("%s is no case for %s: name other devices with --device, or none", none.Pattern, strings.Join(names, " or "))
	}
	return judge.NoSuchCase(none.Pattern)
}

// suites returns the suites of cases for an emulated device.
func suites(d *judge.Device) []*conformance.Suite { return judge.SuitesOf(d.Protocol) }

// Catalog returns what lists of cases and requirements show without opening a device: the emulated
// devices, and functions that describe and check their defects.
func Catalog() *judge.Catalog {
	c := new(judge.Catalog)
	for _, p := range nics.All() {
		c.Devices = append(c.Devices, &judge.Device{Name: p.Name, Protocol: p.Protocol})
	}
	c.DescribeDefect, c.CheckDefect = describeDefect, nics.CheckDefect
	return c
}

// describeDefect returns what a defect does, what it imitates, and which devices can have it, or
// that none can: a new case may name a defect before it exists. spec is the defect's name, which a
// number may follow.
func describeDefect(spec string) string {
	for _, d := range nics.AllDefects() {
		if judge.DefectName(d.Name) == judge.DefectName(spec) {
			imitates := ""
			if d.Imitates != "" {
				imitates = "; as " + d.Imitates
			}
			return fmt.Sprintf("%s%s (%s)", d.Does, imitates, strings.Join(d.Of, ", "))
		}
	}
	return "no device can have this defect yet"
}

// Limits of a case that explores schedules, after which it counts as hung: for the case, and for
// each schedule. The longest schedule has a few thousand events and a few timeouts.
const (
	caseEvents, scheduleEvents     = 20_000_000, 50_000
	caseTime, scheduleTime         = 2 * time.Hour, 10 * time.Second
	realCaseTime, realScheduleTime = 2 * time.Minute, 5 * time.Second
)

// labs opens labs for emulated devices.
type labs struct {
	tier      scenarios.Tier
	workers   int // cases at a time; 0 for the default
	schedules int // orders of concurrent events that cases explore; 0 for their own number
}

// caseWorkers returns the number of cases that run at a time. By default it is 1 in real
// time, because other cases would disturb those that measure time.
func (l *labs) caseWorkers() int {
	switch {
	case l.workers > 0:
		return l.workers
	case l.tier == scenarios.NetNS:
		return 1
	}
	return runtime.GOMAXPROCS(0)
}

// open opens a lab (the simulation or network namespaces in which cases run) for a device, with the
// restrictions of its profile. Cases that explore schedules (orders of concurrent events) get more
// time for each schedule.
func (l *labs) open(d *judge.Device) (judge.Lab, error) {
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
	if l.tier == scenarios.Sim {
		opt := bench.SimOptions{Restrictions: restrictions}
		if l.schedules > 0 {
			opt.MaxEvents, opt.MaxTime = caseEvents+uint64(l.schedules)*scheduleEvents, caseTime+time.Duration(l.schedules)*scheduleTime
		}
		return bench.InSimulation(provider, opt), nil
	}
	opt := bench.NamespaceOptions{Parallel: l.caseWorkers(), Restrictions: restrictions}
	if l.schedules > 0 {
		opt.MaxTime = realCaseTime + time.Duration(l.schedules)*realScheduleTime
	}
	return bench.InNamespaces(provider, opt)
}

// selectMutant enables the mutant, a defect compiled into this program, that is among the defects,
// for all devices until restore is called. Without one it does nothing; two are an error.
func selectMutant(defects []string) (restore func(), err error) {
	i := slices.IndexFunc(defects, nics.IsMutant)
	switch {
	case i < 0:
		return func() {}, nil
	case slices.ContainsFunc(defects[i+1:], nics.IsMutant):
		return nil, cli.Errorf("--defect: %s is built into the device, and so is another: give one of them", defects[i])
	case !mutant.Select(defects[i]):
		return nil, fmt.Errorf("this program was built without the defect %s", defects[i])
	}
	return func() { mutant.Select("") }, nil
}

// NeedsMutants reports whether cases run on devices with mutants, which are defects compiled into
// the program, and this program was built without them.
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

// DropMutants makes j check cases without mutants, the defects compiled into the program. It
// returns an error if a device must have one. why says why mutants cannot be built here.
func DropMutants(j *judge.Judge, why error) error {
	for _, d := range j.Devices {
		if i := slices.IndexFunc(d.Defects, nics.IsMutant); i >= 0 {
			return fmt.Errorf("the defect %s is built into the device: %w", d.Defects[i], why)
		}
	}
	j.WithoutMutants = true
	return nil
}
