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
	"regexp"
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
		"\n## Soft-RoCE\n" +
		quirkTables(t, "emu/softroce/engine", "Quirks", "`softroce/engine.Quirks`", "") +
		quirkTables(t, "emu/softroce/flaw", "Quirks", "`softroce/flaw.Quirks`", "") +
		"\n### Connection management\n\n`softroce/cm.Quirks`\n" + quirkTables(t, "emu/softroce/cm", "Quirks", "", "") +
		"\n## Soft-iWARP\n" +
		quirkTables(t, "emu/softiwarp/engine", "Quirks", "`softiwarp/engine.Quirks`", "") +
		quirkTables(t, "emu/softiwarp/flaw", "Quirks", "`softiwarp/flaw.Quirks`", "On the wire: ") +
		quirkTables(t, "emu/softiwarp/mpa", "Quirks", "`softiwarp/engine.Quirks.MPA`", "MPA: ") +
		quirkTables(t, "emu/internal/iwarp", "Lax", "`softiwarp/engine.Quirks.Stream`", "DDP and RDMAP: ") +
		"\n## Datagram-iWARP\n" +
		quirkTables(t, "emu/dgiwarp/flaw", "Quirks", "`dgiwarp/flaw.Quirks`", "") +
		quirkTables(t, "emu/dgiwarp/engine", "Quirks", "`dgiwarp/engine.Quirks`", "") +
		quirkTables(t, "emu/dgiwarp/rd", "Quirks", "`dgiwarp/engine.Quirks.Flows`", "Flows: ") +
		"\n## What all of them share\n" +
		quirkTables(t, "emu/flawed", "Quirks", "`flawed.Quirks`", "Verbs: ") +
		"\n### Objects and their limits\n\n`engine.Quirks.Queues`\n" + quirkTables(t, "emu/internal/nic", "Lax", "", "") +
		"\n### Memory\n\n`engine.Quirks.Memory`\n" + quirkTables(t, "emu/internal/nic", "LaxMemory", "", "")
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

// requirementID is the number of a requirement of an RFC.
var requirementID = regexp.MustCompile(`\brfc\d{4}/[\w.]+/\d+\b`)

// TestIWARPQuirksNameWhatTheyBreak: each is the defect of a known device or breaks
// a requirement, and the requirement is one that a test knows.
func TestIWARPQuirksNameWhatTheyBreak(t *testing.T) {
	tested := map[string]bool{}
	for _, dir := range []string{"emu/softiwarp/engine", "emu/softiwarp/mpa", "emu/internal/iwarp"} {
		files, err := filepath.Glob(filepath.Join(root, dir, "*_test.go"))
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range files {
			b, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			for _, id := range requirementID.FindAllString(string(b), -1) {
				tested[id] = true
			}
		}
	}
	if len(tested) < 200 {
		t.Fatalf("found only %d requirements in the tests: have they moved?", len(tested))
	}
	quirks := 0
	for dir, name := range map[string]string{
		"emu/softiwarp/engine": "Quirks", "emu/softiwarp/flaw": "Quirks", "emu/softiwarp/mpa": "Quirks", "emu/internal/iwarp": "Lax",
	} {
		for _, f := range structFields(t, dir, name) {
			quirks++
			defect := reflect.StructTag(strings.Trim(f.Tag.Value, "`")).Get("defect")
			for _, d := range strings.Split(defect, ", ") {
				if d != "siw" && !tested[d] {
					t.Errorf("%s: %s breaks %q: no such device, and no test knows such a requirement", dir, f.Names[0].Name, d)
				}
			}
		}
	}
	if quirks < 50 {
		t.Errorf("found only %d quirks", quirks)
	}
}

// TestDatagramQuirksNameWhatTheyBreak: each names requirements of the specification,
// which has no other implementation whose defects could be imitated.
func TestDatagramQuirksNameWhatTheyBreak(t *testing.T) {
	spec := read(t, "docs/spec/datagram-iwarp.md")
	quirks := 0
	for _, dir := range []string{"emu/dgiwarp/flaw", "emu/dgiwarp/engine", "emu/dgiwarp/rd"} {
		for _, f := range structFields(t, dir, "Quirks") {
			quirks++
			for _, id := range strings.Split(reflect.StructTag(strings.Trim(f.Tag.Value, "`")).Get("defect"), ", ") {
				if !strings.Contains(spec, "| `"+id+"` |") {
					t.Errorf("%s: %s breaks %q, which is no requirement", dir, f.Names[0].Name, id)
				}
			}
		}
	}
	if quirks < 88 {
		t.Errorf("found only %d quirks", quirks)
	}
}

// quirkTables writes the fields of a struct as tables. Where fields have tags,
// the comment above one is, behind prefix, the heading of those that follow; where
// they have none, it describes the field.
func quirkTables(t *testing.T, dir, name, where, prefix string) string {
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
				title = strings.Join(strings.Fields(title), " ")
				if prefix != "" {
					title = prefix + strings.ToLower(title[:1]) + title[1:]
				}
				fmt.Fprintf(&b, "\n### %s\n\n%s\n%s", title, where, head)
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
				if !isStructOfQuirks(f) {
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

// isStructOfQuirks reports whether the field is one of another package's structs
// of quirks, which have tables of their own.
func isStructOfQuirks(f *ast.Field) bool {
	sel, ok := f.Type.(*ast.SelectorExpr)
	return ok && (sel.Sel.Name == "Lax" || sel.Sel.Name == "LaxMemory" || sel.Sel.Name == "Quirks")
}
