// Command layers holds what CI knows of the packages of this module. Its test checks the
// architecture: which packages may import which, and which code must not use clocks, goroutines
// or random numbers. docs/architecture.md has the reasons; rules.go has the rules.
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
// As a command it lists the packages that CI tests with the race detector: those whose code
// or tests have a go statement, a channel, a lock, an atomic variable or parallel tests. Other
// packages (codecs, engines) are covered through their users. Of the packages in
// racedparts.go, CI runs only some tests.
//
//	layers          print the packages whose tests all run
//	layers -parts   print the packages of which some tests run
//	layers -run     print the -run pattern for these tests
package main
