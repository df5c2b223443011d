//go:build ibverbs && linux && cgo

package ibv

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/fabrictest/fabrictest/internal/must"
)

func TestConstantsAreThoseOfTheLibraries(t *testing.T) {
	for _, c := range constants {
		if c.ours != c.theirs {
			t.Errorf("verbs.%s is %d, and %s is %d", c.name, c.ours, c.library, c.theirs)
		}
	}
}

// Whoever adds a constant to package verbs adds it here, or says that libibverbs has none.
func TestNoConstantIsLeftOut(t *testing.T) {
	files := must.Get(filepath.Glob("../*.go"))(t)
	if len(files) == 0 {
		t.Skip("the source of package verbs is not here")
	}
	listed := slices.Clone(notInHeaders)
	for _, c := range constants {
		listed = append(listed, c.name)
	}
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		f := must.Get(parser.ParseFile(token.NewFileSet(), file, nil, 0))(t)
		ast.Inspect(f, func(n ast.Node) bool {
			g, ok := n.(*ast.GenDecl)
			if !ok || g.Tok != token.CONST {
				return true
			}
			for _, s := range g.Specs {
				for _, id := range s.(*ast.ValueSpec).Names {
					own := strings.HasPrefix(id.Name, "Cap") || id.Name == "Forever" || id.Name == "GRHLen" || id.Name == "MulticastQPN"
					if id.IsExported() && !own && !slices.Contains(listed, id.Name) {
						t.Errorf("verbs.%s is not checked", id.Name)
					}
				}
			}
			return false
		})
	}
}
