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

	"github.com/fabrictest/fabrictest/emu/defects"
)

var update = flag.Bool("update", false, "write the generated part of defects.md")

// generated begins the part of defects.md that this test writes and compares.
const generated = "<!-- From here on generated from the code: go test ./docs -update -->\n"

// docs/defects.md lists exactly the defects of the code.
func TestDefectsAreListed(t *testing.T) {
	want := generated +
		"\n## Soft-RoCE\n" +
		policyTable("Engine", defects.RoCE.All()) +
		defectTables(t, "emu/defects/rocewire", "Defects", "`defects/rocewire.Defects`", "") +
		policyTable("Connection management", defects.Manager.All()) +
		mutantTable("Mutants of soft-RoCE", "softroce") +
		"\n## Soft-iWARP\n" +
		policyTable("Connections", defects.IWARP.All()) +
		policyTable("MPA", defects.MPA.All()) +
		policyTable("DDP and RDMAP", defects.RDMAP.All()) +
		mutantTable("Mutants of soft-iWARP", "softiwarp") +
		"\n## Datagram-iWARP\n" +
		mutantTable("Mutants of datagram-iWARP", "dgiwarp") +
		"\n## What all of them share\n" +
		defectTables(t, "emu/defects", "VerbDefects", "`defects.VerbDefects`", "Verbs: ") +
		policyTable("Memory and completion queues", defects.Shared.All()) +
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
		t.Error("docs/defects.md differs from the code; run: go test ./docs -update")
	}
	for n := 1; n <= knownDefects; n++ {
		if !strings.Contains(strings.ReplaceAll(want, ",", " "), fmt.Sprintf(" R%d ", n)) {
			t.Errorf("no defect imitates the known defect R%d", n)
		}
	}
}

// knownDefects is the number of defects of known devices in docs/spec/defects.md: R1 to R48.
const knownDefects = 48

// requirementID is the number of a requirement of an RFC.
var requirementID = regexp.MustCompile(`\brfc\d{4}/[\w.]+/\d+\b`)

// Each defect is one of siw, or breaks a requirement that a test cites, or one of the verbs API.
func TestIWARPDefectsNameTestedRequirements(t *testing.T) {
	tested := map[string]bool{}
	for _, dir := range []string{"emu/softiwarp/engine", "emu/softiwarp/mpa", "emu/iwarp"} {
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
	all := slices.Concat(defects.IWARP.All(), defects.MPA.All(), defects.RDMAP.All())
	for _, m := range defects.Mutants() {
		if slices.Equal(m.Providers, []string{"softiwarp"}) {
			all = append(all, defects.Info{Name: m.Name, Imitates: m.Imitates})
		}
	}
	for _, q := range all {
		for _, d := range strings.Split(q.Imitates, ", ") {
			if d != "siw" && !tested[d] && !strings.HasPrefix(d, "verbs/") {
				t.Errorf("%s breaks %q, which is neither a known device nor a requirement that a test cites", q.Name, d)
			}
		}
	}
}

// Each defect names requirements of the specification: no other implementation can be imitated.
func TestDatagramDefectsNameRequirements(t *testing.T) {
	spec := read(t, "docs/spec/datagram-iwarp.md")
	n := 0
	check := func(defect, imitates string) {
		n++
		for _, id := range strings.Split(imitates, ", ") {
			if !strings.Contains(spec, "| `"+id+"` |") {
				t.Errorf("%s breaks %q, which is not a requirement", defect, id)
			}
		}
	}
	for _, m := range defects.Mutants() {
		if slices.Equal(m.Providers, []string{"dgiwarp"}) {
			check(m.Name, m.Imitates)
		}
	}
	if n < 88 {
		t.Errorf("found only %d defects", n)
	}
}

const tableHead = "\n| defect | imitates | what it does |\n|---|---|---|\n"

// defectTables returns the fields of a struct as tables. The comment above a field, after prefix,
// is the heading of the fields that follow.
func defectTables(t *testing.T, dir, name, where, prefix string) string {
	t.Helper()
	var b strings.Builder
	for _, f := range structFields(t, dir, name) {
		tag := reflect.StructTag(strings.Trim(f.Tag.Value, "`"))
		if f.Doc != nil {
			title, _, _ := strings.Cut(f.Doc.Text(), ".")
			title = strings.Join(strings.Fields(title), " ")
			if prefix != "" {
				title = prefix + strings.ToLower(title[:1]) + title[1:]
			}
			fmt.Fprintf(&b, "\n### %s\n\n%s\n%s", title, where, tableHead)
		}
		writeRow(&b, f.Names[0].Name, tag.Get("imitates"), tag.Get("does"))
	}
	return b.String()
}

// policyTable returns a table of the defects that engines imitate by a policy.
func policyTable(title string, all []defects.Info) string {
	b := new(strings.Builder)
	fmt.Fprintf(b, "\n### %s\n\n`emu/defects`\n%s", title, tableHead)
	for _, q := range all {
		writeRow(b, q.Name, q.Imitates, q.Does)
	}
	return b.String()
}

// writeRow writes a row of a table.
func writeRow(b *strings.Builder, name, imitates, does string) {
	if imitates == "" || imitates == "-" {
		imitates = "–"
	}
	fmt.Fprintf(b, "| `%s` | %s | %s |\n", name, imitates, sentence(does, name))
}

// mutantTable returns a table of the mutants of one provider, or of those of several providers if
// provider is empty; "" if there are none.
func mutantTable(title, provider string) string {
	var b strings.Builder
	for _, m := range defects.Mutants() {
		if provider == "" && len(m.Providers) > 1 || slices.Equal(m.Providers, []string{provider}) {
			writeRow(&b, m.Name, m.Imitates, m.Does)
		}
	}
	if b.Len() == 0 {
		return ""
	}
	return "\n### " + title + "\n\n`emu/defects/mutants`\n" + tableHead + b.String()
}

// sentence returns a comment or tag as one line with a capital and a full stop, without the field's
// name in front.
func sentence(s, field string) string {
	s = strings.Join(strings.Fields(s), " ")
	if rest := strings.TrimPrefix(strings.TrimPrefix(s, field+", "), field+" "); !strings.HasPrefix(rest, "and ") {
		s = rest
	}
	return strings.ToUpper(s[:1]) + strings.TrimSuffix(s[1:], ".") + "."
}

// structFields returns the fields of a struct.
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
			fields = append(fields, spec.Type.(*ast.StructType).Fields.List...)
			return false
		})
	}
	if len(fields) == 0 {
		t.Fatalf("%s has no struct %s: has it moved?", dir, name)
	}
	return fields
}
