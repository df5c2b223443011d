package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/tools/go/packages"
)

// typeCheck type-checks packages for a platform from source. It reports what a compiler would, but
// generates no code, so that it takes a fraction of the time of a build. It checks no assembly, and
// function bodies only in this module. It returns the number of packages; a package and its tests
// count as two.
func typeCheck(goos, goarch, pattern string) (checked int, err error) {
	root, err := os.Getwd()
	if err != nil {
		return 0, err
	}
	all, err := packages.Load(&packages.Config{
		// Without the information about types, Load would not check function bodies.
		Mode: packages.LoadAllSyntax,
		Env:  append(os.Environ(), "GOOS="+goos, "GOARCH="+goarch, "CGO_ENABLED=0"),
		ParseFile: func(fset *token.FileSet, name string, src []byte) (*ast.File, error) {
			f, err := parser.ParseFile(fset, name, src, parser.SkipObjectResolution)
			if inModule, _ := filepath.Rel(root, name); f != nil && !filepath.IsLocal(inModule) {
				dropBodies(f)
			}
			return f, err
		},
		Tests: true,
	}, pattern)
	if err != nil {
		return 0, err
	}
	if len(all) == 0 {
		return 0, fmt.Errorf("no package matches %s", pattern)
	}
	var errs []string
	for _, p := range all {
		if strings.HasSuffix(p.PkgPath, ".test") {
			continue // the go command generates this main function, outside this module
		}
		checked++
		for _, e := range p.Errors {
			errs = append(errs, e.Error())
		}
	}
	if len(errs) > 0 {
		return 0, fmt.Errorf("\n%s", strings.Join(errs, "\n"))
	}
	return checked, nil
}

// dropBodies removes the bodies of the functions of a file of another module, of which typeCheck
// needs the declarations only. Imports that only bodies used become errors, but typeCheck reports
// errors in files of this module alone.
func dropBodies(f *ast.File) {
	for _, d := range f.Decls {
		if d, ok := d.(*ast.FuncDecl); ok {
			d.Body = nil
		}
	}
}
