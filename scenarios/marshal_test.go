package scenarios

import (
	"errors"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/fabrictest/fabrictest/internal/must"
)

// checkRoundTrip writes a scenario, reads it, and compares the two.
func checkRoundTrip(t *testing.T, s *Scenario) {
	t.Helper()
	text, err := s.Marshal()
	if err != nil {
		t.Fatalf("%s: %v", s.Name, err)
	}
	back, err := Parse("again.yaml", text)
	if err != nil {
		t.Fatalf("%v, of what Marshal wrote:\n%s", err, text)
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
	for _, s := range append(all, everyKey(t)) {
		checkRoundTrip(t, s)
	}
}

func TestMarshalIsCanonical(t *testing.T) {
	text := must.Get(everyKey(t).Marshal())(t)
	compareGolden(t, "testdata/good/every-key.canonical", text)
}

func everyKey(t *testing.T) *Scenario {
	t.Helper()
	s := must.Get(Parse("every-key.yaml", readFile(t, "testdata/good/every-key.yaml")))(t)
	return s
}

// The example has every key of the types, therefore the tests above cover all of them.
func TestExampleHasEveryKey(t *testing.T) {
	used := map[string]bool{}
	for key := range everyKey(t).source.positions {
		used[key[strings.LastIndexByte(key, '.')+1:]] = true
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
					t.Errorf("no %s in testdata/good/every-key.yaml", f.name)
				}
				visit(f.typ)
			}
		}
	}
	visit(reflect.TypeFor[Scenario]())
}

func TestExpectOn(t *testing.T) {
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
		t.Error("what a tier expects still has exceptions")
	}
}

func TestRange(t *testing.T) {
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
			t.Errorf("%+v holds %d: %v, want %v", c.r, c.n, got, c.want)
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
