package scenarios

import (
	"encoding/json"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/fabrictest/fabrictest/internal/must"
)

// object is a part of a JSON schema. Its keys are written in alphabetical order.
type object = map[string]any

// generator generates the schema from the types of the loader: limits from the tags,
// descriptions from the comments of the fields.
type generator struct {
	comments map[string]string // by "Type" and "Type.Field"
	defs     object
}

func generateSchema(t testing.TB) []byte {
	g := generator{comments: comments(t, "scenario.go", "faults.go", "expect.go", "experiment.go", "workload/config.go"), defs: object{}}
	g.comments["Config"] = "What the ranks do. Which keys count depends on kind."
	root := g.section(reflect.TypeFor[Scenario]())
	root["$schema"] = "https://json-schema.org/draft/2020-12/schema"
	root["$id"] = "https://github.com/fabrictest/fabrictest/scenarios/schema.json"
	root["title"] = "fabrictest scenario, version 1"
	sections := object{}
	for _, key := range []string{"fabric", "nic", "impair", "events", "faults", "workload", "expect"} {
		sections[key] = false
	}
	root["if"], root["then"] = object{"required": []string{"experiment"}}, object{"properties": sections}
	root["else"] = object{"required": []string{"fabric", "workload"}}
	root["$defs"] = g.defs
	b := must.Get(json.MarshalIndent(root, "", "  "))(t)
	return append(b, '\n')
}

// section describes a struct.
func (g *generator) section(t reflect.Type) object {
	properties, required := object{}, []string{}
	for _, f := range fieldsOf(t) {
		properties[f.name] = g.described(f)
		if f.required {
			required = append(required, f.name)
		}
	}
	o := object{"type": "object", "properties": properties, "additionalProperties": false}
	if len(required) > 0 {
		o["required"] = required
	}
	o["description"] = inKeys(g.comments[t.Name()], t)
	return o
}

func (g *generator) described(f field) object {
	o := g.value(f.typ, f.tag)
	if f.goName == "Errors" || f.goName == "AllowedErrors" {
		o["additionalProperties"] = object{"type": "array", "minItems": 1, "items": object{"enum": ErrorNames()}}
	}
	c := g.comments[f.owner.Name()+"."+f.goName]
	if doc := f.tag.Get("doc"); doc != "" {
		c = doc
	}
	if c != "" {
		o["description"] = inKeys(c, f.owner)
	}
	return o
}

var goWord = regexp.MustCompile(`[A-Z][A-Za-z0-9]*`)

// inKeys replaces the Go names of fields by their keys. An abbreviation such as MTU is
// replaced only at the start of the text.
func inKeys(text string, t reflect.Type) string {
	first := true
	return goWord.ReplaceAllStringFunc(text, func(w string) string {
		for _, f := range fieldsOf(t) {
			if f.goName == w && (first || w[1:] == strings.ToLower(w[1:]) || strings.Contains(f.name, "_")) {
				w = f.name
				break
			}
		}
		first = false
		return w
	})
}

// value describes the values of a key.
func (g *generator) value(t reflect.Type, tag reflect.StructTag) object {
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	switch formOf(t, tag) {
	case formSection:
		if _, made := g.defs[t.Name()]; !made {
			g.defs[t.Name()] = nil // in progress: the type may contain itself
			g.defs[t.Name()] = g.section(t)
		}
		return object{"$ref": "#/$defs/" + t.Name()}
	case formMap:
		o := object{"type": "object", "additionalProperties": g.value(t.Elem(), "")}
		if words := enumOf(tag); len(words) > 0 {
			o["propertyNames"] = object{"enum": words}
		}
		return o
	case formList:
		o := object{"type": "array", "items": g.value(t.Elem(), tag)}
		if most, err := strconv.Atoi(tag.Get("most")); err == nil {
			o["maxItems"] = most
		}
		return o
	case formText:
		o := object{"type": "string"}
		if words := enumOf(tag); len(words) > 0 {
			o["enum"] = words
		}
		if p := tag.Get("pattern"); p != "" {
			o["pattern"] = p
		}
		return o
	case formBool:
		return object{"type": "boolean"}
	case formSize:
		return object{"anyOf": []object{bounds(object{"type": "integer"}, t, tag), {"type": "string", "pattern": bytesPattern}}}
	case formPercent:
		return object{"type": "string", "pattern": percentPattern}
	case formRate:
		return object{"type": "string", "pattern": ratePattern}
	case formDuration:
		return object{"type": "string", "pattern": durationPattern}
	case formDecimal:
		return object{"type": "number", "minimum": -1e12, "maximum": 1e12}
	}
	return bounds(object{"type": "integer"}, t, tag)
}

// bounds adds the limits of an integer.
func bounds(o object, t reflect.Type, tag reflect.StructTag) object {
	if least, most, ok := rangeOf(tag); ok {
		o["minimum"], o["maximum"] = least, most
	} else if t.Kind() >= reflect.Uint && t.Kind() <= reflect.Uint64 {
		o["minimum"] = 0
	}
	return o
}

// comments returns the comments of types and fields in Go files.
func comments(t testing.TB, files ...string) map[string]string {
	all := map[string]string{}
	for _, name := range files {
		f := must.Get(parser.ParseFile(token.NewFileSet(), name, nil, parser.ParseComments))(t)
		ast.Inspect(f, func(n ast.Node) bool {
			d, ok := n.(*ast.GenDecl)
			if !ok || d.Tok != token.TYPE {
				return true
			}
			for _, s := range d.Specs {
				spec := s.(*ast.TypeSpec)
				all[spec.Name.Name] = prose(d.Doc)
				if st, ok := spec.Type.(*ast.StructType); ok {
					maps.Copy(all, fieldComments(spec.Name.Name, st))
				}
			}
			return true
		})
	}
	return all
}

// fieldComments returns the comments of the fields of a struct. A comment above several
// fields without a blank line between them applies to all.
func fieldComments(typ string, st *ast.StructType) map[string]string {
	all, above := map[string]string{}, ""
	var end token.Pos
	for _, f := range st.Fields.List {
		text := prose(f.Doc)
		if text == "" {
			text = prose(f.Comment)
		}
		if text == "" && f.Pos()-end < 8 { // a line break and a tab, no blank line
			text = above
		}
		for _, n := range f.Names {
			all[typ+"."+n.Name] = text
		}
		above, end = text, f.End()
	}
	return all
}

// prose returns a comment on one line.
func prose(c *ast.CommentGroup) string {
	return strings.Join(strings.Fields(c.Text()), " ")
}

// undescribed returns the keys without a comment.
func undescribed(schema object, at string) (all []string) {
	properties, _ := schema["properties"].(object)
	for _, key := range slices.Sorted(maps.Keys(properties)) {
		if properties[key].(object)["description"] == nil {
			all = append(all, at+"."+key)
		}
	}
	defs, _ := schema["$defs"].(object)
	for _, name := range slices.Sorted(maps.Keys(defs)) {
		all = append(all, undescribed(defs[name].(object), name)...)
	}
	return all
}
