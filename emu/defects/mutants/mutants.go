// Package mutants has the deliberate defects of the engines as data. The engines have
// the protocol only; package mutate builds a program that has all of these mutants, and
// `fabrictest conform --check-cases` checks with it that cases notice them.
//
// Defects of single packets and of verbs calls, which need no change of an engine, and those
// that a policy of an engine imitates, are in the packages beside this one.
package mutants

import (
	"embed"
	"fmt"
	"slices"
	"sync"

	"github.com/fabrictest/fabrictest/internal/mutate"
)

//go:embed *.txt
var files embed.FS

// All returns all mutants.
func All() []mutate.Mutant { return slices.Clone(all()) }

var all = sync.OnceValue(func() (all []mutate.Mutant) {
	list, err := files.ReadDir(".")
	if err != nil {
		panic(err) // embedded
	}
	for _, f := range list {
		text, err := files.ReadFile(f.Name())
		if err != nil {
			panic(err)
		}
		some, err := mutate.Parse(f.Name(), string(text))
		if err != nil {
			panic(fmt.Sprintf("mutants: %v", err))
		}
		all = append(all, some...)
	}
	return all
})

// Find returns the mutant with a name, or nil.
func Find(name string) *mutate.Mutant {
	i := slices.IndexFunc(all(), func(m mutate.Mutant) bool { return m.Name == name })
	if i < 0 {
		return nil
	}
	return &all()[i]
}
