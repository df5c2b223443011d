package mutant

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fabrictest/fabrictest/internal/must"
)

const counter = `package counter

type Counter struct {
	n int
}

func (c *Counter) Add(by, _ int) int {
	c.n += by
	return c.n
}

func Sum(xs ...int) (sum int) {
	for _, x := range xs {
		sum += x
	}
	return sum
}
`

const counterMutants = `providers: one two

AddsTwice | a/1 | an addition counts twice
counter/counter.go
-	c.n += by
+	c.n += 2 * by

# It needs a field, a function and an import.
Late | a/2, a/3 | an addition counts at the next
counter/counter.go
+import "slices"
@@ Counter
 	n int
+	late []int
@@ Counter.Add
-	c.n += by
+	c.n += c.before()
+	c.late = slices.Concat(c.late, []int{by})
@@
+func (c *Counter) before() int {
+	if len(c.late) == 0 {
+		return 0
+	}
+	return c.late[len(c.late)-1]
+}

SkipsFirst | - | a sum is without the first
counter/counter.go
@@ Sum
-	for _, x := range xs {
+	for _, x := range xs[1:] {
`

const counterMain = `package main

import (
	"fmt"

	"github.com/fabrictest/fabrictest/counter"
	"github.com/fabrictest/fabrictest/internal/mutant"
)

func main() {
	for _, name := range append([]string{""}, mutant.Names()...) {
		if !mutant.Select(name) {
			panic(name)
		}
		var c counter.Counter
		c.Add(1, 0)
		fmt.Println(mutant.Selected(), c.Add(2, 0), counter.Sum(1, 2, 3))
	}
}
`

// newModule makes a module with some files and the part of package mutant that selects.
func newModule(t *testing.T, files map[string]string) (root string) {
	t.Helper()
	root = t.TempDir()
	for _, name := range []string{"mutant.go", "names.go"} {
		text := must.Get(os.ReadFile(name))(t)
		files["internal/mutant/"+name] = string(text)
	}
	files["go.mod"] = "module " + module + "\n\ngo 1.24\n"
	for name, text := range files {
		file := filepath.Join(root, name)
		must.Do(t, os.MkdirAll(filepath.Dir(file), 0o777))
		must.Do(t, os.WriteFile(file, []byte(text), 0o666))
	}
	return root
}

// A build with three mutants behaves as the selected one.
func TestOverlaySelectsMutants(t *testing.T) {
	root := newModule(t, map[string]string{"counter/counter.go": counter, "main.go": counterMain})
	mutants := must.Get(Parse("counter.txt", counterMutants))(t)
	if m := mutants[1]; len(mutants) != 3 || m.Name != "Late" || m.Imitates != "a/2, a/3" || len(m.Providers) != 2 || len(m.Hunks) != 4 {
		t.Fatalf("%+v", mutants)
	}
	overlay := must.Get(Overlay(root, t.TempDir(), mutants))(t)
	for want, args := range map[string][]string{
		" 3 6\n": {"run", "."},
		" 3 6\nAddsTwice 6 6\nLate 1 6\nSkipsFirst 3 5\n": {"run", "-overlay", overlay, "."},
	} {
		cmd := exec.Command("go", args...)
		cmd.Dir = root
		if out, err := cmd.CombinedOutput(); string(out) != want || err != nil {
			t.Errorf("go %v: %v\n%s\nwant\n%s", args, err, out, want)
		}
	}
}

func TestParseErrors(t *testing.T) {
	for text, want := range map[string]string{
		"Name | a":                           "x:1: \"Name | a\" is none of: NAME | CLAUSES OR DEVICE | WHAT IT DOES",
		"a.go":                               "x:1: a file before the name of its mutant",
		"-a":                                 "x:1: text before the name of its file",
		"N | a | b\n-a":                      "x:2: text before the name of its file",
		"N | a | b\na.go\n\nM | a | b\na.go": "x: mutant N changes nothing",
	} {
		if _, err := Parse("x", text); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%q: %v, want %s", text, err, want)
		}
	}
}

func TestApplyErrors(t *testing.T) {
	const source = "package a\n\nconst c = 1\n\ntype t int\n\nfunc f() int { return c }\n\nfunc g() {\n\tf()\n\tf()\n}\n"
	for text, want := range map[string]string{
		"-\tf()\n+\tg()":                    "occurs more than once",
		"-\th()":                            "no such text",
		"@@ h\n-\tf()":                      "no declaration h",
		"-const c = 1\n+const c = 2":        "cannot change the constant or variable c",
		"-type t int\n+type t uint":         "can only add fields to a type: t",
		"-func g() {\n+func g() {{\n \tf()": "expected",
	} {
		mutants := must.Get(Parse("x", "N | a | b\na.go\n"+text))(t)
		v := must.Get(newVariants("a.go", source, map[string]string{}, &numbering{functions: make([][]int, 3)}))(t)
		if err := v.addMutant(1, &mutants[0]); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %s", text, err, want)
		}
	}
}

// Two mutants may add the same declaration, but not two of the same name.
func TestAddedDeclarationsAreShared(t *testing.T) {
	v := must.Get(newVariants("a.go", "package a\n", map[string]string{}, &numbering{functions: make([][]int, 3)}))(t)
	for i, body := range []string{"func h() int { return 1 }", "func h() int { return 1 }", "func h() int { return 2 }"} {
		err := v.addMutant(i+1, &Mutant{Name: "N", Hunks: []Hunk{{File: "a.go", New: []string{body}}}})
		if (err != nil) != (i == 2) {
			t.Errorf("declaration %d: %v", i, err)
		}
	}
	if n := strings.Count(v.render(), "func h()"); n != 1 {
		t.Errorf("h is declared %d times", n)
	}
}
