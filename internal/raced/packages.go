package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"os/exec"
	"path/filepath"
	"slices"
)

// pack is a package in the output of go list.
type pack struct {
	ImportPath, Dir                    string
	GoFiles, TestGoFiles, XTestGoFiles []string

	concurrent bool
	tests      []string // names of its test functions
}

// raced reports whether the package uses concurrency and has tests.
func (p *pack) raced() bool { return p.concurrent && len(p.TestGoFiles)+len(p.XTestGoFiles) > 0 }

// packages lists the packages of the module at dir, with the build tag race.
func packages(dir string) (all []*pack, err error) {
	cmd := exec.Command("go", "list", "-tags=race", "-json=ImportPath,Dir,GoFiles,TestGoFiles,XTestGoFiles", "./...")
	cmd.Dir = dir
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("go list: %w: %s", err, stderr.Bytes())
	}
	for d := json.NewDecoder(bytes.NewReader(out)); ; {
		p := new(pack)
		if err := d.Decode(p); errors.Is(err, io.EOF) {
			return all, nil
		} else if err != nil {
			return nil, fmt.Errorf("go list: %w", err)
		}
		if err := p.read(); err != nil {
			return nil, err
		}
		all = append(all, p)
	}
}

// read parses the files of a package.
func (p *pack) read() error {
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
