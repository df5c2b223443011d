package report_test

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	validator "github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/fabrictest/fabrictest/internal/jsonschema"
	"github.com/fabrictest/fabrictest/report"
)

var update = flag.Bool("update", false, "rewrite schema.json and the golden files in testdata")

// golden compares with a file, or writes it.
func golden(t *testing.T, file string, got []byte) {
	t.Helper()
	if *update {
		if err := os.MkdirAll(filepath.Dir(file), 0o777); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, got, 0o666); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("%s differs; it would be\n%s\nIf it should: go test ./report -update", file, got)
	}
}

func generateSchema(t *testing.T) *jsonschema.Schema {
	t.Helper()
	src, err := jsonschema.ReadSource(".", "../netns/topology")
	if err != nil {
		t.Fatal(err)
	}
	g := jsonschema.Generator{
		Tag: "json", Source: src,
		Types: map[reflect.Type]jsonschema.Schema{
			reflect.TypeFor[time.Duration](): {Type: "integer", Description: "Nanoseconds."},
		},
		Refine: func(path string, s *jsonschema.Schema) {
			if strings.HasSuffix(s.Description, ".") && s.Type == "integer" && s.Maximum == nil && s.Description != "Nanoseconds." && isDuration(path) {
				s.Description += " In nanoseconds."
			}
			if path == "report.Run.Version" {
				s.Const = report.Version
			}
		},
	}
	s, err := g.Generate(reflect.TypeFor[report.Run]())
	if err != nil {
		t.Fatal(err)
	}
	s.ID = "https://github.com/fabrictest/fabrictest/report/schema.json"
	s.Title = "result.json: what a run of fabrictest leaves behind"
	return s
}

// isDuration looks a field of this package up by its path.
func isDuration(path string) bool {
	for _, t := range []reflect.Type{
		reflect.TypeFor[report.Run](), reflect.TypeFor[report.Result](), reflect.TypeFor[report.Rank](), reflect.TypeFor[report.Latency](),
		reflect.TypeFor[report.Sample](), reflect.TypeFor[report.Mark](), reflect.TypeFor[report.Fault](),
	} {
		if name, ok := strings.CutPrefix(path, t.String()+"."); ok {
			f, _ := t.FieldByName(name)
			return f.Type == reflect.TypeFor[time.Duration]() || f.Type == reflect.TypeFor[*time.Duration]()
		}
	}
	return false
}

func TestSchemaMatchesTypes(t *testing.T) {
	text, err := generateSchema(t).Text()
	if err != nil {
		t.Fatal(err)
	}
	golden(t, "schema.json", text)
	if !*update && !bytes.Equal(report.Schema(), text) {
		t.Error("Schema() is not the file")
	}
}

// TestSchemaDescribesKeys: a key explains itself, or its name does. Those whose
// names do are few, and listed.
func TestSchemaDescribesKeys(t *testing.T) {
	plain := "started machine tags checks links ranks faults host rank latency samples marks reconnects" // their type or name says it all
	s := generateSchema(t)
	check := func(where string, p jsonschema.Properties) {
		for _, k := range p {
			if k.Schema.Description == "" && !strings.Contains(" "+plain+" ", " "+k.Name+" ") {
				t.Errorf("%s.%s has no description: write a comment", where, k.Name)
			}
		}
	}
	check("run", s.Properties)
	for _, d := range s.Defs {
		switch d.Name {
		case "result", "check", "rank", "sample", "mark", "fault", "file":
			check(d.Name, d.Schema.Properties)
		}
	}
}

func compileSchema(t *testing.T, text []byte) *validator.Schema {
	t.Helper()
	doc, err := validator.UnmarshalJSON(bytes.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	c := validator.NewCompiler()
	c.AssertFormat()
	if err := c.AddResource("result.json", doc); err != nil {
		t.Fatal(err)
	}
	s, err := c.Compile("result.json")
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestResultsAreValid(t *testing.T) {
	t.Parallel()
	s := compileSchema(t, report.Schema())
	for name, run := range map[string]*report.Run{"everything": sampleRun(), "hostile": hostileRun(), "empty": {}} {
		// A validator takes its time with samples, and they are all alike.
		for i := range run.Scenarios {
			for k := range run.Scenarios[i].Ranks {
				r := &run.Scenarios[i].Ranks[k]
				r.Samples = r.Samples[:min(2, len(r.Samples))]
			}
		}
		doc, err := validator.UnmarshalJSON(bytes.NewReader(written(t, run)))
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Validate(doc); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestSchemaRejectsWhatReadRejects: neither is laxer than the other.
func TestSchemaRejectsWhatReadRejects(t *testing.T) {
	s := compileSchema(t, report.Schema())
	for key, text := range misshapen(t) {
		doc, err := validator.UnmarshalJSON(strings.NewReader(text))
		if err != nil {
			continue // not even JSON
		}
		if s.Validate(doc) == nil && !strings.HasPrefix(key, "twice ") {
			t.Errorf("the schema takes a wrong %s", key)
		}
	}
}

func written(t *testing.T, run *report.Run) []byte {
	t.Helper()
	var b bytes.Buffer
	if err := report.Write(&b, run); err != nil {
		t.Fatal(err)
	}
	if !json.Valid(b.Bytes()) {
		t.Fatal("not JSON")
	}
	return b.Bytes()
}
