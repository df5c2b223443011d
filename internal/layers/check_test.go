package main

import (
	"cmp"
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

// RuleSet are the rules of a module.
type RuleSet struct {
	Boundaries []Boundary
	Purities   []Purity
	Cgo        CgoRule
	// Planned lists directories in rules that do not exist yet. Check reports an
	// entry whose directory exists, so that renaming it cannot disable a rule.
	Planned []string
}

// Check returns all violations, sorted by position. The error means that the check could
// not run, for example because code does not compile.
func (s RuleSet) Check(t *Tree) ([]Finding, error) {
	found := s.unmatchedPatterns(t)
	for _, b := range s.Boundaries {
		found = append(found, b.check(t)...)
	}
	impure, err := checkPurity(t, s.Purities)
	if err != nil {
		return nil, err
	}
	found = append(found, impure...)
	found = append(found, s.Cgo.check(t)...)
	slices.SortStableFunc(found, func(a, b Finding) int {
		return cmp.Or(
			strings.Compare(a.Pos.Filename, b.Pos.Filename),
			cmp.Compare(a.Pos.Line, b.Pos.Line),
			strings.Compare(a.Msg, b.Msg))
	})
	return found, nil
}

// unmatchedPatterns reports patterns that match no package, and wrong entries of Planned.
func (s RuleSet) unmatchedPatterns(t *Tree) []Finding {
	var found []Finding
	report := func(format string, args ...any) {
		f := Finding{Msg: fmt.Sprintf(format, args...)}
		if !slices.Contains(found, f) {
			found = append(found, f)
		}
	}
	used := map[string]bool{}
	checkPatterns := func(rule string, patterns []string) {
		for _, p := range patterns {
			used[p] = true
			switch {
			case strings.Contains(strings.SplitN(p, "/", 2)[0], "."):
				if isOurs(p) && len(t.match([]string{p}, nil)) == 0 && !slices.Contains(s.Planned, p) {
					report("rule %q: %s matches no package: misspelt, moved, or to be listed in Planned?", rule, p)
				}
			case p != "std" && !t.anyStandard(p):
				report("rule %q: %s is not in the standard library: misspelt? Our own folders begin with ./", rule, p)
			}
		}
	}
	for _, b := range s.Boundaries {
		checkPatterns(b.Name, slices.Concat(b.From, b.Except, b.Only, b.Never))
		for p := range b.Because {
			checkPatterns(b.Name, []string{p})
		}
	}
	for _, p := range s.Purities {
		checkPatterns(p.Name, slices.Concat(p.From, p.Except))
	}
	checkPatterns("cgo", s.Cgo.In)
	for _, p := range s.Planned {
		if len(t.match([]string{p}, nil)) > 0 {
			report("%s exists now: delete it from Planned, so that renaming it cannot disable its rules", p)
		}
		if !used[p] {
			report("%s is in Planned, but in no rule", p)
		}
	}
	return found
}

// anyStandard reports whether the pattern matches a package of the standard library.
func (t *Tree) anyStandard(pattern string) bool {
	for name := range t.std {
		if matchPattern(pattern, name) {
			return true
		}
	}
	return false
}

// CgoRule restricts cgo to some packages, and there to files with a build tag, so that a
// build without tags needs no C compiler.
type CgoRule struct {
	In  []string
	Why string
}

func (r CgoRule) check(t *Tree) []Finding {
	var found []Finding
	for _, p := range t.Packages {
		for _, f := range p.Files {
			pos, ok := importOfC(f)
			switch {
			case !ok:
			case !matchAny(r.In, p.Path):
				found = append(found, Finding{pos, fmt.Sprintf("%s uses cgo: %s", shown(p.Path), r.Why)})
			case inPlainBuild(f):
				found = append(found, Finding{pos, fmt.Sprintf("%s uses cgo in a file that a plain build includes: put it behind a build tag; %s", shown(p.Path), r.Why)})
			}
		}
	}
	return found
}

func importOfC(f *File) (token.Position, bool) {
	for _, imp := range f.Imports {
		if imp.Path == "C" {
			return imp.Pos, true
		}
	}
	return token.Position{}, false
}

// plainTags are build tags that the go command sets by default on some systems. Other
// tags need -tags.
var plainTags = map[string]bool{
	"cgo": true, "gc": true, "unix": true,
	"linux": true, "darwin": true, "windows": true, "freebsd": true,
	"amd64": true, "arm64": true,
}

// inPlainBuild reports whether a build without -tags may include the file.
func inPlainBuild(f *File) bool {
	return f.Constraint == nil || f.Constraint.Eval(func(tag string) bool { return plainTags[tag] })
}

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
