package nics

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/fabrictest/fabrictest/emu/flawed"
)

// Quirk describes a flaw that a NIC can be given.
type Quirk struct {
	Name   string `json:"name"`
	Defect string `json:"imitates,omitempty"`
	Does   string `json:"does"`
	// Of are the providers that can have it.
	Of []string `json:"providers"`
}

// AllQuirks lists the quirks of all providers, each once: one that several have
// does the same in all of them.
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

// QuirkNames lists the names that there are, without what they take.
func QuirkNames() (names []string) {
	for _, q := range AllQuirks() {
		names = append(names, plain(q.Name))
	}
	return names
}

// plain is the name of a quirk without what it takes.
func plain(name string) string {
	name, _, _ = strings.Cut(name, "=")
	return name
}

// UnknownQuirkError is a quirk that no provider has.
type UnknownQuirkError struct{ Name string }

func (e *UnknownQuirkError) Error() string {
	return fmt.Sprintf("no quirk %q; 'fabrictest quirks' lists all", e.Name)
}

// ForeignQuirkError is a quirk of other providers.
type ForeignQuirkError struct {
	Name     string
	Provider *Provider
	Of       []string // who has it
}

func (e *ForeignQuirkError) Error() string {
	return fmt.Sprintf("the quirk %s is one of %s, and %s has no such thing", e.Name, strings.Join(e.Of, " and "), e.Provider.Title)
}

// CheckQuirk says what is wrong with a quirk as it was given: NAME, or NAME=NUMBER
// for one that takes a number, or CounterStuck=COUNTER. The error may be an *UnknownQuirkError or a
// *ForeignQuirkError.
func (p *Provider) CheckQuirk(spec string) error {
	name, _, _ := strings.Cut(spec, "=")
	named := func(q Quirk) bool { return plain(q.Name) == name }
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

// CheckQuirk says what is wrong with a quirk, whoever may have it.
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
