package runner

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/fabrictest/fabrictest/conformance"
	"github.com/fabrictest/fabrictest/conformance/judge"
	"github.com/fabrictest/fabrictest/internal/cmdline"
	"github.com/fabrictest/fabrictest/lab/nics"
)

// Selection selects emulated devices.
type Selection struct {
	Names   []string // of providers; empty for all
	Profile string   // that the devices imitate; empty for none
	Defects []string // besides those of the profile
}

// Devices returns the devices without cases. Without names they are all that can have the
// defects.
func (o *Selection) Devices() (all []*judge.Device, err error) {
	var profile *nics.Profile
	if o.Profile != "" {
		if profile, err = nics.FindProfile(o.Profile); err != nil {
			return nil, cmdline.Errorf("--as: %w%s", err, cmdline.Guess(o.Profile, nics.ProfileNames()))
		}
	}
	names := o.Names
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
		d := &judge.Device{Name: p.Name, Title: p.Title, Protocol: p.Protocol, Defects: o.Defects, Known: knownDefects(p)}
		if profile != nil {
			if profile.Provider != p.Name {
				return nil, cmdline.Errorf("--as %s: that is a %s, and --device says %s", profile.Name, profile.Provider, p.Name)
			}
			d.Profile, d.Defects = profile.Name, slices.Concat(profile.Defects, o.Defects)
		}
		if err := checkDefects(p, d.Defects); err != nil {
			mistake = err
			var foreign *nics.ForeignDefectError
			if len(o.Names) > 0 || !errors.As(err, &foreign) {
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
			return nics.DefectFlagError(err)
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

// checkFilter returns an error for a case or a label that the devices do not have.
func checkFilter(o *conformance.Filter, devices []*judge.Device) error {
	all := make([]*conformance.Suite, 0, len(devices))
	names := make([]string, 0, len(devices))
	for _, d := range devices {
		all = append(all, suites(d)...)
		names = append(names, d.Name)
	}
	if err := cmp.Or(judge.CheckLabels("--label", o.Labels, all), judge.CheckLabels("--without", o.ExcludeLabels, all)); err != nil {
		return err
	}
	var none *conformance.NoCaseError
	if err := o.CheckPatterns(all...); !errors.As(err, &none) {
		return err
	}
	if err := o.CheckPatterns(judge.Suites()...); err == nil {
		return cmdline.Errorf("%s is no case for %s: ask for devices that it is for, or for none by name", none.Pattern, strings.Join(names, " or "))
	}
	return judge.NoSuchCase(none.Pattern)
}

// noCasesError returns the error for a filter that selects no case.
func noCasesError(o *conformance.Filter, devices []*judge.Device) error {
	dangerous := *o
	dangerous.IncludeDangerous = true
	for _, d := range devices {
		if len(judge.Select(&dangerous, suites(d))) > 0 {
			return cmdline.Errorf("what is asked for can crash or wedge a real device: add --dangerous")
		}
	}
	return cmdline.Errorf("no case has all that is asked for by name, --level, --label and --without: 'fabrictest list cases' shows all")
}

// suites returns the suites of an emulated device.
func suites(d *judge.Device) []*conformance.Suite { return judge.SuitesOf(d.Protocol) }

// Catalog returns what lists of cases tell about the emulated devices.
func Catalog() *judge.Catalog {
	c := new(judge.Catalog)
	for _, p := range nics.All() {
		c.Devices = append(c.Devices, &judge.Device{Name: p.Name, Protocol: p.Protocol})
	}
	c.DescribeDefect, c.CheckDefect = describeDefect, nics.CheckDefect
	return c
}

// describeDefect returns what a defect does and imitates.
func describeDefect(spec string) string {
	for _, q := range nics.AllDefects() {
		if judge.DefectName(q.Name) == judge.DefectName(spec) {
			imitates := ""
			if q.Imitates != "" {
				imitates = "; as " + q.Imitates
			}
			return fmt.Sprintf("%s%s (%s)", q.Does, imitates, strings.Join(q.Of, ", "))
		}
	}
	return "no device can have it yet"
}
