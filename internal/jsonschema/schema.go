// Package jsonschema writes the JSON schema (draft 2020-12) of a Go type. It is
// for the files that people and other programs read and write: the types are the
// only place where the format is said, and the schema in the tree is a golden
// file that a test compares and rewrites on request.
//
//	src, err := jsonschema.ReadSource(".", "workload")
//	g := jsonschema.Generator{Tag: "yaml", Source: src, Types: map[reflect.Type]jsonschema.Schema{
//		reflect.TypeFor[Percent](): {Type: "string", Pattern: `^[0-9.]+%$`},
//	}}
//	schema, err := g.Generate(reflect.TypeFor[Scenario]())
//	text, err := schema.Text()
//
// Descriptions are the doc comments of types and fields, and the values of an
// enumeration its constants, both read from the source (Source). What reflection
// cannot know is said by Types, for a type, and Refine, for a field. The package
// belongs in tests and generators: it reads source, so nothing that is shipped
// needs it. Its values are not for concurrent use.
package jsonschema

import (
	"bytes"
	"encoding/json"
	"fmt"
)

// Draft is the dialect that schemas are written in.
const Draft = "https://json-schema.org/draft/2020-12/schema"

// Schema is a JSON schema, as far as the files of this project need one. Its
// fields are written in this order.
type Schema struct {
	Dialect              string     `json:"$schema,omitempty"`
	ID                   string     `json:"$id,omitempty"`
	Title                string     `json:"title,omitempty"`
	Description          string     `json:"description,omitempty"`
	Ref                  string     `json:"$ref,omitempty"`
	Type                 string     `json:"type,omitempty"`
	Const                any        `json:"const,omitempty"`
	Enum                 []string   `json:"enum,omitempty"`
	AnyOf                []Schema   `json:"anyOf,omitempty"`
	Format               string     `json:"format,omitempty"`
	Pattern              string     `json:"pattern,omitempty"`
	Minimum              any        `json:"minimum,omitempty"` // a number of any kind
	Maximum              any        `json:"maximum,omitempty"`
	MinLength            int        `json:"minLength,omitempty"`
	Default              any        `json:"default,omitempty"`
	Examples             []any      `json:"examples,omitempty"`
	Items                *Schema    `json:"items,omitempty"`
	MinItems             int        `json:"minItems,omitempty"`
	Properties           Properties `json:"properties,omitempty"`
	Required             []string   `json:"required,omitempty"`
	AdditionalProperties any        `json:"additionalProperties,omitempty"` // false or a *Schema
	Defs                 Properties `json:"$defs,omitempty"`
}

// Properties are named schemas in the order in which they were declared.
type Properties []Property

// Property is a named schema.
type Property struct {
	Name   string
	Schema *Schema
}

// Get returns the schema of a name, nil if there is none.
func (p Properties) Get(name string) *Schema {
	for i := range p {
		if p[i].Name == name {
			return p[i].Schema
		}
	}
	return nil
}

// MarshalJSON writes the properties as an object, in their order.
func (p Properties) MarshalJSON() ([]byte, error) {
	var b bytes.Buffer
	b.WriteByte('{')
	for i := range p {
		if i > 0 {
			b.WriteByte(',')
		}
		if err := appendJSON(&b, p[i].Name); err != nil {
			return nil, err
		}
		b.WriteByte(':')
		if err := appendJSON(&b, p[i].Schema); err != nil {
			return nil, fmt.Errorf("%s: %w", p[i].Name, err)
		}
	}
	b.WriteByte('}')
	return b.Bytes(), nil
}

// appendJSON leaves < and > as they are: a schema is read by people.
func appendJSON(b *bytes.Buffer, v any) error {
	e := json.NewEncoder(b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return err
	}
	b.Truncate(b.Len() - 1) // the line end that Encode adds
	return nil
}

// Text is the schema as a file, indented by two spaces.
func (s *Schema) Text() ([]byte, error) {
	var plain, b bytes.Buffer
	if err := appendJSON(&plain, s); err != nil {
		return nil, err
	}
	if err := json.Indent(&b, plain.Bytes(), "", "  "); err != nil {
		return nil, err
	}
	b.WriteByte('\n')
	return b.Bytes(), nil
}
