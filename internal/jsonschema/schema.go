// Package jsonschema generates the JSON schema (draft 2020-12) of a Go type, for file
// formats that are defined by Go types. The schemas in the tree are golden files that
// tests compare and update.
//
//	src, err := jsonschema.ReadSource(".", "workload")
//	g := jsonschema.Generator{Tag: "yaml", Source: src, Types: map[reflect.Type]jsonschema.Schema{
//		reflect.TypeFor[Percent](): {Type: "string", Pattern: `^[0-9.]+%$`},
//	}}
//	schema, err := g.Generate(reflect.TypeFor[Scenario]())
//	text, err := schema.Text()
//
// Descriptions are doc comments and enumerations are constants, both read from the source
// code (Source). Types and Refine override schemas of types and fields. The package is
// for tests and generators only. Its values are not for concurrent use.
package jsonschema

import (
	"bytes"
	"encoding/json"
	"fmt"
)

// Draft is the $schema of generated schemas.
const Draft = "https://json-schema.org/draft/2020-12/schema"

// Schema is a JSON schema with the keywords that this project uses, in output order.
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

// Properties are named schemas in declaration order.
type Properties []Property

// Property is a named schema.
type Property struct {
	Name   string
	Schema *Schema
}

// Get returns the schema of a property, or nil.
func (p Properties) Get(name string) *Schema {
	for i := range p {
		if p[i].Name == name {
			return p[i].Schema
		}
	}
	return nil
}

// MarshalJSON encodes the properties as an object, in order.
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

// appendJSON encodes v without escaping < and >.
func appendJSON(b *bytes.Buffer, v any) error {
	e := json.NewEncoder(b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return err
	}
	b.Truncate(b.Len() - 1) // the newline that Encode adds
	return nil
}

// Text returns the schema as indented JSON.
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
