package defects

import (
	"embed"
	"fmt"
	"slices"
	"sync"

	"github.com/fabrictest/fabrictest/internal/mutant"
)

//go:embed mutants/*.txt
var mutantFiles embed.FS

// Mutants returns all mutants.
func Mutants() []mutant.Mutant { return slices.Clone(parseMutants()) }

var parseMutants = sync.OnceValue(func() (all []mutant.Mutant) {
	list, err := mutantFiles.ReadDir("mutants")
	if err != nil {
		panic(err) // embedded
	}
	for _, f := range list {
		text, err := mutantFiles.ReadFile("mutants/" + f.Name())
		if err != nil {
			panic(err)
		}
		some, err := mutant.Parse(f.Name(), string(text))
		if err != nil {
			panic(fmt.Sprintf("defects: %v", err))
		}
		all = append(all, some...)
	}
	return all
})

// FindMutant returns the mutant with a name, or nil.
func FindMutant(name string) *mutant.Mutant {
	i := slices.IndexFunc(parseMutants(), func(m mutant.Mutant) bool { return m.Name == name })
	if i < 0 {
		return nil
	}
	return &parseMutants()[i]
}
