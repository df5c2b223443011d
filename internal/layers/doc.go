// Package layers holds the module to its own architecture: which part of the
// tree may import which, and which code must stay free of clocks, goroutines
// and chance. docs/architecture.md says why; rules.go is the same in a form
// that fails a test.
//
// Three kinds of rule are checked:
//
//   - a [Boundary] is about imports. It reads every Go file of a package,
//     whatever its build constraints say, so a file for another system cannot
//     slip through; where asked, it follows imports through our own packages
//     and shows the chain.
//   - a [Purity] is about what the code does. It type-checks the package, so an
//     alias or a function value hides nothing.
//   - [CgoRule] keeps cgo in its place, and behind build tags.
//
// A rule whose pattern matches nothing is a rule that was misspelt; Check says
// so. Folders that are planned and not there yet stand in [RuleSet.Later].
//
// The package is for tests. It runs the go command to find export data, writes
// nothing, and keeps no state.
package layers
