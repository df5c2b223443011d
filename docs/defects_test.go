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
	"slices"
	"strings"
	"testing"

	"github.com/fabrictest/fabrictest/emu/defects/mutants"
)

var update = flag.Bool("update", false, "write the generated part of defects.md")

// generated begins the part of defects.md that this test writes and compares.
const generated = "<!-- From here on generated from the code: go test ./docs -update -->\n"

// TestDefectsAreListed compares docs/defects.md with the structs that hold
// defects, so that neither says what the other does not.
func TestDefectsAreListed(t *testing.T) {
	want := generated +
		"\n## Soft-RoCE\n" +
		"\n### Engine\n\n`softroce/engine.Defects`\n" + defectTables(t, "emu/softroce/engine", "Defects", "", "") +
		defectTables(t, "emu/defects/rocewire", "Defects", "`defects/rocewire.Defects`", "") +
		"\n### Connection management\n\n`softroce/cm.Defects`\n" + defectTables(t, "emu/softroce/cm", "Defects", "", "") +
		mutantTable("Mutants of soft-RoCE", "softroce") +
		"\n## Soft-iWARP\n" +
		defectTables(t, "emu/softiwarp/engine", "Defects", "`softiwarp/engine.Defects`", "") +
		defectTables(t, "emu/defects/iwarpwire", "Defects", "`defects/iwarpwire.Defects`", "On the wire: ") +
		defectTables(t, "emu/softiwarp/mpa", "Defects", "`softiwarp/engine.Defects.MPA`", "MPA: ") +
		defectTables(t, "emu/internal/iwarp", "Defects", "`softiwarp/engine.Defects.Stream`", "DDP and RDMAP: ") +
		mutantTable("Mutants of soft-iWARP", "softiwarp") +
		"\n## Datagram-iWARP\n" +
		defectTables(t, "emu/defects/dgwire", "Defects", "`defects/dgwire.Defects`", "") +
		mutantTable("Mutants of datagram-iWARP", "dgiwarp") +
		"\n## What all of them share\n" +
		defectTables(t, "emu/defects/verbcalls", "Defects", "`defective.Defects`", "Verbs: ") +
		"\n### Objects and their limits\n\n`engine.Defects.Queues`\n" + defectTables(t, "emu/internal/nic", "Defects", "", "") +
		"\n### Memory\n\n`engine.Defects.Memory`\n" + defectTables(t, "emu/internal/nic", "MemoryDefects", "", "") +
		mutantTable("Mutants of several NICs", "")
	text := read(t, "docs/defects.md")
	prose, got, found := strings.Cut(text, generated)
	if !found {
		t.Fatal("docs/defects.md has no generated part")
	}
	if *update {
		if err := os.WriteFile("defects.md", []byte(prose+want), 0o644); err != nil {
			t.Fatal(err)
		}
	} else if generated+got != want {
		t.Error("docs/defects.md is not what the code says; run: go test ./docs -update")
	}
	for n := 1; n <= knownDefects; n++ {
		if !strings.Contains(strings.ReplaceAll(want, ",", " "), fmt.Sprintf(" R%d ", n)) {
			t.Errorf("no defect imitates the known defect R%d", n)
		}
	}
}

// knownDefects is how many defects the project's list had when it was taken
// over: R1 to R48. Each has a defect.
const knownDefects = 48

// requirementID is the number of a requirement of an RFC.
var requirementID = regexp.MustCompile(`\brfc\d{4}/[\w.]+/\d+\b`)

// TestIWARPDefectsNameWhatTheyBreak: each is the defect of a known device or breaks
// a requirement, and the requirement is one that a test knows.
func TestIWARPDefectsNameWhatTheyBreak(t *testing.T) {
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
	defects := 0
	for dir, name := range map[string]string{
		"emu/softiwarp/engine": "Defects", "emu/defects/iwarpwire": "Defects", "emu/softiwarp/mpa": "Defects", "emu/internal/iwarp": "Defects",
	} {
		for _, f := range structFields(t, dir, name) {
			defects++
			defect := reflect.StructTag(strings.Trim(f.Tag.Value, "`")).Get("imitates")
			for _, d := range strings.Split(defect, ", ") {
				if d != "siw" && !tested[d] {
					t.Errorf("%s: %s breaks %q: no such device, and no test knows such a requirement", dir, f.Names[0].Name, d)
				}
			}
		}
	}
	if defects < 50 {
		t.Errorf("found only %d defects", defects)
	}
}

// TestDatagramDefectsNameWhatTheyBreak: each names requirements of the specification,
// which has no other implementation whose defects could be imitated.
func TestDatagramDefectsNameWhatTheyBreak(t *testing.T) {
	spec := read(t, "docs/spec/datagram-iwarp.md")
	defects := 0
	check := func(defect, imitates string) {
		defects++
		for _, id := range strings.Split(imitates, ", ") {
			if !strings.Contains(spec, "| `"+id+"` |") {
				t.Errorf("%s breaks %q, which is no requirement", defect, id)
			}
		}
	}
	for _, f := range structFields(t, "emu/defects/dgwire", "Defects") {
		check(f.Names[0].Name, reflect.StructTag(strings.Trim(f.Tag.Value, "`")).Get("imitates"))
	}
	for _, m := range mutants.All() {
		if slices.Equal(m.Providers, []string{"dgiwarp"}) {
			check(m.Name, m.Imitates)
		}
	}
	if defects < 88 {
		t.Errorf("found only %d defects", defects)
	}
}

const tableHead = "\n| defect | imitates | what it does |\n|---|---|---|\n"

// defectTables writes the fields of a struct as tables. Where fields have tags,
// the comment above one is, behind prefix, the heading of those that follow; where
// they have none, it describes the field.
func defectTables(t *testing.T, dir, name, where, prefix string) string {
	t.Helper()
	var b strings.Builder
	if where == "" {
		b.WriteString(tableHead)
	}
	for _, f := range structFields(t, dir, name) {
		does, defect := "", "–"
		if f.Tag == nil {
			does = f.Doc.Text()
		} else {
			tag := reflect.StructTag(strings.Trim(f.Tag.Value, "`"))
			does, defect = tag.Get("does"), tag.Get("imitates")
			if f.Doc != nil && where != "" {
				title, _, _ := strings.Cut(f.Doc.Text(), ".")
				title = strings.Join(strings.Fields(title), " ")
				if prefix != "" {
					title = prefix + strings.ToLower(title[:1]) + title[1:]
				}
				fmt.Fprintf(&b, "\n### %s\n\n%s\n%s", title, where, tableHead)
			}
		}
		var names []string
		for _, id := range f.Names {
			names = append(names, id.Name)
		}
		if does == "" {
			t.Errorf("%s: %s.%s does not say what it does", dir, name, names[0])
			continue
		}
		fmt.Fprintf(&b, "| `%s` | %s | %s |\n", strings.Join(names, "`, `"), defect, sentence(does, names[0]))
	}
	return b.String()
}

// mutantTable writes the mutants of one provider as a table, or those of several
// providers if provider is empty. It returns an empty string if there are none.
func mutantTable(title, provider string) string {
	var b strings.Builder
	for _, m := range mutants.All() {
		if provider == "" && len(m.Providers) > 1 || slices.Equal(m.Providers, []string{provider}) {
			imitates := m.Imitates
			if imitates == "-" {
				imitates = "–"
			}
			fmt.Fprintf(&b, "| `%s` | %s | %s |\n", m.Name, imitates, sentence(m.Does, m.Name))
		}
	}
	if b.Len() == 0 {
		return ""
	}
	return "\n### " + title + "\n\n`emu/defects/mutants`\n" + tableHead + b.String()
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
// of defects themselves.
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
				if !isStructOfDefects(f) {
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

// isStructOfDefects reports whether the field is one of another package's structs
// of defects, which have tables of their own.
func isStructOfDefects(f *ast.Field) bool {
	sel, ok := f.Type.(*ast.SelectorExpr)
	return ok && (sel.Sel.Name == "MemoryDefects" || sel.Sel.Name == "Defects")
}
