package kit

import (
	"bytes"
	"encoding"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"
	"strconv"
	"strings"
)

// KeyError is the error for a key of a file.
type KeyError struct {
	Key string // path of the key: scenarios[3].links[0].packets
	Err error
}

func (e *KeyError) Error() string { return e.Key + ": " + e.Err.Error() }

func (e *KeyError) Unwrap() error { return e.Err }

// Decode parses a JSON document into the value that into points to. Unlike encoding/json
// it rejects missing keys, keys in other case and null, and names the element of a list
// in errors.
func Decode(text []byte, into any) error {
	d := decoder{json.NewDecoder(bytes.NewReader(text)), map[reflect.Type][]field{}}
	d.UseNumber()
	if err := d.value(reflect.ValueOf(into).Elem(), ""); err != nil {
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

func (d decoder) value(v reflect.Value, path string) error {
	if v.Kind() == reflect.Pointer {
		v.Set(reflect.New(v.Type().Elem()))
		return d.value(v.Elem(), path)
	}
	tok, err := d.Token()
	if err != nil {
		return &KeyError{path, err}
	}
	_, isText := v.Addr().Interface().(encoding.TextUnmarshaler)
	switch {
	case isText:
		return d.scalar(v, tok, path)
	case v.Kind() == reflect.Struct:
		return d.object(v, tok, path)
	case v.Kind() == reflect.Slice:
		return d.list(v, tok, path)
	case v.Kind() == reflect.Map:
		return d.table(v, tok, path)
	default:
		return d.scalar(v, tok, path)
	}
}

// scalar decodes a string, number or boolean.
func (d decoder) scalar(v reflect.Value, tok json.Token, path string) error {
	ok := false
	switch tok := tok.(type) {
	case string:
		if u, is := v.Addr().Interface().(encoding.TextUnmarshaler); is {
			if err := u.UnmarshalText([]byte(tok)); err != nil {
				return &KeyError{path, err}
			}
			return nil
		}
		if ok = v.Kind() == reflect.String; ok {
			v.SetString(tok)
		}
	case bool:
		if ok = v.Kind() == reflect.Bool; ok {
			v.SetBool(tok)
		}
	case json.Number:
		ok = setNumber(v, tok.String())
	}
	if !ok {
		return wrongKind(path, tok, expectedKind(v))
	}
	return nil
}

// setNumber sets v to a number; false if it does not fit.
func setNumber(v reflect.Value, text string) bool {
	switch {
	case v.CanInt():
		n, err := strconv.ParseInt(text, 10, v.Type().Bits())
		if err == nil {
			v.SetInt(n)
		}
		return err == nil
	case v.CanUint():
		n, err := strconv.ParseUint(text, 10, v.Type().Bits())
		if err == nil {
			v.SetUint(n)
		}
		return err == nil
	case v.CanFloat():
		n, err := strconv.ParseFloat(text, v.Type().Bits())
		if err == nil {
			v.SetFloat(n)
		}
		return err == nil
	}
	return false
}

func (d decoder) object(v reflect.Value, tok json.Token, path string) error {
	if tok != json.Delim('{') {
		return wrongKind(path, tok, "an object")
	}
	fields := d.fields(v.Type())
	seen := make([]bool, len(fields))
	for d.More() {
		name, err := d.key(path)
		if err != nil {
			return err
		}
		at := 0
		for at < len(fields) && fields[at].name != name {
			at++
		}
		key := join(path, name)
		switch {
		case at == len(fields):
			return &KeyError{key, fmt.Errorf("unknown key; known here are %s", names(fields))}
		case seen[at]:
			return &KeyError{key, errors.New("duplicate key")}
		}
		seen[at] = true
		if err := d.value(v.Field(fields[at].index), key); err != nil {
			return err
		}
	}
	for i, f := range fields {
		if !seen[i] && !f.optional {
			return &KeyError{join(path, f.name), errors.New("missing")}
		}
	}
	return d.close(path)
}

func (d decoder) list(v reflect.Value, tok json.Token, path string) error {
	if tok != json.Delim('[') {
		return wrongKind(path, tok, "a list")
	}
	// An empty list is decoded as nil.
	for i := 0; d.More(); i++ {
		v.Set(reflect.Append(v, reflect.Zero(v.Type().Elem())))
		if err := d.value(v.Index(i), fmt.Sprintf("%s[%d]", path, i)); err != nil {
			return err
		}
	}
	return d.close(path)
}

func (d decoder) table(v reflect.Value, tok json.Token, path string) error {
	if tok != json.Delim('{') {
		return wrongKind(path, tok, "an object")
	}
	for d.More() {
		if v.IsNil() {
			v.Set(reflect.MakeMap(v.Type()))
		}
		name, err := d.key(path)
		if err != nil {
			return err
		}
		key := reflect.ValueOf(name)
		if v.MapIndex(key).IsValid() {
			return &KeyError{join(path, name), errors.New("duplicate key")}
		}
		elem := reflect.New(v.Type().Elem()).Elem()
		if err := d.value(elem, join(path, name)); err != nil {
			return err
		}
		v.SetMapIndex(key, elem)
	}
	return d.close(path)
}

func (d decoder) key(path string) (string, error) {
	tok, err := d.Token()
	if err != nil {
		return "", &KeyError{path, err}
	}
	name, _ := tok.(string)
	return name, nil
}

// close reads the closing bracket.
func (d decoder) close(path string) error {
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

func (d decoder) fields(t reflect.Type) []field {
	if f, ok := d.known[t]; ok {
		return f
	}
	fields := make([]field, t.NumField())
	for i := range fields {
		f := t.Field(i)
		name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		if name == "" {
			name = f.Name
		}
		fields[i] = field{name, i, options != ""}
	}
	d.known[t] = fields
	return fields
}

func names(fields []field) string {
	all := make([]string, len(fields))
	for i, f := range fields {
		all[i] = f.name
	}
	return strings.Join(all, ", ")
}

func join(path, name string) string {
	if path == "" {
		return name
	}
	return path + "." + name
}

func wrongKind(path string, tok json.Token, want string) error {
	got := fmt.Sprint(tok)
	switch tok := tok.(type) {
	case nil:
		got = "null"
	case string:
		got = strconv.Quote(tok)
	case json.Delim:
		got = map[json.Delim]string{'{': "an object", '[': "a list"}[tok]
	}
	if path == "" {
		path = "the document"
	}
	return &KeyError{path, fmt.Errorf("is %s, not %s", got, want)}
}

// expectedKind describes the JSON values that a field accepts.
func expectedKind(v reflect.Value) string {
	switch v.Kind() {
	case reflect.Bool:
		return "true or false"
	case reflect.Int, reflect.Int64:
		return "a whole number"
	case reflect.Float64:
		return "a number"
	case reflect.Uint32, reflect.Uint64:
		return "a whole number, 0 or more"
	default:
		return "a string"
	}
}
