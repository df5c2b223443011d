package scenarios

import (
	"bytes"
	"encoding"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"
)

// Marshal writes the scenario as a file in one canonical form: keys in the order
// of the format, nothing that is left out anyway. Parse makes the same scenario
// of it again.
func (s *Scenario) Marshal() ([]byte, error) {
	var b bytes.Buffer
	e := yaml.NewEncoder(&b)
	e.SetIndent(2)
	if err := e.Encode(section(reflect.ValueOf(s).Elem())); err != nil {
		return nil, err
	}
	return b.Bytes(), e.Close()
}

// section is a struct as keys and values.
func section(v reflect.Value) *yaml.Node {
	n := &yaml.Node{Kind: yaml.MappingNode}
	for _, f := range fieldsOf(v.Type()) {
		value := v.FieldByIndex(f.index)
		if !f.required && (value.IsZero() || value.Kind() == reflect.Map && value.Len() == 0 || value.Kind() == reflect.Slice && value.Len() == 0) {
			continue
		}
		n.Content = append(n.Content, word("!!str", f.name), written(value, f.tag))
	}
	return n
}

// written is a value as the decoder reads it.
func written(v reflect.Value, tag reflect.StructTag) *yaml.Node {
	if v.Kind() == reflect.Pointer {
		v = v.Elem()
	}
	switch formOf(v.Type(), tag) {
	case formSection:
		n := section(v)
		if inline(n) {
			n.Style = yaml.FlowStyle
		}
		return n
	case formTable:
		return table(v)
	case formList:
		n := &yaml.Node{Kind: yaml.SequenceNode}
		for i := range v.Len() {
			n.Content = append(n.Content, written(v.Index(i), tag))
		}
		if inline(n) {
			n.Style = yaml.FlowStyle
		}
		return n
	case formText:
		n := word("!!str", v.String())
		if strings.Contains(n.Value, "\n") {
			n.Style = yaml.LiteralStyle
		}
		return n
	case formFlag:
		return word("!!bool", strconv.FormatBool(v.Bool()))
	case formSize:
		size := Bytes(v.Int()).String()
		if _, err := strconv.Atoi(size); err == nil {
			return word("!!int", size)
		}
		return word("!!str", size)
	case formShare, formRate:
		text, _ := v.Interface().(encoding.TextMarshaler).MarshalText() // cannot fail
		return word("!!str", string(text))
	case formDuration:
		return word("!!str", formatDuration(time.Duration(v.Int())))
	}
	if v.CanInt() {
		return word("!!int", strconv.FormatInt(v.Int(), 10))
	}
	return word("!!int", strconv.FormatUint(v.Uint(), 10))
}

// table is a map, in the order of its keys.
func table(v reflect.Value) *yaml.Node {
	n := &yaml.Node{Kind: yaml.MappingNode}
	keys := v.MapKeys()
	slices.SortFunc(keys, func(a, b reflect.Value) int { return strings.Compare(a.String(), b.String()) })
	for _, k := range keys {
		n.Content = append(n.Content, word("!!str", k.String()), written(v.MapIndex(k), ""))
	}
	return n
}

// inline reports whether n reads better on one line: a few words, and nothing
// with parts of its own.
func inline(n *yaml.Node) bool {
	for _, c := range n.Content {
		if c.Kind != yaml.ScalarNode {
			return false
		}
	}
	return len(n.Content) <= 8
}

func word(tag, value string) *yaml.Node {
	return &yaml.Node{Kind: yaml.ScalarNode, Tag: tag, Value: value}
}
