package docs

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/fabrictest/fabrictest/emu/defects"
	"github.com/fabrictest/fabrictest/emu/defects/rocewire"
)

// knownRequirements is the number of rows of docs/spec/roce.md.
const knownRequirements = 363

// requirement is a row of docs/spec/roce.md.
type requirement struct {
	id, level, text string
	tests           []string // as package.TestName
	where           string
}

var (
	requirementRow = regexp.MustCompile("(?m)^\\| `([a-z]+(?:/[a-z]+)?/\\d+)` \\| (.*?) \\| (.*?) \\| (.*?) \\| (.*?) \\|$")
	defectRow      = regexp.MustCompile(`(?m)^\| (R\d+) \| (.*?) \| (.*?) \|$`)
	testName       = regexp.MustCompile("`(\\w+\\.(?:Test|Fuzz)\\w+)`")
	defectName     = regexp.MustCompile("`([\\w.]+)`")
	defectNumber   = regexp.MustCompile(`\bR\d+\b`)
)

func requirements(t *testing.T) []requirement {
	t.Helper()
	var rows []requirement
	for _, m := range requirementRow.FindAllStringSubmatch(read(t, "docs/spec/roce.md"), -1) {
		r := requirement{id: m[1], level: m[2], text: m[4], where: m[5]}
		for _, name := range testName.FindAllStringSubmatch(m[5], -1) {
			r.tests = append(r.tests, name[1])
		}
		rows = append(rows, r)
	}
	return rows
}

// The numbers of requirements are consecutive and unique.
func TestRequirementsAreListedOnce(t *testing.T) {
	rows := requirements(t)
	if len(rows) != knownRequirements {
		t.Errorf("docs/spec/roce.md has %d requirements, want %d: has a row been lost, or knownRequirements not been raised?", len(rows), knownRequirements)
	}
	lines := strings.Count(read(t, "docs/spec/roce.md"), "\n| `")
	if lines != len(rows) {
		t.Errorf("docs/spec/roce.md: %d rows, but only %d in the form: id, level, clause, requirement, where", lines, len(rows))
	}
	seen := map[string]bool{}
	last := map[string]string{}
	for _, r := range rows {
		if seen[r.id] {
			t.Errorf("%s is listed twice", r.id)
		}
		seen[r.id] = true
		area := r.id[:strings.LastIndex(r.id, "/")]
		if want := area + "/" + next(last[area]); r.id != want {
			t.Errorf("got %s, want %s next", r.id, want)
		}
		last[area] = r.id
		if !slices.Contains([]string{"MUST", "SHOULD", "MAY"}, r.level) {
			t.Errorf("%s has level %q", r.id, r.level)
		}
		if !strings.HasSuffix(r.text, ".") {
			t.Errorf("%s: %q is not a sentence", r.id, r.text)
		}
	}
}

// Each row names existing tests, or why there is none.
func TestRequirementsNameTestsThatExist(t *testing.T) {
	exist := map[string]bool{}
	tests(t, func(name string, file *ast.File) {
		for _, decl := range file.Decls {
			if f, ok := decl.(*ast.FuncDecl); ok && f.Recv == nil {
				exist[filepath.Base(filepath.Dir(name))+"."+f.Name.Name] = true
			}
		}
	})
	for _, r := range requirements(t) {
		if len(r.tests) == 0 && !strings.HasPrefix(r.where, "deviates: ") && !strings.HasPrefix(r.where, "not shown: ") {
			t.Errorf("%s: %q names no test, and no reason after \"deviates: \" or \"not shown: \"", r.id, r.where)
		}
		if strings.Count(r.where, "Test")+strings.Count(r.where, "Fuzz") != len(r.tests) {
			t.Errorf("%s: write tests as `package.TestName`: %s", r.id, r.where)
		}
		for _, name := range r.tests {
			if !exist[name] {
				t.Errorf("%s: there is no test %s", r.id, name)
			}
		}
	}
}

// Comments of tests, tags of defects and mutants cite only requirements of docs/spec/roce.md.
func TestCitedRequirementsExist(t *testing.T) {
	known, areas := map[string]bool{}, map[string]bool{}
	for _, r := range requirements(t) {
		known[r.id] = true
		area, _, _ := strings.Cut(r.id, "/")
		areas[area] = true
	}
	alternatives := strings.Join(slices.Sorted(maps.Keys(areas)), "|")
	citation := regexp.MustCompile(`(?:^|[^\w/])((?:` + alternatives + `)(?:/[a-z]+)?/\d+)\b`)
	cited := 0
	check := func(where, text string) {
		for _, m := range citation.FindAllStringSubmatch(text, -1) {
			if cited++; !known[m[1]] {
				t.Errorf("%s cites %s, which docs/spec/roce.md does not list", where, m[1])
			}
		}
	}
	tests(t, func(name string, file *ast.File) {
		for _, group := range file.Comments {
			for _, c := range group.List {
				check(name, c.Text)
			}
		}
	})
	for defect, tag := range defectTags(t) {
		check(defect, tag)
	}
	if cited < 300 {
		t.Errorf("found only %d citations: has their form changed?", cited)
	}
}

// docs/spec/defects.md lists exactly the known defects that tags of defects and mutants name.
func TestDefectTableMatchesTagsAndMutants(t *testing.T) {
	imitated := map[string][]string{}
	for defect, tag := range defectTags(t) {
		for _, number := range defectNumber.FindAllString(tag, -1) {
			imitated[number] = append(imitated[number], defect)
		}
	}
	listed, last := map[string]bool{}, ""
	for _, m := range defectRow.FindAllStringSubmatch(read(t, "docs/spec/defects.md"), -1) {
		number := m[1]
		if want := "R" + next(last); number != want {
			t.Errorf("got %s, want %s next", number, want)
		}
		listed[number], last = true, number
		var defects []string
		for _, q := range defectName.FindAllStringSubmatch(m[3], -1) {
			defects = append(defects, q[1])
		}
		slices.Sort(defects)
		slices.Sort(imitated[number])
		if !slices.Equal(defects, imitated[number]) {
			t.Errorf("%s: docs/spec/defects.md names the defects %q, the tags say %q", number, defects, imitated[number])
		}
	}
	if len(listed) != knownDefects {
		t.Errorf("docs/spec/defects.md lists %d defects, want %d", len(listed), knownDefects)
	}
	for number, defects := range imitated {
		if slices.Sort(defects); !listed[number] {
			t.Errorf("%q imitate %s, which docs/spec/defects.md does not list", defects, number)
		}
	}
}

// next returns the number after the one that id ends with; 1 for no id.
func next(id string) string {
	digits := id[strings.LastIndexFunc(id, func(r rune) bool { return r < '0' || r > '9' })+1:]
	n := 0
	for _, d := range digits {
		n = 10*n + int(d-'0')
	}
	return strconv.Itoa(n + 1)
}

// defectTags returns the tag "imitates" of each defect and mutant.
func defectTags(t *testing.T) map[string]string {
	t.Helper()
	tags := map[string]string{}
	for _, q := range slices.Concat(defects.RoCE.All(), defects.Shared.All(), defects.All(new(rocewire.Defects)), defects.AllVerbDefects()) {
		tags[q.Name] = q.Imitates
	}
	for _, m := range defects.Mutants() {
		tags[m.Name] = m.Imitates
	}
	return tags
}

// tests calls visit for every test file of all platforms, except those of docs.
func tests(t *testing.T, visit func(name string, file *ast.File)) {
	t.Helper()
	walk(t, func(name string, _ fs.DirEntry) {
		if !strings.HasSuffix(name, "_test.go") || strings.HasPrefix(name, "docs/") {
			return
		}
		file, err := parser.ParseFile(token.NewFileSet(), filepath.Join(root, name), nil, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		visit(name, file)
	})
}
