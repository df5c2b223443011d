// Package mutant builds programs with mutants, and selects the mutant of such a program.
// Mutants are deliberate defects that are kept as data beside the sources, not in them.
//
// A mutant is a set of hunks. Each names a file, the text that it replaces and the
// replacement. [Overlay] applies every mutant to its files, keeps the functions that
// differ as variants beside the originals, and lets the originals call the variant of the
// selected mutant, by [Enter]. One build therefore holds all mutants, and [Select] selects
// one of them at run time, for the whole process. Conformance cases are checked with such a
// build: a case must fail on the mutants that it names.
//
// The format, by example:
//
//	RetryOffByOne | rc/tmo/6 | a request is sent once more than retry_cnt allows
//	emu/softroce/engine/retry.go
//	@@ QP.loadRetries
//	-	r.retries = q.attr.RetryCnt
//	+	r.retries = q.attr.RetryCnt + 1
//
// The first line has the name, the clauses or devices that it violates or imitates, and
// what it does. Lines of a hunk begin with "-" if the mutant removes them, with "+" if it
// adds them, and with a space if it keeps them. The text must occur once in the file, or
// in the declaration that an @@ line names. A hunk of added lines only adds declarations,
// and an added line of the form import "path" adds an import. A line "providers: NAME..."
// is for all mutants after it. Lines that begin with # are comments.
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

// init allocates a flag for each function that has mutants, which Enter sets for Trace, and
// selects the mutant that the environment names.
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
// Enter first, with the function's number, which Enter records for Trace.
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

// Select selects a mutant by name, or none if the name is empty or unknown. It returns false if
// the name is unknown.
func Select(name string) bool {
	i := slices.Index(names, name)
	selected.Store(int32(i) + 1)
	return i >= 0 || name == ""
}

// Functions returns the numbers of the functions that each mutant changes, in the order of Names.
func Functions() [][]int { return functions }

// Trace calls f and returns the numbers of the functions with mutants that were called meanwhile.
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
