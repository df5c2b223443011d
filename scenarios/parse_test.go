package scenarios

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/fabrictest/fabrictest/internal/must"
)

// Every file in testdata/bad is rejected with the errors in its .txt file.
func TestErrorsHavePositionAndRemedy(t *testing.T) {
	files, err := filepath.Glob("testdata/bad/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatal("no bad files:", err)
	}
	for _, file := range files {
		name := filepath.Base(file)
		_, err := Parse(name, readFile(t, file))
		if err == nil {
			t.Errorf("%s was accepted", file)
			continue
		}
		compareGolden(t, strings.TrimSuffix(file, ".yaml")+".txt", []byte(err.Error()+"\n"))
		last := 0
		var all Errors
		if !errors.As(err, &all) {
			t.Fatalf("%s: the error is %T, want Errors", file, err)
		}
		for _, e := range all {
			if e.File != name || e.Line < last || e.Line == 0 {
				t.Errorf("%s: %v: line %d after line %d", file, e, e.Line, last)
			}
			last = e.Line
		}
	}
}

const small = "version: 1\nname: x\ntitle: X\nfabric: {kind: pair}\nworkload: {kind: stream}\n"

func parseSmall(t *testing.T, more string) *Scenario {
	t.Helper()
	s := must.Get(Parse("x.yaml", []byte(small+more)))(t)
	return s
}

func TestParseLimits(t *testing.T) {
	deep := small + "expect: " + strings.Repeat("{a: ", 40) + "1" + strings.Repeat("}", 40)
	wide := small + "tags: [" + strings.Repeat("a,", maxNodes) + "a]"
	patterns := small + "impair: [{loss: 1%, on: [" + strings.Repeat("host0,", maxPatterns) + "host0]}]"
	impairs := small + "impair:\n" + strings.Repeat("- {loss: 1%}\n", 65)
	wrongs := small + strings.Repeat("x: 1\n", 80)
	large := small + "description: " + strings.Repeat("a", MaxFileBytes)
	for _, c := range []struct{ name, text, want string }{
		{"deep", deep, "x.yaml:6:50: nested too deeply"},
		{"wide", wide, fmt.Sprintf("too many keys and values: at most %d", maxNodes)},
		{"patterns", patterns, "more than 256 patterns of hosts and ports"},
		{"list", impairs, "x.yaml:7:1: impair: 65 entries: at most 64"},
		{"errors", wrongs, "x.yaml:56: 30 more errors"},
		{"large", large, "x.yaml:1: the file is too large: a scenario has at most 128KiB"},
	} {
		_, err := Parse("x.yaml", []byte(c.text))
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %.300v, want %q in it", c.name, err, c.want)
		}
	}
}

func TestLoadChecksFileName(t *testing.T) {
	fsys := fstest.MapFS{
		"dir/x.yaml": {Data: []byte(small)},
		"dir/y.yaml": {Data: []byte(small)},
	}
	s, err := Load(fsys, "dir/x.yaml")
	if err != nil || s.Name != "x" {
		t.Fatalf("Load = %+v, %v", s, err)
	}
	_, err = Load(fsys, "dir/y.yaml")
	if want := "dir/y.yaml:2:7: name: x in a file called y.yaml: give both the same name"; err == nil || err.Error() != want {
		t.Errorf("Load = %v, want %s", err, want)
	}
	if _, err := Load(fsys, "dir/z.yaml"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("Load of no file = %v, want ErrNotExist", err)
	}
}

// Errors of Errorf look like those of the loader.
func TestErrorfHasPosition(t *testing.T) {
	s := parseSmall(t, "nic:\n  defects: [NoCongestion, Levitate]\n")
	unknown := errors.New("no such defect")
	for _, c := range []struct{ key, want string }{
		{"nic.defects[1]", "x.yaml:7:27: nic.defects[1]: no such defect"},
		{"nic.defects[9]", "x.yaml:7:12: nic.defects[9]: no such defect"},
		{"nic.icrc", "x.yaml:7:3: nic.icrc: no such defect"},
		{"expect.lost.max", "x.yaml:1: expect.lost.max: no such defect"},
	} {
		err := s.Errorf(c.key, "%w", unknown)
		if err.Error() != c.want || !errors.Is(err, unknown) {
			t.Errorf("Errorf(%s) = %q, want %q", c.key, err, c.want)
		}
	}
	made := &Scenario{Name: "made"}
	if got, want := made.Errorf("nic.defects[0]", "no").Error(), "made: nic.defects[0]: no"; got != want {
		t.Errorf("without a file: %q, want %q", got, want)
	}
}

// checkRoundTrip writes a scenario, reads it, and compares the two.
func checkRoundTrip(t *testing.T, s *Scenario) {
	t.Helper()
	text, err := s.Marshal()
	if err != nil {
		t.Fatalf("%s: %v", s.Name, err)
	}
	back, err := Parse("again.yaml", text)
	if err != nil {
		t.Fatalf("%v, in the output of Marshal:\n%s", err, text)
	}
	a, b := *s, *back
	a.source, b.source = source{}, source{}
	if !reflect.DeepEqual(a, b) {
		t.Fatalf("%+v was written as\n%s\nand read as %+v", a, text, b)
	}
	twice, err := back.Marshal()
	if err != nil || string(twice) != string(text) {
		t.Fatalf("written once:\n%s\nand again:\n%s (%v)", text, twice, err)
	}
}

func TestMarshalRoundTrip(t *testing.T) {
	all := must.Get(Builtin())(t)
	for _, s := range append(all, everyKey(t), everyKeyOfExperiments(t)) {
		checkRoundTrip(t, s)
	}
}

func TestMarshalIsCanonical(t *testing.T) {
	for name, s := range map[string]*Scenario{"every-key": everyKey(t), "every-key-experiment": everyKeyOfExperiments(t)} {
		text := must.Get(s.Marshal())(t)
		compareGolden(t, "testdata/good/"+name+".canonical", text)
	}
}

func everyKey(t *testing.T) *Scenario {
	t.Helper()
	s := must.Get(Parse("every-key.yaml", readFile(t, "testdata/good/every-key.yaml")))(t)
	return s
}

// everyKeyOfExperiments has the keys that everyKey has not.
func everyKeyOfExperiments(t *testing.T) *Scenario {
	t.Helper()
	s := must.Get(Parse("every-key-experiment.yaml", readFile(t, "testdata/good/every-key-experiment.yaml")))(t)
	return s
}

// The examples have every key of the types, therefore the tests above cover all of them.
func TestExamplesHaveEveryKey(t *testing.T) {
	used := map[string]bool{}
	for _, s := range []*Scenario{everyKey(t), everyKeyOfExperiments(t)} {
		for key := range s.source.positions {
			used[key[strings.LastIndexByte(key, '.')+1:]] = true
		}
	}
	var visit func(reflect.Type)
	seen := map[reflect.Type]bool{}
	visit = func(typ reflect.Type) {
		switch typ.Kind() {
		case reflect.Pointer, reflect.Slice, reflect.Map:
			visit(typ.Elem())
		case reflect.Struct:
			if seen[typ] {
				return
			}
			seen[typ] = true
			for _, f := range fieldsOf(typ) {
				if !used[f.name] {
					t.Errorf("no %s in testdata/good/every-key*.yaml", f.name)
				}
				visit(f.typ)
			}
		}
	}
	visit(reflect.TypeFor[Scenario]())
}

func TestExpectOnMergesTier(t *testing.T) {
	s := everyKey(t)
	sim, ns := s.ExpectOn(Sim), s.ExpectOn(NetNS)
	switch {
	case *sim.Lost.Max != 0 || sim.Lost.Min != nil || *ns.Lost.Max != 5:
		t.Errorf("lost: %+v in sim, %+v in netns", sim.Lost, ns.Lost)
	case sim.Delivered != "exactly-once" || ns.Delivered != "at-most-once":
		t.Errorf("delivered: %s in sim, %s in netns", sim.Delivered, ns.Delivered)
	case sim.MaxTime != 9500*time.Millisecond || ns.MaxTime != 10*time.Second:
		t.Errorf("max_time: %v in sim, %v in netns", sim.MaxTime, ns.MaxTime)
	case sim.In != nil:
		t.Error("ExpectOn returns In")
	}
}

func TestRangeContains(t *testing.T) {
	two, four := uint64(2), uint64(4)
	for _, c := range []struct {
		r    Range
		n    uint64
		want bool
	}{
		{Range{}, 9, true},
		{Range{Min: &two}, 1, false},
		{Range{Min: &two}, 2, true},
		{Range{Max: &four}, 4, true},
		{Range{Max: &four}, 5, false},
		{Range{&two, &four}, 3, true},
	} {
		if got := c.r.Contains(c.n); got != c.want {
			t.Errorf("%+v contains %d: %v, want %v", c.r, c.n, got, c.want)
		}
	}
}

// A parsed scenario survives Marshal and Parse, the schema accepts it, and no input makes
// the loader fail.
func FuzzParse(f *testing.F) {
	for _, pattern := range []string{"*.yaml", "testdata/good/*.yaml", "testdata/bad/*.yaml"} {
		files := must.Get(filepath.Glob(pattern))(f)
		for _, file := range files {
			f.Add(readFile(f, file))
		}
	}
	schema := compileSchema(f)
	f.Fuzz(func(t *testing.T, data []byte) {
		began := time.Now()
		s, err := Parse("fuzz.yaml", data)
		if took := time.Since(began); took > 10*time.Second {
			t.Errorf("%v to read %d bytes", took, len(data))
		}
		if err != nil {
			var all Errors
			if !errors.As(err, &all) || len(all) == 0 || len(all) > maxErrors+1 {
				t.Fatalf("the error is %T: %v", err, err)
			}
			return
		}
		checkRoundTrip(t, s)
		if err := validate(schema, data); err != nil {
			t.Errorf("the loader accepts it, the schema says %v", err)
		}
	})
}
