package mutant

// names has the names of the program's mutants. The overlay replaces this file.
var names []string
