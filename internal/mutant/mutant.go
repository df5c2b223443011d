// Package mutant selects the mutant of a program that was built with mutants.
//
// The sources know no mutants. Package mutate generates variants of functions, and an
// overlay with which the Go tool builds them into the program; the generated functions
// call Enter. A program without the overlay has no mutants. One mutant at most is selected
// at a time, for the whole process.
package mutant

import (
	"os"
	"slices"
	"sync/atomic"
)

// Variable is the environment variable that selects a mutant at the start of a program.
const Variable = "FABRICTEST_MUTANT"

var (
	selected atomic.Int32  // the index in names of the selected mutant, plus one
	tracing  atomic.Bool   // Enter records functions
	entered  []atomic.Bool // the functions that were called, by number
)

func init() {
	count := 0
	for _, list := range functions {
		for _, f := range list {
			count = max(count, f+1)
		}
	}
	entered = make([]atomic.Bool, count)
	if name := os.Getenv(Variable); name != "" && !Select(name) {
		panic("no mutant " + name)
	}
}

// Enter returns the number of the selected mutant, or 0. Each function that has mutants calls
// it with the number of the function, which Enter records for Trace.
func Enter(function int) int32 {
	if tracing.Load() {
		entered[function].Store(true)
	}
	return selected.Load()
}

// Names returns the mutants of this program, none if it was built without.
func Names() []string { return slices.Clone(names) }

// Selected returns the name of the selected mutant, or the empty string.
func Selected() string {
	if i := selected.Load(); i > 0 {
		return names[i-1]
	}
	return ""
}

// Select selects a mutant, or none for an empty name. It reports whether the program has
// the mutant.
func Select(name string) bool {
	i := slices.Index(names, name)
	selected.Store(int32(i) + 1)
	return i >= 0 || name == ""
}

// Functions returns the numbers of the functions that each mutant changes, in the order
// of Names.
func Functions() [][]int { return functions }

// Trace calls f and returns the numbers of the functions with mutants that were called
// meanwhile.
func Trace(f func()) (called []int) {
	for i := range entered {
		entered[i].Store(false)
	}
	tracing.Store(true)
	f()
	tracing.Store(false)
	for i := range entered {
		if entered[i].Load() {
			called = append(called, i)
		}
	}
	return called
}
