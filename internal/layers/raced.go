package main

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"slices"
	"strings"
)

// testedPackage is a package with what decides whether CI tests it with the race detector.
type testedPackage struct {
	listed
	concurrent bool
	tests      []string // names of its test functions
}

// raced reports whether the package uses concurrency and has tests.
func (p *testedPackage) raced() bool {
	return p.concurrent && len(p.TestGoFiles)+len(p.XTestGoFiles) > 0
}

func (p *testedPackage) name() string { return strings.TrimPrefix(p.ImportPath, module+"/") }

// racedPackages lists the packages of the module at dir, with the build tag race.
func racedPackages(dir string) ([]*testedPackage, error) {
	found, err := goList(dir, "-tags=race", "./...")
	if err != nil {
		return nil, err
	}
	all := make([]*testedPackage, len(found))
	for i, l := range found {
		all[i] = &testedPackage{listed: l}
		if err := all[i].read(); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// read parses the files of a package.
func (p *testedPackage) read() error {
	for _, name := range slices.Concat(p.GoFiles, p.TestGoFiles, p.XTestGoFiles) {
		f, err := parser.ParseFile(token.NewFileSet(), filepath.Join(p.Dir, name), nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		p.concurrent = p.concurrent || concurrent(f)
		for _, d := range f.Decls {
			if f, ok := d.(*ast.FuncDecl); ok && f.Recv == nil && isTest(f.Name.Name) {
				p.tests = append(p.tests, f.Name.Name)
			}
		}
	}
	return nil
}

// isTest reports whether name is a test or fuzz target.
func isTest(name string) bool {
	return len(name) > 4 && (name[:4] == "Test" || name[:4] == "Fuzz") && name != "TestMain"
}

// concurrent reports whether a file uses goroutines, channels, locks, atomics or
// parallel tests.
func concurrent(f *ast.File) (found bool) {
	ast.Inspect(f, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.GoStmt, *ast.ChanType:
			found = true
		case *ast.ImportSpec:
			found = found || n.Path.Value == `"sync"` || n.Path.Value == `"sync/atomic"`
		case *ast.SelectorExpr:
			found = found || n.Sel.Name == "Parallel" // t.Parallel
		}
		return !found
	})
	return found
}
