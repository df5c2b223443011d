package main

import (
	"fmt"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Purity restricts what the code of some packages may do. It does not apply to tests.
type Purity struct {
	Name   string
	From   []string
	Except []string
	Bans   Ban
	Why    string
}

// Ban is a set of forbidden constructs.
type Ban uint

// Forbidden constructs.
const (
	BanClock         Ban = 1 << iota // the system clock and timers
	BanConcurrency                   // goroutines, channels, select
	BanMapOrder                      // iterating over a map, unless annotated with OrderedMark
	BanGlobalRand                    // package-level functions of math/rand
	BanGlobals                       // writing package-level variables, except in init
	BanPlatformFiles                 // files with platform build constraints

	// BanAll is for engines, whose behaviour must depend only on their inputs.
	BanAll = BanClock | BanConcurrency | BanMapOrder | BanGlobalRand | BanGlobals | BanPlatformFiles
)

// OrderedMark starts a comment on or above the line of a map iteration, with the reason
// why the order does not matter:
//
//	for id := range m { //layers:ordered summed, and addition commutes
const OrderedMark = "//layers:ordered"

// checkPurity type-checks and checks the packages of all rules.
func checkPurity(t *Tree, rules []Purity) ([]Finding, error) {
	var paths []string
	for _, r := range rules {
		for _, p := range t.match(r.From, r.Except) {
			if hasCode(p) {
				paths = append(paths, p.Path)
			}
		}
	}
	if len(paths) == 0 {
		return nil, nil
	}
	known, err := listBuilt(t.Root, paths)
	if err != nil {
		return nil, err
	}
	var found []Finding
	for _, r := range rules {
		for _, p := range t.match(r.From, r.Except) {
			if !hasCode(p) {
				continue
			}
			fs, err := r.check(t, p, known)
			if err != nil {
				return nil, err
			}
			found = append(found, fs...)
		}
	}
	return found, nil
}

func hasCode(p *Package) bool {
	return slices.ContainsFunc(p.Files, func(f *File) bool { return !f.Test })
}

func (r Purity) check(t *Tree, p *Package, known map[string]listed) ([]Finding, error) {
	self := known[t.Module+strings.TrimPrefix(p.Path, ".")]
	v := &visitor{rule: r, pkg: p, fset: token.NewFileSet(), sorted: map[*ast.Ident]bool{}}
	v.info = &types.Info{Uses: map[*ast.Ident]types.Object{}, Types: map[ast.Expr]types.TypeAndValue{}}
	var files []*ast.File
	for _, name := range self.GoFiles {
		// Positions have paths relative to the root.
		src, err := os.ReadFile(filepath.Join(self.Dir, name))
		if err != nil {
			return nil, err
		}
		f, err := parser.ParseFile(v.fset, shown(p.Path)+"/"+name, src, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			return nil, err
		}
		files = append(files, f)
	}
	conf := types.Config{Importer: importer.ForCompiler(v.fset, "gc", func(path string) (io.ReadCloser, error) {
		return os.Open(known[path].Export)
	})}
	pkg, err := conf.Check(self.ImportPath, v.fset, files, v.info)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", p.Path, err)
	}
	v.scope = pkg.Scope()
	for _, f := range files {
		v.file(f)
	}
	if r.Bans&BanPlatformFiles != 0 {
		v.variants(self.GoFiles)
	}
	return v.found, nil
}

// variants reports files that are not built on this system: they were not checked, and
// the package must not differ between systems.
func (v *visitor) variants(goFiles []string) {
	for _, f := range v.pkg.Files {
		if !f.Test && !slices.Contains(goFiles, filepath.Base(f.Name)) {
			v.found = append(v.found, Finding{
				Pos: token.Position{Filename: f.Name, Line: 1},
				Msg: v.because("is built on some systems only"),
			})
		}
	}
}
