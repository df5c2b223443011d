// Package layers checks the architecture of this module in a test: which packages may
// import which, and which code must not use clocks, goroutines or random numbers.
// docs/architecture.md has the reasons; rules.go has the rules.
//
// There are three kinds of rule:
//
//   - a [Boundary] restricts imports. It reads every Go file, regardless of build
//     constraints, and can follow imports through packages of this module.
//   - a [Purity] restricts code. It type-checks the package, so aliases and function
//     values are found too.
//   - [CgoRule] restricts cgo to one package, behind build tags.
//
// Check reports patterns that match no package. Directories that do not exist yet are
// listed in [RuleSet.Planned].
//
// The package is for tests. It runs the go command to find export data and writes nothing.
package layers
