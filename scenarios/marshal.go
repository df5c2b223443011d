package scenarios

import (
	"bytes"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"
)

// Marshal writes the scenario in canonical form: keys in the order of the format, without
// defaults. Parse returns the same scenario.
func (s *Scenario) Marshal() ([]byte, error) {
	var b bytes.Buffer
	e := yaml.NewEncoder(&b)
	e.SetIndent(2)
	if err := e.Encode(encodeStruct(reflect.ValueOf(s).Elem())); err != nil {
		return nil, err
	}
	return b.Bytes(), e.Close()
}

// encodeStruct returns a struct as a YAML mapping, without optional fields that are zero or empty.
func encodeStruct(v reflect.Value) *yaml.Node {
	n := &yaml.Node{Kind: yaml.MappingNode}
	for _, f := range fieldsOf(v.Type()) {
		value := v.FieldByIndex(f.index)
		if !f.required && (value.IsZero() || value.Kind() == reflect.Slice && value.Len() == 0) {
			continue
		}
		n.Content = append(n.Content, scalarNode("!!str", f.name), encodeValue(value, f.tag))
	}
	return n
}

// encodeValue returns the YAML node that decodes to v, a field with this tag or an element of one.
func encodeValue(v reflect.Value, tag reflect.StructTag) *yaml.Node {
	if v.Kind() == reflect.Pointer {
		v = v.Elem()
	}
	switch formOf(v.Type(), tag) {
	case formSection:
		n := encodeStruct(v)
		if fitsOneLine(n) {
			n.Style = yaml.FlowStyle
		}
		return n
	case formMap:
		return encodeMap(v)
	case formList:
		n := &yaml.Node{Kind: yaml.SequenceNode}
		for i := range v.Len() {
			n.Content = append(n.Content, encodeValue(v.Index(i), tag))
		}
		if fitsOneLine(n) {
			n.Style = yaml.FlowStyle
		}
		return n
	case formText:
		n := scalarNode("!!str", v.String())
		if strings.Contains(n.Value, "\n") {
			n.Style = yaml.LiteralStyle
		}
		return n
	case formBool:
		return scalarNode("!!bool", strconv.FormatBool(v.Bool()))
	case formSize:
		size := Bytes(v.Int()).String()
		if _, err := strconv.Atoi(size); err == nil {
			return scalarNode("!!int", size)
		}
		return scalarNode("!!str", size)
	case formPercent, formRate:
		return scalarNode("!!str", v.Interface().(fmt.Stringer).String())
	case formDuration:
		return scalarNode("!!str", formatDuration(time.Duration(v.Int())))
	case formDecimal:
		number := strconv.FormatFloat(v.Float(), 'g', -1, 64)
		if _, err := strconv.Atoi(number); err == nil {
			return scalarNode("!!int", number)
		}
		return scalarNode("!!float", number)
	}
	if v.CanInt() {
		return scalarNode("!!int", strconv.FormatInt(v.Int(), 10))
	}
	return scalarNode("!!int", strconv.FormatUint(v.Uint(), 10))
}

// encodeMap returns a map as a YAML mapping, sorted by key.
func encodeMap(v reflect.Value) *yaml.Node {
	n := &yaml.Node{Kind: yaml.MappingNode}
	keys := v.MapKeys()
	slices.SortFunc(keys, func(a, b reflect.Value) int { return strings.Compare(a.String(), b.String()) })
	for _, k := range keys {
		n.Content = append(n.Content, scalarNode("!!str", k.String()), encodeValue(v.MapIndex(k), ""))
	}
	return n
}

// fitsOneLine reports whether n is short and has no nested values.
func fitsOneLine(n *yaml.Node) bool {
	for _, c := range n.Content {
		if c.Kind != yaml.ScalarNode {
			return false
		}
	}
	return len(n.Content) <= 8 // 4 keys with their values, or 8 entries
}

func scalarNode(tag, value string) *yaml.Node {
	return &yaml.Node{Kind: yaml.ScalarNode, Tag: tag, Value: value}
}
