// Package mutant selects the mutant of a program that was built with mutants.
//
// The sources know no mutants. Package mutate generates variants of functions, and an
// overlay with which the Go tool builds them into the program; the generated functions
// call Is. A program without the overlay has no mutants. One mutant at most is selected
// at a time, for the whole process.
package mutant

import (
	"slices"
	"sync/atomic"
)

// selected is the index in names of the selected mutant, plus one.
var selected atomic.Int32

// Is reports whether the mutant with a number is selected. Generated code calls it.
func Is(number int32) bool { return selected.Load() == number }

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
