package scenarios

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"go.yaml.in/yaml/v3"

	"github.com/fabrictest/fabrictest/internal/must"
)

var update = flag.Bool("update", false, "rewrite schema.json and the golden files")

// compareGolden compares got with a file, or writes it with -update.
func compareGolden(t *testing.T, file string, got []byte) {
	t.Helper()
	if *update {
		must.Do(t, os.WriteFile(file, got, 0o644))
		return
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatalf("%v; run go test -update ./scenarios", err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("%s differs; run go test -update ./scenarios and look at the difference. Now:\n%s", file, got)
	}
}

func TestSchemaFollowsTypes(t *testing.T) {
	made := generateSchema(t)
	compareGolden(t, "schema.json", made)
	if missing := undescribed(parseSchema(t), "scenario"); len(missing) > 0 {
		t.Errorf("keys without a comment in the Go types: %v", missing)
	}
	if !*update && !bytes.Equal(Schema(), made) {
		t.Error("Schema() is not schema.json")
	}
}

func parseSchema(t *testing.T) (parsed object) {
	t.Helper()
	must.Do(t, json.Unmarshal(generateSchema(t), &parsed))
	return parsed
}

func compileSchema(t testing.TB) *jsonschema.Schema {
	t.Helper()
	doc := must.Get(jsonschema.UnmarshalJSON(bytes.NewReader(generateSchema(t))))(t)
	c := jsonschema.NewCompiler()
	must.Do(t, c.AddResource("schema.json", doc))
	s := must.Get(c.Compile("schema.json"))(t)
	return s
}

// validate validates a file against the schema, as an editor would.
func validate(s *jsonschema.Schema, data []byte) error {
	var v any
	if err := yaml.Unmarshal(data, &v); err != nil {
		return err
	}
	b, err := json.Marshal(v)
	if err != nil {
		return err
	}
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(b))
	if err != nil {
		return err
	}
	return s.Validate(doc)
}

// The schema and the loader must agree. Errors that involve more than one key are detected by the
// loader only; files in testdata/bad with only such errors say that in their first line.
func TestSchemaAgreesWithLoader(t *testing.T) {
	s := compileSchema(t)
	good := must.Get(filepath.Glob("*.yaml"))(t)
	more, _ := filepath.Glob("testdata/good/*.yaml")
	papers, _ := filepath.Glob("paper/*.yaml")
	for _, file := range slices.Concat(good, more, papers) {
		data := readFile(t, file)
		if err := validate(s, data); err != nil {
			t.Errorf("%s: the loader accepts it, the schema says %v", file, err)
		}
	}
	bad, err := filepath.Glob("testdata/bad/*.yaml")
	if err != nil || len(bad) == 0 {
		t.Fatal("no bad files:", err)
	}
	for _, file := range bad {
		data := readFile(t, file)
		undetectable := strings.HasPrefix(string(data), "# The schema cannot see")
		if err := validate(s, data); (err == nil) != undetectable {
			t.Errorf("%s: the schema says %v, and according to the file it cannot detect the error: %v", file, err, undetectable)
		}
	}
}

func readFile(t testing.TB, file string) []byte {
	t.Helper()
	data := must.Get(os.ReadFile(file))(t)
	return data
}
