package verbs_test

import (
	"go/parser"
	"go/token"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/fabrictest/fabrictest/internal/must"
)

// goFiles returns the package's Go files except tests.
func goFiles(t *testing.T) (files []string) {
	t.Helper()
	all := must.Get(filepath.Glob("*.go"))(t)
	for _, f := range all {
		if !strings.HasSuffix(f, "_test.go") {
			files = append(files, f)
		}
	}
	return files
}

func TestImportsOnlyStandardLibrary(t *testing.T) {
	for _, file := range goFiles(t) {
		f := must.Get(parser.ParseFile(token.NewFileSet(), file, nil, parser.ImportsOnly))(t)
		for _, spec := range f.Imports {
			path := must.Get(strconv.Unquote(spec.Path.Value))(t)
			if first, _, _ := strings.Cut(path, "/"); path == "C" || strings.Contains(first, ".") {
				t.Errorf("%s imports %s: every program and provider links this package, so it must have no dependencies", file, path)
			}
		}
	}
}
