package mutant

// The overlay replaces this file.
var (
	names     []string // of the program's mutants
	functions [][]int  // that each mutant has variants of, by number
)
