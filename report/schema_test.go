package report_test

import (
	"bytes"
	"encoding/json"
	"flag"
	"reflect"
	"strings"
	"testing"

	"github.com/invopop/jsonschema"
	validator "github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/fabrictest/fabrictest/internal/must"
	"github.com/fabrictest/fabrictest/internal/testutil"
	"github.com/fabrictest/fabrictest/report"
)

var update = flag.Bool("update", false, "rewrite schema.json and the golden files in testdata")

var document = testutil.Document{
	Value: &report.Run{}, Version: report.Version, ID: "https://github.com/fabrictest/fabrictest/report/schema.json",
	Title:    "result.json: what a run of fabrictest leaves behind",
	Enums:    map[reflect.Type]any{reflect.TypeFor[report.Verdict](): report.Verdicts()},
	Packages: []string{".", "../netns/topology"},
}

func TestSchemaMatchesTypes(t *testing.T) {
	text := must.Get(json.MarshalIndent(document.Schema(t), "", "  "))(t)
	text = append(text, '\n')
	testutil.Golden(t, "schema.json", text, *update)
	if !*update && !bytes.Equal(report.Schema(), text) {
		t.Error("Schema() is not the file")
	}
}

// TestSchemaDescribesKeys: a key explains itself, or its name does. Those whose
// names do are few, and listed.
func TestSchemaDescribesKeys(t *testing.T) {
	plain := "started machine tags checks links ranks faults host rank latency samples marks reconnects" // their type or name says it all
	s := document.Schema(t)
	check := func(where string, s *jsonschema.Schema) {
		for k := s.Properties.Oldest(); k != nil; k = k.Next() {
			if k.Value.Description == "" && !strings.Contains(" "+plain+" ", " "+k.Key+" ") {
				t.Errorf("%s.%s has no description: write a comment", where, k.Key)
			}
		}
	}
	check("run", s)
	for _, name := range []string{"result", "check", "rank", "sample", "mark", "fault", "file"} {
		check(name, s.Definitions[name])
	}
}

func TestResultsAreValid(t *testing.T) {
	t.Parallel()
	s := testutil.CompileSchema(t, report.Schema())
	for name, run := range map[string]*report.Run{"everything": sampleRun(), "hostile": hostileRun(), "empty": {}} {
		// A validator takes its time with samples, and they are all alike.
		for i := range run.Scenarios {
			for k := range run.Scenarios[i].Ranks {
				r := &run.Scenarios[i].Ranks[k]
				r.Samples = r.Samples[:min(2, len(r.Samples))]
			}
		}
		doc := must.Get(validator.UnmarshalJSON(bytes.NewReader(written(t, run))))(t)
		if err := s.Validate(doc); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestSchemaRejectsWhatReadRejects: neither is laxer than the other.
func TestSchemaRejectsWhatReadRejects(t *testing.T) {
	s := testutil.CompileSchema(t, report.Schema())
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
	must.Do(t, report.Write(&b, run))
	if !json.Valid(b.Bytes()) {
		t.Fatal("not JSON")
	}
	return b.Bytes()
}
