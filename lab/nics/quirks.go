package nics

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/fabrictest/fabrictest/emu/flawed"
)

// Quirk describes a defect that a NIC can have.
type Quirk struct {
	Name   string `json:"name"`
	Defect string `json:"imitates,omitempty"`
	Does   string `json:"does"`
	// Of are the providers that can have it.
	Of []string `json:"providers"`
}

// AllQuirks lists the defects of all providers, each once: a name means the same
// for all of them.
func AllQuirks() (all []Quirk) {
	for _, p := range All() {
		for _, q := range p.Quirks {
			i := slices.IndexFunc(all, func(x Quirk) bool { return x.Name == q.Name })
			if i < 0 {
				all, i = append(all, q), len(all)
			}
			all[i].Of = append(all[i].Of, p.Name)
		}
	}
	return all
}

// QuirkNames returns the names of all defects, without arguments.
func QuirkNames() (names []string) {
	for _, q := range AllQuirks() {
		names = append(names, quirkName(q.Name))
	}
	return names
}

// quirkName returns the name of a defect without its argument.
func quirkName(name string) string {
	name, _, _ = strings.Cut(name, "=")
	return name
}

// UnknownQuirkError is returned for a defect that no provider has.
type UnknownQuirkError struct{ Name string }

func (e *UnknownQuirkError) Error() string {
	return fmt.Sprintf("no quirk %q; 'fabrictest quirks' lists all", e.Name)
}

// ForeignQuirkError is returned for a defect that only other providers have.
type ForeignQuirkError struct {
	Name     string
	Provider *Provider
	Of       []string // who has it
}

func (e *ForeignQuirkError) Error() string {
	return fmt.Sprintf("the quirk %s is one of %s, and %s does not have it", e.Name, strings.Join(e.Of, " and "), e.Provider.Title)
}

// CheckQuirk checks a defect as given by the user: NAME, NAME=NUMBER, or
// CounterStuck=COUNTER. The error may be an *UnknownQuirkError or a
// *ForeignQuirkError.
func (p *Provider) CheckQuirk(spec string) error {
	name, _, _ := strings.Cut(spec, "=")
	named := func(q Quirk) bool { return quirkName(q.Name) == name }
	if slices.ContainsFunc(p.Quirks, named) {
		others, err := p.takeVerbQuirks(new(flawed.Quirks), []string{spec})
		if err != nil || len(others) == 0 {
			return err
		}
		return p.setQuirk(spec)
	}
	all := AllQuirks()
	if i := slices.IndexFunc(all, named); i >= 0 {
		return &ForeignQuirkError{Name: name, Provider: p, Of: all[i].Of}
	}
	return &UnknownQuirkError{Name: name}
}

// CheckQuirk checks a defect of any provider.
func CheckQuirk(spec string) (err error) {
	for _, p := range All() {
		if err = p.CheckQuirk(spec); err == nil {
			return nil
		}
		var foreign *ForeignQuirkError
		if !errors.As(err, &foreign) {
			return err
		}
	}
	return err
}
