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

// Mutants returns the mutants, defects by changed source code, of all files in folder mutants.
func Mutants() []mutant.Mutant { return slices.Clone(parseMutants()) }

// parseMutants parses the files in folder mutants once. Callers must not change its result.
var parseMutants = sync.OnceValue(func() (all []mutant.Mutant) {
	files, err := mutantFiles.ReadDir("mutants")
	if err != nil {
		panic(err) // the folder is embedded
	}
	for _, f := range files {
		text, err := mutantFiles.ReadFile("mutants/" + f.Name())
		if err != nil {
			panic(err)
		}
		mutants, err := mutant.Parse(f.Name(), string(text))
		if err != nil {
			panic(fmt.Sprintf("defects: %v", err))
		}
		all = append(all, mutants...)
	}
	return all
})

// FindMutant returns the mutant (a defect that is a change of the source code) with the given name,
// or nil if there is none. The caller must not modify it.
func FindMutant(name string) *mutant.Mutant {
	all := parseMutants()
	i := slices.IndexFunc(all, func(m mutant.Mutant) bool { return m.Name == name })
	if i < 0 {
		return nil
	}
	return &all[i]
}
