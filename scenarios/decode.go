package scenarios

import (
	"fmt"
	"reflect"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// decoder fills structs from YAML by their tags. It continues after an error to report all
// of them; values that it cannot decode stay zero.
type decoder struct {
	src  *source
	errs Errors
}

// fail records an error about the value at n.
func (d *decoder) fail(key string, n *yaml.Node, format string, args ...any) {
	d.errs = append(d.errs, errorIn(d.src, key, n, fmt.Errorf(format, args...)))
}

// unreadable reports whether a value at or below key could not be decoded. Checks that
// depend on it are skipped.
func (d *decoder) unreadable(key string) bool {
	for _, e := range d.errs {
		if rest, ok := strings.CutPrefix(e.Key, key); ok && (rest == "" || rest[0] == '.' || rest[0] == '[') {
			return true
		}
	}
	return false
}

// checkVersion checks the version first, because other versions may have other keys.
func (d *decoder) checkVersion(root *yaml.Node) *Error {
	for i := 0; i < len(root.Content); i += 2 {
		if n := root.Content[i+1]; root.Content[i].Value == "version" && n.ShortTag() == "!!int" && n.Value != "1" {
			return errorIn(d.src, "version", n, fmt.Errorf("%s is not supported: this fabrictest reads version %d", quoteShort(n.Value), FormatVersion))
		}
	}
	return nil
}

func (d *decoder) decodeScenario(root *yaml.Node, s *Scenario) {
	d.decodeStruct(root, reflect.ValueOf(s).Elem(), "")
}

// decodeValue decodes n into v, which has the given tag.
func (d *decoder) decodeValue(n *yaml.Node, v reflect.Value, tag reflect.StructTag, key string) {
	if _, ok := d.src.positions[key]; !ok { // the first of a duplicate key counts
		d.src.positions[key] = position{n.Line, n.Column}
	}
	if n.ShortTag() == "!!null" {
		d.fail(key, n, "has no value: give it one, or leave the key out")
		return
	}
	if v.Kind() == reflect.Pointer {
		v.Set(reflect.New(v.Type().Elem()))
		v = v.Elem()
	}
	switch {
	case n.Kind == yaml.ScalarNode:
		if err := decodeScalar(n, v, tag); err != nil {
			d.fail(key, n, "%w", err)
		}
	case n.Kind == yaml.SequenceNode && v.Kind() == reflect.Slice:
		d.decodeList(n, v, tag, key)
	case n.Kind == yaml.MappingNode && v.Kind() == reflect.Struct:
		d.decodeStruct(n, v, key)
	case n.Kind == yaml.MappingNode && v.Kind() == reflect.Map:
		d.decodeMap(n, v, tag, key)
	default:
		d.fail(key, n, "expected %s", describeType(v.Type(), tag))
	}
}

// decodeStruct decodes the keys of n into the fields of a struct.
func (d *decoder) decodeStruct(n *yaml.Node, v reflect.Value, key string) {
	if _, ok := d.src.positions[key]; !ok {
		d.src.positions[key] = position{n.Line, n.Column}
	}
	fields := fieldsOf(v.Type())
	seen := d.keys(n, key)
	for name, at := range seen {
		if _, ok := fields.find(name); !ok {
			d.fail(join(key, name), n.Content[at], "unknown key%s", suggestion(name, fields.names()))
		}
	}
	for _, f := range fields {
		at, given := seen[f.name]
		switch {
		case given:
			d.decodeValue(n.Content[at+1], v.FieldByIndex(f.index), f.tag, join(key, f.name))
		case f.required:
			d.fail(join(key, f.name), n, "is missing: expected %s", describeType(f.typ, f.tag))
		}
	}
}

// decodeMap decodes the keys of n into a map.
func (d *decoder) decodeMap(n *yaml.Node, v reflect.Value, tag reflect.StructTag, key string) {
	seen := d.keys(n, key)
	for name, at := range seen {
		k := reflect.New(v.Type().Key()).Elem()
		k.SetString(name)
		if err := checkText(name, tag); err != nil && k.Type() != reflect.TypeFor[string]() {
			d.fail(join(key, name), n.Content[at], "%w", err)
			continue
		}
		e := reflect.New(v.Type().Elem()).Elem()
		d.decodeValue(n.Content[at+1], e, "", join(key, name))
		if v.IsNil() {
			v.Set(reflect.MakeMap(v.Type()))
		}
		v.SetMapIndex(k, e)
	}
}

// keys returns the indexes of the keys of a mapping, and reports invalid and duplicate
// keys.
func (d *decoder) keys(n *yaml.Node, key string) map[string]int {
	seen := make(map[string]int, len(n.Content)/2)
	for i := 0; i < len(n.Content); i += 2 {
		k := n.Content[i]
		if k.Kind != yaml.ScalarNode || k.ShortTag() == "!!merge" {
			d.fail(key, k, "expected a plain word as key")
			continue
		}
		if first, twice := seen[k.Value]; twice {
			d.fail(join(key, k.Value), k, "is given twice; the first is in line %d", n.Content[first].Line)
			continue
		}
		seen[k.Value] = i
	}
	return seen
}

// decodeList decodes a list. An empty list stays nil, as if it was omitted.
func (d *decoder) decodeList(n *yaml.Node, v reflect.Value, tag reflect.StructTag, key string) {
	if len(n.Content) == 0 {
		delete(d.src.positions, key)
		return
	}
	if most, err := strconv.Atoi(tag.Get("most")); err == nil && len(n.Content) > most {
		d.fail(key, n, "%d entries: at most %d", len(n.Content), most)
		return
	}
	v.Set(reflect.MakeSlice(v.Type(), len(n.Content), len(n.Content)))
	for i, c := range n.Content {
		d.decodeValue(c, v.Index(i), tag, fmt.Sprintf("%s[%d]", key, i))
	}
}
