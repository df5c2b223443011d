package fuzz_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/fabrictest/fabrictest/fuzz"
	"github.com/fabrictest/fabrictest/internal/must"
)

// found is a fuzz target in the source.
type found struct {
	fuzz.Target
	seeded bool
}

// targetsInSource returns the functions that the go command treats as fuzz targets, in all packages
// and for all systems.
func targetsInSource(t *testing.T, root string) (all []found) {
	t.Helper()
	files := map[string][]*ast.File{} // by package folder
	err := filepath.WalkDir(root, func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		base := d.Name()
		if d.IsDir() && name != root && (base == "testdata" || base[0] == '.' || base[0] == '_') {
			return fs.SkipDir
		}
		if d.IsDir() || !strings.HasSuffix(base, "_test.go") {
			return nil
		}
		f, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.SkipObjectResolution)
		if err == nil {
			dir := filepath.Dir(name)
			files[dir] = append(files[dir], f)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	for dir, parsed := range files {
		rel := must.Get(filepath.Rel(root, dir))(t)
		functions := map[string]*ast.FuncDecl{}
		for _, f := range parsed {
			for _, d := range f.Decls {
				if fn, ok := d.(*ast.FuncDecl); ok && fn.Recv == nil {
					functions[fn.Name.Name] = fn
				}
			}
		}
		for name, fn := range functions {
			if strings.HasPrefix(name, "Fuzz") && isTarget(fn) {
				corpus, _ := filepath.Glob(filepath.Join(dir, "testdata", "fuzz", name, "*"))
				x := found{Target: fuzz.Target{Package: "./" + filepath.ToSlash(rel), Name: name}}
				x.seeded = len(corpus) > 0 || adds(fn, functions, 3)
				all = append(all, x)
			}
		}
	}
	return all
}

// isTarget reports whether a function has the one parameter of a target.
func isTarget(fn *ast.FuncDecl) bool {
	if len(fn.Type.Params.List) != 1 {
		return false
	}
	p, ok := fn.Type.Params.List[0].Type.(*ast.StarExpr)
	if !ok {
		return false
	}
	sel, ok := p.X.(*ast.SelectorExpr)
	return ok && sel.Sel.Name == "F"
}

// adds reports whether a function adds seeds, directly or through a function of its package that
// takes its testing.F.
func adds(fn *ast.FuncDecl, functions map[string]*ast.FuncDecl, deep int) (yes bool) {
	ast.Inspect(fn, func(n ast.Node) bool {
		call, ok := n.(*ast.CallExpr)
		if !ok {
			return true
		}
		switch f := call.Fun.(type) {
		case *ast.SelectorExpr:
			yes = yes || f.Sel.Name == "Add" && len(call.Args) > 0
		case *ast.Ident:
			if called := functions[f.Name]; called != nil && deep > 0 && len(call.Args) > 0 {
				yes = yes || adds(called, functions, deep-1)
			}
		}
		return true
	})
	return yes
}

// The list has exactly the targets in the source, and each target has seeds.
func TestListHasAllTargets(t *testing.T) {
	text := must.Get(os.ReadFile("targets.txt"))(t)
	listed := must.Get(fuzz.ParseList(string(text)))(t)
	if !slices.Equal(listed, fuzz.Targets()) {
		t.Error("the embedded list differs from the file")
	}
	inSource := targetsInSource(t, "..")
	if len(inSource) < 40 {
		t.Fatalf("only %d targets in the source: the search is broken", len(inSource))
	}
	for _, x := range inSource {
		if !slices.Contains(listed, x.Target) {
			t.Errorf("%s lacks the line\n%s %s", fuzz.ListFile, x.Package, x.Name)
		}
		if !x.seeded {
			t.Errorf("%v has no seeds: add some with f.Add, or files in testdata/fuzz/%s", x.Target, x.Name)
		}
	}
	for _, l := range listed {
		if !slices.ContainsFunc(inSource, func(x found) bool { return x.Target == l }) {
			t.Errorf("%s has a line for %v, which does not exist", fuzz.ListFile, l)
		}
	}
}

func TestWholeStackTargetsHaveCorpus(t *testing.T) {
	for _, x := range fuzz.Targets() {
		if x.Package != "./fuzz" {
			continue
		}
		if files, _ := filepath.Glob(filepath.Join("testdata", "fuzz", x.Name, "*")); len(files) == 0 {
			t.Errorf("%s has no files in testdata/fuzz", x.Name)
		}
	}
}

func TestParseList(t *testing.T) {
	good := "# a comment\n\n./a FuzzOne # why\n  ./b/c   FuzzTwo\n"
	all, err := fuzz.ParseList(good)
	if want := []fuzz.Target{{"./a", "FuzzOne"}, {"./b/c", "FuzzTwo"}}; err != nil || !slices.Equal(all, want) {
		t.Errorf("%v, %v", all, err)
	}
	if s := all[1].String(); s != "b/c.FuzzTwo" {
		t.Errorf("String is %q", s)
	}
	for text, says := range map[string]string{
		"./a": "targets.txt:1: want a package", "a FuzzOne": "want a package", "./a TestOne": "want a package",
		"./a FuzzOne more": "want a package", "\n./a FuzzOne\n./a FuzzOne": "targets.txt:3: a.FuzzOne is listed twice",
	} {
		if _, err := fuzz.ParseList(text); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%q: %v, want %q", text, err, says)
		}
	}
}
