package scenarios

import (
	"fmt"
	"reflect"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// decoder fills values from YAML by their tags. It goes on after an error, so
// that all are found at once; what it could not read stays zero.
type decoder struct {
	src  *source
	errs Errors
}

// fail records what is wrong with the value at n.
func (d *decoder) fail(key string, n *yaml.Node, format string, args ...any) {
	d.errs = append(d.errs, errorIn(d.src, key, n, fmt.Errorf(format, args...)))
}

// bad reports whether something at or below key could not be read: what depends
// on it need not be looked at.
func (d *decoder) bad(key string) bool {
	for _, e := range d.errs {
		if rest, ok := strings.CutPrefix(e.Key, key); ok && (rest == "" || rest[0] == '.' || rest[0] == '[') {
			return true
		}
	}
	return false
}

// version looks at the version before all else: in another one, other keys may
// mean other things.
func (d *decoder) version(root *yaml.Node) *Error {
	for i := 0; i < len(root.Content); i += 2 {
		if n := root.Content[i+1]; root.Content[i].Value == "version" && n.ShortTag() == "!!int" && n.Value != "1" {
			return errorIn(d.src, "version", n, fmt.Errorf("%s is not known here: this fabrictest reads version %d", shown(n.Value), FormatVersion))
		}
	}
	return nil
}

func (d *decoder) scenario(root *yaml.Node, s *Scenario) {
	d.structure(root, reflect.ValueOf(s).Elem(), "")
}

// value fills v, to which tag belongs, from n.
func (d *decoder) value(n *yaml.Node, v reflect.Value, tag reflect.StructTag, key string) {
	if _, ok := d.src.places[key]; !ok { // the second of a doubled key says nothing
		d.src.places[key] = place{n.Line, n.Column}
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
		if err := scalar(n, v, tag); err != nil {
			d.fail(key, n, "%w", err)
		}
	case n.Kind == yaml.SequenceNode && v.Kind() == reflect.Slice:
		d.list(n, v, tag, key)
	case n.Kind == yaml.MappingNode && v.Kind() == reflect.Struct:
		d.structure(n, v, key)
	case n.Kind == yaml.MappingNode && v.Kind() == reflect.Map:
		d.table(n, v, tag, key)
	default:
		d.fail(key, n, "expected %s", wanted(v.Type(), tag))
	}
}

// structure fills the fields of a struct from the keys of n.
func (d *decoder) structure(n *yaml.Node, v reflect.Value, key string) {
	if _, ok := d.src.places[key]; !ok {
		d.src.places[key] = place{n.Line, n.Column}
	}
	fields := fieldsOf(v.Type())
	seen := d.keys(n, key)
	for name, at := range seen {
		if _, ok := fields.find(name); !ok {
			d.fail(join(key, name), n.Content[at], "there is no such key%s", suggestion(name, fields.names()))
		}
	}
	for _, f := range fields {
		at, given := seen[f.name]
		switch {
		case given:
			d.value(n.Content[at+1], v.FieldByIndex(f.index), f.tag, join(key, f.name))
		case f.required:
			d.fail(join(key, f.name), n, "is missing: expected %s", wanted(f.typ, f.tag))
		}
	}
}

// table fills a map from the keys of n.
func (d *decoder) table(n *yaml.Node, v reflect.Value, tag reflect.StructTag, key string) {
	seen := d.keys(n, key)
	for name, at := range seen {
		k := reflect.New(v.Type().Key()).Elem()
		k.SetString(name)
		if err := checkText(name, tag); err != nil && k.Type() != reflect.TypeFor[string]() {
			d.fail(join(key, name), n.Content[at], "%w", err)
			continue
		}
		e := reflect.New(v.Type().Elem()).Elem()
		d.value(n.Content[at+1], e, "", join(key, name))
		if v.IsNil() {
			v.Set(reflect.MakeMap(v.Type()))
		}
		v.SetMapIndex(k, e)
	}
}

// keys returns the places of the keys of a mapping in its contents, and
// complains of what is no key or comes twice.
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

// list fills a slice; an empty one stays nil, as if it had been left out.
func (d *decoder) list(n *yaml.Node, v reflect.Value, tag reflect.StructTag, key string) {
	if len(n.Content) == 0 {
		delete(d.src.places, key)
		return
	}
	if most, err := strconv.Atoi(tag.Get("most")); err == nil && len(n.Content) > most {
		d.fail(key, n, "%d entries: at most %d", len(n.Content), most)
		return
	}
	v.Set(reflect.MakeSlice(v.Type(), len(n.Content), len(n.Content)))
	for i, c := range n.Content {
		d.value(c, v.Index(i), tag, fmt.Sprintf("%s[%d]", key, i))
	}
}
