package jsonschema

import (
	"encoding"
	"fmt"
	"math"
	"reflect"
	"strings"
	"time"
)

// Generator generates schemas of types.
type Generator struct {
	// Tag is the struct tag with the names of properties: json or yaml.
	Tag string
	// Source provides descriptions and enumerations; it may be nil.
	Source *Source
	// Types overrides the schemas of types, such as those with custom marshalling.
	Types map[reflect.Type]Schema
	// Refine may change the schema of a property; path is the Go field, as in
	// "report.Run.Version".
	Refine func(path string, s *Schema)
}

// Generate returns the schema of a struct type. Named structs become definitions. Unknown
// properties are not allowed, and fields without omitempty or omitzero are required.
func (g *Generator) Generate(t reflect.Type) (*Schema, error) {
	if t.Kind() != reflect.Struct {
		return nil, fmt.Errorf("jsonschema: %v is not a struct", t)
	}
	r := &run{Generator: g, known: map[reflect.Type]string{}}
	root, err := r.object(t)
	if err != nil {
		return nil, err
	}
	root.Dialect = Draft
	root.Defs = r.defs
	return root, nil
}

// run is the state of a Generate call.
type run struct {
	*Generator
	known map[reflect.Type]string
	defs  Properties
}

func (r *run) of(t reflect.Type) (*Schema, error) {
	if s, ok := r.Types[t]; ok {
		return &s, nil
	}
	if s, ok := builtIn(t); ok {
		return &s, nil
	}
	switch t.Kind() {
	case reflect.Pointer:
		return r.of(t.Elem())
	case reflect.Struct:
		return r.define(t)
	case reflect.Slice, reflect.Array:
		items, err := r.of(t.Elem())
		return &Schema{Type: "array", Items: items}, err
	case reflect.Map:
		if t.Key().Kind() != reflect.String {
			return nil, fmt.Errorf("jsonschema: the keys of %v are not strings", t)
		}
		value, err := r.of(t.Elem())
		return &Schema{Type: "object", AdditionalProperties: value}, err
	case reflect.String:
		s := &Schema{Type: "string"}
		if r.Source != nil {
			s.Enum = r.Source.values[t.String()]
			s.Description = r.Source.types[t.String()]
		}
		return s, nil
	default:
		return nil, fmt.Errorf("jsonschema: %v has no schema: name one in Types", t)
	}
}

var textMarshaler = reflect.TypeFor[encoding.TextMarshaler]()

// builtIn returns the schema of types that do not depend on the Generator.
func builtIn(t reflect.Type) (Schema, bool) {
	switch {
	case t == reflect.TypeFor[time.Time]():
		return Schema{Type: "string", Format: "date-time"}, true
	case t.Implements(textMarshaler):
		return Schema{Type: "string"}, true
	}
	switch t.Kind() {
	case reflect.Bool:
		return Schema{Type: "boolean"}, true
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		return Schema{Type: "integer"}, true
	case reflect.Uint, reflect.Uint64:
		return Schema{Type: "integer", Minimum: 0, Maximum: uint64(math.MaxUint64)}, true
	case reflect.Uint8, reflect.Uint16, reflect.Uint32:
		return Schema{Type: "integer", Minimum: 0, Maximum: uint64(1)<<t.Bits() - 1}, true
	case reflect.Float32, reflect.Float64:
		return Schema{Type: "number"}, true
	default:
		return Schema{}, false
	}
}

// define returns a reference to the definition of a struct, which it adds if needed.
func (r *run) define(t reflect.Type) (*Schema, error) {
	if t.Name() == "" {
		return r.object(t)
	}
	name, ok := r.known[t]
	if !ok {
		name = r.defName(t)
		r.known[t] = name
		at := len(r.defs)
		r.defs = append(r.defs, Property{Name: name})
		s, err := r.object(t)
		if err != nil {
			return nil, err
		}
		r.defs[at].Schema = s
	}
	return &Schema{Ref: "#/$defs/" + name}, nil
}

// defName returns the name of a type, with its package if the name is used already.
func (r *run) defName(t reflect.Type) string {
	name := strings.ToLower(t.Name())
	for i := range r.defs {
		if r.defs[i].Name == name {
			return strings.ToLower(strings.ReplaceAll(t.String(), ".", "_"))
		}
	}
	return name
}

func (r *run) object(t reflect.Type) (*Schema, error) {
	s := &Schema{Type: "object", AdditionalProperties: false}
	if r.Source != nil {
		s.Description = r.Source.types[t.String()]
	}
	return s, r.addFields(s, t)
}

func (r *run) addFields(s *Schema, t reflect.Type) error {
	for i := range t.NumField() {
		f := t.Field(i)
		name, optional, inline := r.key(&f)
		switch {
		case name == "-" || !f.IsExported() && !f.Anonymous:
			continue
		case inline:
			if err := r.addFields(s, f.Type); err != nil {
				return err
			}
			continue
		}
		path := t.String() + "." + f.Name
		p, err := r.of(f.Type)
		if err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
		if r.Source != nil && r.Source.fields[path] != "" {
			p.Description = r.Source.fields[path]
		}
		if r.Refine != nil {
			r.Refine(path, p)
		}
		s.Properties = append(s.Properties, Property{Name: name, Schema: p})
		if !optional {
			s.Required = append(s.Required, name)
		}
	}
	return nil
}

// key returns the property name of a field, whether it is optional, and whether its own
// fields are inlined.
func (r *run) key(f *reflect.StructField) (name string, optional, inline bool) {
	tag := f.Tag.Get(r.Tag)
	name, options, _ := strings.Cut(tag, ",")
	for o := range strings.SplitSeq(options, ",") {
		optional = optional || o == "omitempty" || o == "omitzero"
		inline = inline || o == "inline"
	}
	if r.Tag == "json" && f.Anonymous && name == "" {
		inline = true
	}
	if name == "" {
		name = f.Name
		if r.Tag == "yaml" {
			name = strings.ToLower(name)
		}
	}
	return name, optional, inline
}
