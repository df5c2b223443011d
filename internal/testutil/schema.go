package testutil

import (
	"bytes"
	"encoding"
	"encoding/json"
	"math"
	"os"
	"reflect"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/invopop/jsonschema"
	validator "github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/fabrictest/fabrictest/internal/must"
)

// Golden fails the test if the file does not contain got. With update it writes got to it first.
func Golden(t *testing.T, file string, got []byte, update bool) {
	t.Helper()
	if update {
		must.Do(t, os.WriteFile(file, got, 0o666))
	}
	want := must.Get(os.ReadFile(file))(t)
	if !bytes.Equal(got, want) {
		t.Errorf("%s differs from the generated text\n%s\nIf the change is intended, repeat the test with -update", file, got)
	}
}

// Document is a kind of JSON document whose schema is generated from a Go type.
type Document struct {
	Value    any // a value of the type
	ID       string
	Title    string
	Version  int                  // the value of the key version
	Enums    map[reflect.Type]any // values of string types, as slices
	Packages []string             // folders with the sources of the types
}

// Schema generates the JSON schema of the document. The descriptions in it are the comments of
// fields in the Go sources.
func (d Document) Schema(t *testing.T) *jsonschema.Schema {
	t.Helper()
	documentPkg := reflect.TypeOf(d.Value).Elem().PkgPath()
	r := jsonschema.Reflector{ExpandedStruct: true, Anonymous: true, Mapper: d.scalar}
	r.Namer = func(in reflect.Type) string {
		if in.PkgPath() == documentPkg {
			return strings.ToLower(in.Name())
		}
		return strings.ToLower(strings.ReplaceAll(in.String(), ".", "_"))
	}
	for _, dir := range d.Packages {
		must.Do(t, r.AddGoComments(documentPkg, dir))
	}
	r.LookupComment = func(in reflect.Type, field string) string {
		if field == "" {
			return "" // the reflector then takes the first sentence of the type's comment
		}
		text := strings.Join(strings.Fields(r.CommentMap[in.PkgPath()+"."+in.Name()+"."+field]), " ")
		switch f, _ := in.FieldByName(field); {
		case f.Type == duration || f.Type == reflect.PointerTo(duration):
			text = strings.TrimSpace(text + " (in nanoseconds)")
		case text == "" && d.Enums[f.Type] != nil:
			text = r.CommentMap[f.Type.PkgPath()+"."+f.Type.Name()]
		}
		return text
	}
	s := r.Reflect(d.Value)
	s.ID, s.Title = jsonschema.ID(d.ID), d.Title
	if v, ok := s.Properties.Get("version"); ok {
		v.Const = d.Version
	}
	return s
}

var duration = reflect.TypeFor[time.Duration]()

// scalar returns the schema of an enum in d.Enums, of a type that is encoded as text, or of an
// unsigned integer. It returns nil for other types, whose schema follows from reflection. So does
// that of time.Time, with the format date-time.
func (d Document) scalar(t reflect.Type) *jsonschema.Schema {
	switch values := reflect.ValueOf(d.Enums[t]); {
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

// CompileSchema returns a validator for a JSON schema, given as its text.
func CompileSchema(t *testing.T, text []byte) *validator.Schema {
	t.Helper()
	doc := must.Get(validator.UnmarshalJSON(bytes.NewReader(text)))(t)
	c := validator.NewCompiler()
	c.AssertFormat()
	must.Do(t, c.AddResource("schema.json", doc))
	s := must.Get(c.Compile("schema.json"))(t)
	return s
}
