package jsonschema

import (
	"encoding/json"
	"net/netip"
	"reflect"
	"strings"
	"testing"
	"time"
)

// Colour is a hue.
type Colour string

// The colours.
const (
	Red  Colour = "red"
	Blue Colour = "blue"
)

// Shape is what the tests describe.
type Shape struct {
	// Name is how people call it.
	Name   string        `json:"name" yaml:"label"`
	Colour Colour        `json:"colour,omitempty" yaml:"colour,omitempty"`
	Inside []Shape       `json:"inside,omitempty" yaml:"inside,omitempty"`
	Near   *Point        `json:"near,omitempty" yaml:"near,omitempty"` // nil if there is none
	Count  uint8         `json:"count" yaml:"count"`
	Seen   time.Time     `json:"seen" yaml:"seen"`
	For    time.Duration `json:"for" yaml:"for"`
	Net    netip.Prefix  `json:"net" yaml:"net"`
	Tally  map[string]uint64
	Place  `yaml:",inline"`
	Secret string `json:"-" yaml:"-"`
	_      int
}

// Place is embedded.
type Place struct {
	City string `json:"city" yaml:"city"`
}

// Point has two numbers.
type Point struct{ X, Y float64 }

func generate(t *testing.T, tag string) map[string]any {
	t.Helper()
	src, err := ReadSource(".")
	if err != nil {
		t.Fatal(err)
	}
	g := Generator{Tag: tag, Source: testSource(t, src), Types: map[reflect.Type]Schema{
		reflect.TypeFor[time.Duration](): {Type: "integer", Description: "Nanoseconds."},
	}, Refine: func(path string, s *Schema) {
		if path == "jsonschema.Shape.Count" {
			s.Minimum = 1
		}
	}}
	s, err := g.Generate(reflect.TypeFor[Shape]())
	if err != nil {
		t.Fatal(err)
	}
	text, err := s.Text()
	if err != nil {
		t.Fatal(err)
	}
	var v map[string]any
	if err := json.Unmarshal(text, &v); err != nil {
		t.Fatalf("%v in\n%s", err, text)
	}
	return v
}

// testSource adds this file, which ReadSource skips as a test.
func testSource(t *testing.T, s *Source) *Source {
	t.Helper()
	if err := s.readFile("jsonschema_test.go"); err != nil {
		t.Fatal(err)
	}
	return s
}

// at follows keys into a document.
func at(t *testing.T, v any, path ...string) any {
	t.Helper()
	for _, key := range path {
		m, ok := v.(map[string]any)
		if !ok {
			t.Fatalf("%s: %v is no object", key, v)
		}
		v = m[key]
	}
	return v
}

func TestSchemaMatchesType(t *testing.T) {
	s := generate(t, "json")
	for path, want := range map[string]any{
		"$schema":                                Draft,
		"description":                            "What the tests describe.",
		"additionalProperties":                   false,
		"properties/name/description":            "How people call it.",
		"properties/name/type":                   "string",
		"properties/colour/enum":                 []any{"red", "blue"},
		"properties/colour/description":          "A hue.",
		"properties/near/$ref":                   "#/$defs/point",
		"properties/near/description":            "Nil if there is none.",
		"properties/inside/items/$ref":           "#/$defs/shape",
		"properties/count/minimum":               1.0,
		"properties/count/maximum":               255.0,
		"properties/seen/format":                 "date-time",
		"properties/for/description":             "Nanoseconds.",
		"properties/net/type":                    "string",
		"properties/city/type":                   "string",
		"properties/Tally/type":                  "object",
		"$defs/point/description":                "Point has two numbers.",
		"$defs/point/properties/X/type":          "number",
		"$defs/point/required":                   []any{"X", "Y"},
		"$defs/shape/properties/inside/type":     "array",
		"properties/Tally/additionalProperties/": nil,
	} {
		got := at(t, s, strings.Split(path, "/")...)
		if !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %v, want %v", path, got, want)
		}
	}
	want := []any{"name", "count", "seen", "for", "net", "Tally", "city"}
	if got := s["required"]; !reflect.DeepEqual(got, want) {
		t.Errorf("required %v, want %v", got, want)
	}
	for _, name := range []string{"Secret", "-", "_", "Place"} {
		if at(t, s, "properties", name) != nil {
			t.Errorf("%s is in the schema", name)
		}
	}
}

func TestYAMLTagsNameKeys(t *testing.T) {
	s := generate(t, "yaml")
	for _, name := range []string{"label", "tally", "city"} {
		if at(t, s, "properties", name) == nil {
			t.Errorf("%s is missing", name)
		}
	}
}

func TestGenerateRejectsUnsupportedTypes(t *testing.T) {
	type bad struct{ Ch chan int }
	type keyed struct{ M map[int]string }
	g := Generator{Tag: "json"}
	if _, err := g.Generate(reflect.TypeFor[bad]()); err == nil || !strings.Contains(err.Error(), "bad.Ch") {
		t.Errorf("a channel: %v", err)
	}
	if _, err := g.Generate(reflect.TypeFor[keyed]()); err == nil || !strings.Contains(err.Error(), "keyed.M") {
		t.Errorf("a map by number: %v", err)
	}
	if _, err := g.Generate(reflect.TypeFor[int]()); err == nil {
		t.Error("an int is accepted as a struct")
	}
	if _, err := ReadSource(t.TempDir()); err == nil {
		t.Error("a directory without Go files is accepted")
	}
}

func TestTextKeepsOrderAndDoesNotEscapeHTML(t *testing.T) {
	s := Schema{Type: "object", Properties: Properties{
		{Name: "z", Schema: &Schema{Description: "a < b"}}, {Name: "a", Schema: &Schema{Type: "string"}},
	}}
	text, err := s.Text()
	if err != nil {
		t.Fatal(err)
	}
	got := string(text)
	if z, a := strings.Index(got, `"z"`), strings.Index(got, `"a"`); z < 0 || a < z {
		t.Errorf("order lost:\n%s", got)
	}
	if !strings.Contains(got, "a < b") {
		t.Errorf("escaped for no reason:\n%s", got)
	}
	if s.Properties.Get("a") == nil || s.Properties.Get("b") != nil {
		t.Error("Get")
	}
}
