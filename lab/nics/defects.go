package nics

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/fabrictest/fabrictest/emu/defects"
	"github.com/fabrictest/fabrictest/emu/defects/verbcalls"
	"github.com/fabrictest/fabrictest/internal/cmdline"
	"github.com/fabrictest/fabrictest/internal/mutant"
)

// Defect describes a defect that a NIC can have.
type Defect struct {
	Name     string `json:"name"`
	Imitates string `json:"imitates,omitempty"`
	Does     string `json:"does"`
	// Mutant is true if it is built into the device, by package mutant. Only the conform
	// command can give it to a device.
	Mutant bool `json:"mutant,omitempty"`
	// Of are the providers that can have it.
	Of []string `json:"providers"`
}

// AllDefects lists the defects of all providers, each once: a name means the same
// for all of them.
func AllDefects() (all []Defect) {
	for _, p := range All() {
		for _, q := range p.Defects {
			i := slices.IndexFunc(all, func(x Defect) bool { return x.Name == q.Name })
			if i < 0 {
				all, i = append(all, q), len(all)
			}
			all[i].Of = append(all[i].Of, p.Name)
		}
	}
	return all
}

// DefectNames returns the names of all defects, without arguments.
func DefectNames() (names []string) {
	for _, q := range AllDefects() {
		names = append(names, defectName(q.Name))
	}
	return names
}

// defectName returns the name of a defect without its argument.
func defectName(name string) string {
	name, _, _ = strings.Cut(name, "=")
	return name
}

// describe lists the defects of some tables.
func describe(tables ...[]defects.Info) (all []Defect) {
	for _, q := range slices.Concat(tables...) {
		all = append(all, Defect{Name: q.Name, Imitates: q.Imitates, Does: q.Does})
	}
	return all
}

// applyDefect calls the first of setters that knows a defect.
func applyDefect(spec string, setters ...func(name string) bool) error {
	name, _, hasNumber := strings.Cut(spec, "=")
	switch known := slices.ContainsFunc(setters, func(set func(string) bool) bool { return set(name) }); {
	case !known:
		return &UnknownDefectError{Name: name}
	case hasNumber:
		return fmt.Errorf("defect %s takes no number", spec)
	}
	return nil
}

// UnknownDefectError is returned for a defect that no provider has.
type UnknownDefectError struct{ Name string }

func (e *UnknownDefectError) Error() string {
	return fmt.Sprintf("no defect %q; 'fabrictest list defects' lists all", e.Name)
}

// ForeignDefectError is returned for a defect that only other providers have.
type ForeignDefectError struct {
	Name     string
	Provider *Provider
	Of       []string // who has it
}

func (e *ForeignDefectError) Error() string {
	return fmt.Sprintf("the defect %s is one of %s, and %s does not have it", e.Name, strings.Join(e.Of, " and "), e.Provider.Title)
}

// CheckDefect checks a defect as given by the user: NAME, NAME=NUMBER, or
// CounterStuck=COUNTER. The error may be an *UnknownDefectError or a
// *ForeignDefectError.
func (p *Provider) CheckDefect(spec string) error {
	name, _, _ := strings.Cut(spec, "=")
	named := func(q Defect) bool { return defectName(q.Name) == name }
	if i := slices.IndexFunc(p.Defects, named); i >= 0 && p.Defects[i].Mutant {
		if strings.Contains(spec, "=") {
			return fmt.Errorf("defect %s takes no number", spec)
		}
		return nil
	} else if i >= 0 {
		others, err := p.takeVerbDefects(new(verbcalls.Defects), []string{spec})
		if err != nil || len(others) == 0 {
			return err
		}
		return p.setDefect(spec)
	}
	all := AllDefects()
	if i := slices.IndexFunc(all, named); i >= 0 {
		return &ForeignDefectError{Name: name, Provider: p, Of: all[i].Of}
	}
	return &UnknownDefectError{Name: name}
}

// CheckDefect checks a defect of any provider.
func CheckDefect(spec string) (err error) {
	for _, p := range All() {
		if err = p.CheckDefect(spec); err == nil {
			return nil
		}
		var foreign *ForeignDefectError
		if !errors.As(err, &foreign) {
			return err
		}
	}
	return err
}

// IsMutant reports whether a defect is built into devices.
func IsMutant(name string) bool { return defects.FindMutant(name) != nil }

// mutantsOf returns the mutants of a provider.
func mutantsOf(provider string) (all []Defect) {
	for _, m := range defects.Mutants() {
		if slices.Contains(m.Providers, provider) {
			all = append(all, Defect{Name: m.Name, Imitates: strings.TrimPrefix(m.Imitates, "-"), Does: m.Does, Mutant: true})
		}
	}
	return all
}

// CheckRuntimeDefect is CheckDefect for commands that cannot have mutants.
func (p *Provider) CheckRuntimeDefect(spec string) error {
	if err := p.CheckDefect(spec); err != nil || !IsMutant(spec) {
		return err
	}
	return errMutant(spec)
}

// CheckRuntimeDefect checks a defect of any provider.
func CheckRuntimeDefect(spec string) error {
	if err := CheckDefect(spec); err != nil || !IsMutant(spec) {
		return err
	}
	return errMutant(spec)
}

func errMutant(name string) error {
	return fmt.Errorf("the defect %s is built from the sources, and only 'fabrictest conform' has it", name)
}

// takeMutants returns the defects that are no mutants. It returns an error if one is a
// mutant that the program does not have, or has not selected.
func takeMutants(defects []string) (others []string, err error) {
	for _, name := range defects {
		switch {
		case !IsMutant(name):
			others = append(others, name)
		case mutant.Selected() != name:
			return nil, errMutant(name)
		}
	}
	return others, nil
}

// DefectFlagError makes an error of CheckDefect one about --defect, with similar names.
func DefectFlagError(err error) error {
	var unknown *UnknownDefectError
	if errors.As(err, &unknown) {
		return cmdline.Errorf("--defect: no defect %q; %s", unknown.Name, cmdline.DidYouMean(unknown.Name, DefectNames(), "fabrictest list defects"))
	}
	return cmdline.Errorf("--defect: %w", err)
}
