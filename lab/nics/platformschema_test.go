package nics

import (
	"bytes"
	"encoding/json"
	"flag"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"reflect"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"go.yaml.in/yaml/v3"

	"github.com/fabrictest/fabrictest/internal/must"
)

var update = flag.Bool("update", false, "rewrite platforms/schema.json")

// platformFileSchema generates the schema of platforms from platformFile: keys from the tags,
// descriptions from the comments of fields. Package scenarios has sections and units that
// platforms have not.
func platformFileSchema(t *testing.T) []byte {
	comments := map[string]string{} // by "Type.Field"
	f := must.Get(parser.ParseFile(token.NewFileSet(), "platform.go", nil, parser.ParseComments))(t)
	ast.Inspect(f, func(n ast.Node) bool {
		if spec, ok := n.(*ast.TypeSpec); ok {
			if st, ok := spec.Type.(*ast.StructType); ok {
				for _, field := range st.Fields.List {
					for _, name := range field.Names {
						comments[spec.Name.Name+"."+name.Name] = strings.Join(strings.Fields(field.Doc.Text()), " ")
					}
				}
			}
		}
		return true
	})
	type object = map[string]any
	var of func(t reflect.Type) object
	of = func(typ reflect.Type) object {
		switch typ.Kind() {
		case reflect.Pointer:
			return of(typ.Elem())
		case reflect.Slice:
			return object{"type": "array", "items": of(typ.Elem())}
		case reflect.String:
			return object{"type": "string"}
		case reflect.Bool:
			return object{"type": "boolean"}
		case reflect.Float64:
			return object{"type": "number", "minimum": 0, "maximum": 1e12}
		case reflect.Int:
			return object{"type": "integer", "minimum": 0}
		}
		properties := object{}
		for field := range typ.Fields() {
			o := of(field.Type)
			what := comments[typ.Name()+"."+field.Name]
			if what == "" {
				t.Errorf("%s.%s has no comment", typ.Name(), field.Name)
			}
			o["description"] = strings.Replace(what, field.Name, field.Tag.Get("yaml"), 1)
			properties[field.Tag.Get("yaml")] = o
		}
		return object{"type": "object", "properties": properties, "additionalProperties": false}
	}
	root := of(reflect.TypeFor[platformFile]())
	root["$schema"] = "https://json-schema.org/draft/2020-12/schema"
	root["title"] = "fabrictest platform, version 1"
	root["required"] = []string{"version", "name", "title", "provider", "parameters"}
	parameter := root["properties"].(object)["parameters"].(object)["items"].(object)
	parameter["required"] = []string{"name", "value", "source"}
	parameter["properties"].(object)["name"].(object)["enum"] = ParameterNames()
	root["properties"].(object)["base"].(object)["items"].(object)["required"] = []string{"figure", "source"}
	return append(must.Get(json.MarshalIndent(root, "", "  "))(t), '\n')
}

func TestPlatformSchemaFollowsTypes(t *testing.T) {
	made := platformFileSchema(t)
	if *update {
		must.Do(t, os.WriteFile("platforms/schema.json", made, 0o644))
	} else if !bytes.Equal(PlatformSchema(), made) {
		t.Error("platforms/schema.json differs; run go test -update -run Schema ./lab/nics")
	}
	c := jsonschema.NewCompiler()
	must.Do(t, c.AddResource("schema.json", must.Get(jsonschema.UnmarshalJSON(bytes.NewReader(made)))(t)))
	schema := must.Get(c.Compile("schema.json"))(t)
	validate := func(text []byte) error {
		var v any
		must.Do(t, yaml.Unmarshal(text, &v))
		return schema.Validate(must.Get(jsonschema.UnmarshalJSON(bytes.NewReader(must.Get(json.Marshal(v))(t))))(t))
	}
	for _, name := range PlatformNames() {
		if err := validate(must.Get(platformFiles.ReadFile("platforms/" + name + ".yaml"))(t)); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	for _, change := range []string{"title: A => titel: A", "host.post_ns => host.pots_ns", "value: 50, => ", "12.8 => -1"} {
		from, to, _ := strings.Cut(change, " => ")
		if validate([]byte(strings.Replace(smallPlatform, from, to, 1))) == nil {
			t.Errorf("the schema accepts %s", change)
		}
	}
}

// Every parameter of a kind is counted, and the rows are printed with their sources.
func TestPlatformsAreListed(t *testing.T) {
	all := must.Get(ListPlatforms())(t)
	for _, s := range all {
		p := must.Get(LoadPlatform(s.Name))(t)
		if s.Published+s.Fitted+s.Assumed != len(p.Parameters) || s.Title == "" {
			t.Errorf("%+v", s)
		}
		var b bytes.Buffer
		rows := p.Rows()
		must.Do(t, rows.Write(&b))
		for _, row := range p.Parameters {
			if !strings.Contains(b.String(), row.Source) {
				t.Errorf("%s: %s has no source in\n%s", s.Name, row.Name, &b)
			}
		}
	}
	var b bytes.Buffer
	must.Do(t, WritePlatforms(&b, all))
	if !strings.Contains(b.String(), "r805-iwarp-ne020") {
		t.Error(b.String())
	}
}

// A fitted parameter names a figure of the base that is fitted.
func TestFittedParametersNameTheirFigure(t *testing.T) {
	for _, name := range PlatformNames() {
		p := must.Get(LoadPlatform(name))(t)
		for _, row := range p.Parameters {
			figure, fitted := strings.CutPrefix(row.Source, "fitted: ")
			found := false
			for _, b := range p.Base {
				found = found || b.Fitted && strings.HasPrefix(b.Figure, figure)
			}
			if fitted && !found {
				t.Errorf("%s: %s is fitted to %q, which is not in the base", name, row.Name, figure)
			}
		}
	}
}
