package kit

import (
	"bytes"
	"cmp"
	"encoding"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"
	"slices"
	"strings"
)

// KeyError is the error for a key of a file.
type KeyError struct {
	Key string // path of the key: scenarios[3].links[0].packets
	Err error
}

func (e *KeyError) Error() string { return e.Key + ": " + e.Err.Error() }

func (e *KeyError) Unwrap() error { return e.Err }

// decode parses a JSON document into the value that doc points to. Unlike encoding/json
// it rejects unknown, missing and duplicate keys, keys that differ in letter case, and null,
// and names the element of a list in errors.
func decode(text []byte, doc any) error {
	d := decoder{json.NewDecoder(bytes.NewReader(text)), map[reflect.Type][]field{}}
	if err := d.value(reflect.ValueOf(doc).Elem(), ""); err != nil {
		return err
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return fmt.Errorf("unexpected data after the result, at byte %d", d.InputOffset())
	}
	return nil
}

type decoder struct {
	*json.Decoder
	known map[reflect.Type][]field
}

// value decodes the next JSON value into v. Errors name path, the keys that lead to it.
func (d decoder) value(v reflect.Value, path string) error {
	_, isText := v.Addr().Interface().(encoding.TextUnmarshaler)
	switch {
	case isText:
		return d.scalar(v, path)
	case v.Kind() == reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		return d.value(v.Elem(), path)
	case v.Kind() == reflect.Struct:
		return d.object(v, path)
	case v.Kind() == reflect.Slice: // an empty list is decoded as nil
		return d.each(path, '[', func(string) error {
			i := v.Len()
			v.Set(reflect.Append(v, reflect.Zero(v.Type().Elem())))
			return d.value(v.Index(i), fmt.Sprintf("%s[%d]", path, i))
		})
	case v.Kind() == reflect.Map:
		return d.mapOf(v, path)
	}
	return d.scalar(v, path)
}

// scalar decodes a string, number or boolean into v. path is the place in the document, for errors;
// null is an error.
func (d decoder) scalar(v reflect.Value, path string) error {
	var text json.RawMessage
	err := d.Decode(&text)
	if err == nil && string(text) == "null" {
		err = fmt.Errorf("is null, not a %v", v.Type())
	}
	if err == nil {
		err = json.Unmarshal(text, v.Addr().Interface())
	}
	var kind *json.UnmarshalTypeError
	if errors.As(err, &kind) {
		err = fmt.Errorf("is %s, not a %v", text, kind.Type)
	}
	if err != nil {
		return &KeyError{path, err}
	}
	return nil
}

// object decodes an object into a struct. Unknown, missing and duplicate keys are errors.
func (d decoder) object(v reflect.Value, path string) error {
	fields := d.fields(v.Type())
	seen := make([]bool, len(fields))
	err := d.each(path, '{', func(name string) error {
		at := slices.IndexFunc(fields, func(f field) bool { return f.name == name })
		key := join(path, name)
		switch {
		case at < 0:
			known := make([]string, 0, len(fields))
			for _, f := range fields {
				known = append(known, f.name)
			}
			return &KeyError{key, fmt.Errorf("unknown key; known here are %s", strings.Join(known, ", "))}
		case seen[at]:
			return &KeyError{key, errors.New("duplicate key")}
		}
		seen[at] = true
		return d.value(v.Field(fields[at].index), key)
	})
	for i, f := range fields {
		if err == nil && !seen[i] && !f.optional {
			err = &KeyError{join(path, f.name), errors.New("missing")}
		}
	}
	return err
}

// mapOf decodes an object into a map. Duplicate keys are errors.
func (d decoder) mapOf(v reflect.Value, path string) error {
	return d.each(path, '{', func(name string) error {
		if v.IsNil() {
			v.Set(reflect.MakeMap(v.Type()))
		}
		key := reflect.ValueOf(name)
		if v.MapIndex(key).IsValid() {
			return &KeyError{join(path, name), errors.New("duplicate key")}
		}
		elem := reflect.New(v.Type().Elem()).Elem()
		err := d.value(elem, join(path, name))
		v.SetMapIndex(key, elem)
		return err
	})
}

// each reads an object or, if open is '[', a list. It calls do for each key, or with an empty
// name for each element; do decodes the value.
func (d decoder) each(path string, open json.Delim, do func(name string) error) error {
	tok, err := d.Token()
	if err == nil && tok != open {
		err = fmt.Errorf("is %v, not %s", tok, map[json.Delim]string{'{': "an object", '[': "a list"}[open])
	}
	if err != nil {
		return &KeyError{cmp.Or(path, "the document"), err}
	}
	for d.More() {
		name := ""
		if open == '{' {
			if tok, err = d.Token(); err != nil {
				return &KeyError{path, err}
			}
			name, _ = tok.(string)
		}
		if err := do(name); err != nil {
			return err
		}
	}
	if _, err := d.Token(); err != nil {
		return &KeyError{path, err}
	}
	return nil
}

type field struct {
	name     string
	index    int
	optional bool
}

// fields returns the JSON fields of a struct type, from its tags or the cache. Fields with
// options such as "omitempty" may be missing in a document.
func (d decoder) fields(t reflect.Type) []field {
	if f, ok := d.known[t]; ok {
		return f
	}
	fields := make([]field, t.NumField())
	for i := range fields {
		name, options, _ := strings.Cut(t.Field(i).Tag.Get("json"), ",")
		fields[i] = field{name, i, options != ""}
	}
	d.known[t] = fields
	return fields
}

// join returns the path of the key name below path. If both are empty, it returns "the document".
func join(path, name string) string {
	switch {
	case path != "":
		return path + "." + name
	case name == "":
		return "the document"
	}
	return name
}
