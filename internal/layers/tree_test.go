package main

import (
	"fmt"
	"go/ast"
	"go/build/constraint"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
)

// Tree is a module with all packages and Go files.
type Tree struct {
	Root     string // the directory of go.mod
	Module   string // the module path
	Packages []*Package

	fset *token.FileSet
	std  map[string]bool
}

// Package is a directory with Go files.
type Package struct {
	// Path is the directory relative to the root, as the go command writes it:
	// "./verbs", "./emu/softroce/wire", "." for the root.
	Path  string
	Files []*File
}

// File is a Go file with its imports.
type File struct {
	Name       string // relative to the root
	Test       bool
	Imports    []Import
	Constraint constraint.Expr // nil if the file has no //go:build line
}

// Import is an import of a file. Path is relative ("./verbs") for packages of this module.
type Import struct {
	Path string
	Pos  token.Position
}

// Load reads the module at dir. It ignores build constraints and reads all files.
func Load(dir string) (*Tree, error) {
	root, err := filepath.Abs(dir)
	if err != nil {
		return nil, err
	}
	t := &Tree{Root: root, fset: token.NewFileSet()}
	if t.Module, err = modulePath(filepath.Join(root, "go.mod")); err != nil {
		return nil, err
	}
	if t.std, err = standardPackages(root); err != nil {
		return nil, err
	}
	err = filepath.WalkDir(root, func(name string, d fs.DirEntry, err error) error {
		if err != nil || !d.IsDir() {
			return err
		}
		if name != root && isIgnored(name) {
			return filepath.SkipDir
		}
		return t.addFolder(name)
	})
	return t, err
}

// standardPackages lists the standard library.
func standardPackages(dir string) (map[string]bool, error) {
	out, err := goCommand(dir, "list", "std")
	if err != nil {
		return nil, err
	}
	std := map[string]bool{}
	for name := range strings.FieldsSeq(string(out)) {
		std[name] = true
	}
	return std, nil
}

// listBuilt compiles packages and their dependencies, and lists all of them by import path.
func listBuilt(dir string, packages []string) (map[string]listed, error) {
	all, err := goList(dir, append([]string{"-export", "-deps"}, packages...)...)
	byPath := map[string]listed{}
	for _, l := range all {
		byPath[l.ImportPath] = l
	}
	return byPath, err
}

// modulePath reads the module line of a go.mod file.
func modulePath(name string) (string, error) {
	src, err := os.ReadFile(name)
	if err != nil {
		return "", err
	}
	for line := range strings.Lines(string(src)) {
		if rest, ok := strings.CutPrefix(strings.TrimSpace(line), "module "); ok {
			return strings.Trim(strings.TrimSpace(rest), `"`), nil
		}
	}
	return "", fmt.Errorf("%s: no module line", name)
}

// isIgnored reports whether the pattern ./... excludes a directory.
func isIgnored(dir string) bool {
	base := filepath.Base(dir)
	if base == "testdata" || base == "vendor" || strings.HasPrefix(base, ".") || strings.HasPrefix(base, "_") {
		return true
	}
	_, err := os.Stat(filepath.Join(dir, "go.mod"))
	return err == nil
}

func (t *Tree) addFolder(dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	rel, err := filepath.Rel(t.Root, dir)
	if err != nil {
		return err
	}
	p := &Package{Path: "."}
	if rel != "." {
		p.Path = "./" + filepath.ToSlash(rel)
	}
	for _, e := range entries {
		if e.IsDir() || !strings.HasSuffix(e.Name(), ".go") {
			continue
		}
		f, err := t.readFile(path.Join(filepath.ToSlash(rel), e.Name()))
		if err != nil {
			return err
		}
		p.Files = append(p.Files, f)
	}
	if len(p.Files) > 0 {
		t.Packages = append(t.Packages, p)
	}
	return nil
}

func (t *Tree) readFile(name string) (*File, error) {
	src, err := os.ReadFile(filepath.Join(t.Root, filepath.FromSlash(name)))
	if err != nil {
		return nil, err
	}
	syntax, err := parser.ParseFile(t.fset, name, src, parser.ImportsOnly|parser.ParseComments)
	if err != nil {
		return nil, err
	}
	f := &File{Name: name, Test: strings.HasSuffix(name, "_test.go")}
	for _, spec := range syntax.Imports {
		f.Imports = append(f.Imports, Import{
			Path: t.relative(strings.Trim(spec.Path.Value, "`\"")),
			Pos:  t.fset.Position(spec.Pos()),
		})
	}
	f.Constraint, err = constraintOf(syntax)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return f, nil
}

// constraintOf returns the //go:build constraint of a file, or nil.
func constraintOf(syntax *ast.File) (constraint.Expr, error) {
	for _, group := range syntax.Comments {
		for _, c := range group.List {
			if c.Pos() < syntax.Package && constraint.IsGoBuild(c.Text) {
				return constraint.Parse(c.Text)
			}
		}
	}
	return nil, nil
}

// relative converts an import path of this module to a relative path.
func (t *Tree) relative(importPath string) string {
	if importPath == t.Module {
		return "."
	}
	if rest, ok := strings.CutPrefix(importPath, t.Module+"/"); ok {
		return "./" + rest
	}
	return importPath
}

// lookup returns the package with a relative path, or nil.
func (t *Tree) lookup(path string) *Package {
	for _, p := range t.Packages {
		if p.Path == path {
			return p
		}
	}
	return nil
}

// match returns the packages that match patterns but not except.
func (t *Tree) match(patterns, except []string) []*Package {
	var found []*Package
	for _, p := range t.Packages {
		if matchAny(patterns, p.Path) && !matchAny(except, p.Path) {
			found = append(found, p)
		}
	}
	return found
}

// matchPattern matches like the go command: "./emu/..." is ./emu and all below it.
func matchPattern(pattern, name string) bool {
	if pattern == "./..." {
		return name == "." || strings.HasPrefix(name, "./")
	}
	if prefix, ok := strings.CutSuffix(pattern, "/..."); ok {
		return name == prefix || strings.HasPrefix(name, prefix+"/")
	}
	return name == pattern
}

func matchAny(patterns []string, name string) bool {
	for _, p := range patterns {
		if matchPattern(p, name) {
			return true
		}
	}
	return false
}

func isOurs(importPath string) bool {
	return importPath == "." || strings.HasPrefix(importPath, "./")
}

// Finding is a violation of a rule.
type Finding struct {
	Pos token.Position // Filename is relative to the root; zero for findings about rules
	Msg string
}

func (f Finding) String() string {
	if !f.Pos.IsValid() {
		return f.Msg
	}
	return fmt.Sprintf("%s:%d: %s", f.Pos.Filename, f.Pos.Line, f.Msg)
}
