package report_test

import (
	"bytes"
	"encoding"
	"encoding/json"
	"math"
	"reflect"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/invopop/jsonschema"
	validator "github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/fabrictest/fabrictest/internal/must"
	"github.com/fabrictest/fabrictest/internal/testutil"
	"github.com/fabrictest/fabrictest/report"
	"github.com/fabrictest/fabrictest/report/conform"
)

// documents are the kinds of documents with a generated schema.
var documents = []document{
	{
		file: "schema.json", value: &report.Run{}, version: report.Version, id: "https://github.com/fabrictest/fabrictest/report/schema.json",
		title:    "result.json: what a run of fabrictest leaves behind",
		enums:    map[reflect.Type]any{reflect.TypeFor[report.Verdict](): report.Verdicts()},
		packages: []string{".", "../netns/topology"},
	},
	{
		file: "conform/schema.json", value: &conform.Run{}, version: conform.Version, id: "https://github.com/fabrictest/fabrictest/report/conform/schema.json",
		title:    "conformance.json: the results of a conformance run",
		enums:    map[reflect.Type]any{reflect.TypeFor[conform.Verdict](): conform.Verdicts()},
		packages: []string{"conform", "."},
	},
}

// The schema files are those generated from the types. -update writes them.
func TestSchemasMatchTypes(t *testing.T) {
	for i := range documents {
		text := must.Get(json.MarshalIndent(documents[i].schema(t), "", "  "))(t)
		testutil.Golden(t, documents[i].file, append(text, '\n'), *update)
	}
}

// TestSchemaDescribesKeys: every key has a description, except for a few with plain names.
func TestSchemaDescribesKeys(t *testing.T) {
	plain := "started machine tags checks links ranks faults host rank latency samples marks reconnects" // need no description
	s := documents[0].schema(t)
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

// document is a kind of JSON document whose schema is generated from a Go type.
type document struct {
	file     string // of the schema
	value    any    // a value of the type
	id       string
	title    string
	version  int                  // the value of the key version
	enums    map[reflect.Type]any // values of string types, as slices
	packages []string             // folders with the sources of the types
}

// schema generates the JSON schema of the document. The descriptions in it are the comments of
// fields in the Go sources.
func (d *document) schema(t *testing.T) *jsonschema.Schema {
	t.Helper()
	documentPkg := reflect.TypeOf(d.value).Elem().PkgPath()
	r := jsonschema.Reflector{ExpandedStruct: true, Anonymous: true, Mapper: d.scalar}
	r.Namer = func(in reflect.Type) string {
		if in.PkgPath() == documentPkg {
			return strings.ToLower(in.Name())
		}
		return strings.ToLower(strings.ReplaceAll(in.String(), ".", "_"))
	}
	for _, dir := range d.packages {
		must.Do(t, r.AddGoComments(reflect.TypeFor[report.Run]().PkgPath(), dir))
	}
	r.LookupComment = func(in reflect.Type, field string) string {
		if field == "" {
			return "" // the reflector then takes the first sentence of the type's comment
		}
		text := strings.Join(strings.Fields(r.CommentMap[in.PkgPath()+"."+in.Name()+"."+field]), " ")
		switch f, _ := in.FieldByName(field); {
		case f.Type == duration || f.Type == reflect.PointerTo(duration):
			text = strings.TrimSpace(text + " (in nanoseconds)")
		case text == "" && d.enums[f.Type] != nil:
			text = r.CommentMap[f.Type.PkgPath()+"."+f.Type.Name()]
		}
		return text
	}
	s := r.Reflect(d.value)
	s.ID, s.Title = jsonschema.ID(d.id), d.title
	if v, ok := s.Properties.Get("version"); ok {
		v.Const = d.version
	}
	return s
}

var duration = reflect.TypeFor[time.Duration]()

// scalar returns the schema of an enum in d.enums, of a type that is encoded as text, or of an
// unsigned integer. It returns nil for other types, whose schema follows from reflection. So does
// that of time.Time, with the format date-time.
func (d *document) scalar(t reflect.Type) *jsonschema.Schema {
	switch values := reflect.ValueOf(d.enums[t]); {
	case values.IsValid():
		s := &jsonschema.Schema{Type: "string"}
		for i := range values.Len() {
			s.Enum = append(s.Enum, values.Index(i).Interface())
		}
		return s
	case t.Implements(reflect.TypeFor[encoding.TextMarshaler]()) && t != reflect.TypeFor[time.Time]():
		return &jsonschema.Schema{Type: "string"}
	case t.Kind() >= reflect.Uint && t.Kind() <= reflect.Uint64:
		return &jsonschema.Schema{Type: "integer", Minimum: "0", Maximum: json.Number(strconv.FormatUint(math.MaxUint64>>(64-t.Bits()), 10))}
	}
	return nil
}

// compileSchema returns a validator for a JSON schema, given as its text.
func compileSchema(t *testing.T, text []byte) *validator.Schema {
	t.Helper()
	doc := must.Get(validator.UnmarshalJSON(bytes.NewReader(text)))(t)
	c := validator.NewCompiler()
	c.AssertFormat()
	must.Do(t, c.AddResource("schema.json", doc))
	s := must.Get(c.Compile("schema.json"))(t)
	return s
}
