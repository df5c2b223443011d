package docs

import (
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write the generated part of quirks.md")

// generated begins the part of quirks.md that this test writes and compares.
const generated = "<!-- From here on generated from the code: go test ./docs -update -->\n"

// TestQuirksAreListed compares docs/quirks.md with the structs that hold
// quirks, so that neither says what the other does not.
func TestQuirksAreListed(t *testing.T) {
	want := generated +
		quirkTables(t, "emu/softroce/engine", "Quirks", "`engine.Quirks`") +
		"\n## Objects and their limits\n\n`engine.Quirks.Queues`\n" + quirkTables(t, "emu/internal/nic", "Lax", "") +
		"\n## Memory\n\n`engine.Quirks.Memory`\n" + quirkTables(t, "emu/internal/core", "Lax", "") +
		"\n## Connection management\n\n`cm.Quirks`\n" + quirkTables(t, "emu/softroce/cm", "Quirks", "")
	text := read(t, "docs/quirks.md")
	prose, got, found := strings.Cut(text, generated)
	if !found {
		t.Fatal("docs/quirks.md has no generated part")
	}
	if *update {
		if err := os.WriteFile("quirks.md", []byte(prose+want), 0o644); err != nil {
			t.Fatal(err)
		}
	} else if generated+got != want {
		t.Error("docs/quirks.md is not what the code says; run: go test ./docs -update")
	}
	for n := 1; n <= knownDefects; n++ {
		if !strings.Contains(strings.ReplaceAll(want, ",", " "), fmt.Sprintf(" R%d ", n)) {
			t.Errorf("no quirk imitates the known defect R%d", n)
		}
	}
}

// knownDefects is how many defects the project's list had when it was taken
// over: R1 to R48. Each has a quirk.
const knownDefects = 48

// untagged are the defects that quirks without a tag imitate.
var untagged = map[string]string{"StopAfterConns": "R14"}

// quirkTables writes the fields of a struct as tables. Where fields have tags,
// the comment above one is the heading of those that follow; where they have
// none, it describes the field.
func quirkTables(t *testing.T, dir, name, where string) string {
	t.Helper()
	const head = "\n| quirk | imitates | what it does |\n|---|---|---|\n"
	var b strings.Builder
	if where == "" {
		b.WriteString(head)
	}
	for _, f := range structFields(t, dir, name) {
		does, defect := "", "–"
		if f.Tag == nil {
			does = f.Doc.Text()
		} else {
			tag := reflect.StructTag(strings.Trim(f.Tag.Value, "`"))
			does, defect = tag.Get("does"), tag.Get("defect")
			if f.Doc != nil && where != "" {
				title, _, _ := strings.Cut(f.Doc.Text(), ".")
				fmt.Fprintf(&b, "\n## %s\n\n%s\n%s", title, where, head)
			}
		}
		var names []string
		for _, id := range f.Names {
			names = append(names, id.Name)
		}
		if d, ok := untagged[names[0]]; ok {
			defect = d
		}
		if does == "" {
			t.Errorf("%s: %s.%s does not say what it does", dir, name, names[0])
			continue
		}
		fmt.Fprintf(&b, "| `%s` | %s | %s |\n", strings.Join(names, "`, `"), defect, sentence(does, names[0]))
	}
	return b.String()
}

// sentence puts a comment or a tag into one form: a capital, one line, a full
// stop, and not the field's own name in front.
func sentence(s, field string) string {
	s = strings.Join(strings.Fields(s), " ")
	if rest := strings.TrimPrefix(strings.TrimPrefix(s, field+", "), field+" "); !strings.HasPrefix(rest, "and ") {
		s = rest
	}
	return strings.ToUpper(s[:1]) + strings.TrimSuffix(s[1:], ".") + "."
}

// structFields returns the fields of a struct, without those that are structs
// of quirks themselves.
func structFields(t *testing.T, dir, name string) []*ast.Field {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(root, dir, "*.go"))
	if err != nil {
		t.Fatal(err)
	}
	var fields []*ast.Field
	for _, file := range files {
		syntax, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(syntax, func(n ast.Node) bool {
			spec, ok := n.(*ast.TypeSpec)
			if !ok || spec.Name.Name != name {
				return true
			}
			for _, f := range spec.Type.(*ast.StructType).Fields.List {
				if !isLax(f) {
					fields = append(fields, f)
				}
			}
			return false
		})
	}
	if len(fields) == 0 {
		t.Fatalf("%s has no struct %s: has it moved?", dir, name)
	}
	return fields
}

// isLax reports whether the field is core.Lax or nic.Lax, which have tables of
// their own.
func isLax(f *ast.Field) bool {
	sel, ok := f.Type.(*ast.SelectorExpr)
	return ok && sel.Sel.Name == "Lax"
}
