// Command layers checks the packages of this module in CI. Its test checks the
// architecture: which packages may import which, and which code must not use clocks, goroutines
// or random numbers. docs/architecture.md has the reasons; rules_test.go has the rules.
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
//
// With -platforms it type-checks all packages and tests for other platforms:
//
//	layers -platforms darwin/arm64,linux/arm64
package main

import (
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

const module = "github.com/fabrictest/fabrictest"

// main prints the packages that CI tests completely with the race detector. With -parts it prints those
// of which CI runs only some tests with it, and with -run the go test pattern of these tests. With
// -platforms it type-checks all packages instead.
func main() {
	parts := flag.Bool("parts", false, "print the packages of which only some tests run with -race")
	pattern := flag.Bool("run", false, "print the go test -run pattern that selects those tests")
	platforms := flag.String("platforms", "", "type-check all packages and tests for these `GOOS/GOARCH,...` instead")
	flag.Parse()
	if *platforms != "" {
		typeCheckFor(strings.Split(*platforms, ","))
		return
	}
	if *pattern {
		fmt.Println(runPattern())
		return
	}
	all, err := readPackages(".")
	if err != nil {
		fmt.Fprintln(os.Stderr, "layers:", err)
		os.Exit(1)
	}
	for _, p := range all {
		if _, someTestsOnly := partOf(p.name()); p.needsRace() && someTestsOnly == *parts {
			fmt.Println(p.ImportPath)
		}
	}
}

// typeCheckFor type-checks this module for platforms, and exits with 1 if one of them has errors.
func typeCheckFor(platforms []string) {
	code := 0
	for _, p := range platforms {
		goos, goarch, _ := strings.Cut(p, "/")
		n, err := typeCheck(goos, goarch, "./...")
		if err != nil {
			fmt.Fprintf(os.Stderr, "layers: for %s: %v\n", p, err)
			code = 1
			continue
		}
		fmt.Printf("%s: %d packages and tests\n", p, n)
	}
	os.Exit(code)
}

// testedPackage is a package, with what decides whether CI tests it with the race detector.
type testedPackage struct {
	listed
	concurrent bool     // a file, or a test file, uses concurrency
	tests      []string // names of its test functions
}

// needsRace reports whether CI tests the package with the race detector.
func (p *testedPackage) needsRace() bool {
	return p.concurrent && len(p.TestGoFiles)+len(p.XTestGoFiles) > 0
}

// name returns the path of the package in the module.
func (p *testedPackage) name() string { return strings.TrimPrefix(p.ImportPath, module+"/") }

// readPackages lists and parses all packages of the module at dir, with the files that go test -race
// adds (build tag race), since the race step's list of packages is checked.
func readPackages(dir string) ([]*testedPackage, error) {
	found, err := goList(dir, "-tags=race", "./...")
	if err != nil {
		return nil, err
	}
	all := make([]*testedPackage, len(found))
	for i, l := range found {
		all[i] = &testedPackage{listed: l}
		if err := all[i].parseFiles(); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// parseFiles parses the files of the package. It sets p.concurrent and p.tests.
func (p *testedPackage) parseFiles() error {
	for _, name := range slices.Concat(p.GoFiles, p.TestGoFiles, p.XTestGoFiles) {
		f, err := parser.ParseFile(token.NewFileSet(), filepath.Join(p.Dir, name), nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		p.concurrent = p.concurrent || usesConcurrency(f)
		for _, d := range f.Decls {
			if fn, ok := d.(*ast.FuncDecl); ok && fn.Recv == nil && isTest(fn.Name.Name) {
				p.tests = append(p.tests, fn.Name.Name)
			}
		}
	}
	return nil
}

// isTest reports whether a function with this name is a test or a fuzz target.
func isTest(name string) bool {
	return len(name) > 4 && (name[:4] == "Test" || name[:4] == "Fuzz") && name != "TestMain"
}

// standaloneSync are the names of package sync that, unlike a Mutex, guard no variables of their
// users. A package that uses only these is raced by the tests of its concurrent callers.
var standaloneSync = []string{"Map", "Pool", "OnceFunc", "OnceValue", "OnceValues"}

// usesConcurrency reports whether f uses goroutines, channels, atomics, parallel tests, or a
// name of package sync that is not in standaloneSync.
func usesConcurrency(f *ast.File) (found bool) {
	importsSync := false
	ast.Inspect(f, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.GoStmt, *ast.ChanType:
			found = true
		case *ast.ImportSpec:
			importsSync = importsSync || n.Path.Value == `"sync"`
			found = found || n.Path.Value == `"sync/atomic"`
		case *ast.SelectorExpr:
			pkg, _ := n.X.(*ast.Ident)
			usesSync := importsSync && pkg != nil && pkg.Name == "sync" && !slices.Contains(standaloneSync, n.Sel.Name)
			found = found || usesSync || n.Sel.Name == "Parallel" // t.Parallel
		}
		return !found
	})
	return found
}
