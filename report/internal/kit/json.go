package kit

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"

	"github.com/fabrictest/fabrictest/internal/cli"
)

// MaxSize is the largest document that is read, in bytes.
const MaxSize = 1 << 30

// ErrVersion is the error for an unknown version.
var ErrVersion = errors.New("unknown version")

// Format is a kind of JSON document whose first key is its version.
type Format struct {
	Version int
	Name    string // as in "the result of a run"
}

// WriteJSON writes a document. Unlike encoding/json it writes empty lists instead of null.
func WriteJSON(w io.Writer, v any) error {
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	return e.Encode(withoutNilSlices(reflect.ValueOf(v)).Interface())
}

// withoutNilSlices returns a copy of a value with empty slices instead of nil, which JSON
// would write as null. Parts of the value without slices are shared, not copied.
func withoutNilSlices(v reflect.Value) reflect.Value {
	switch v.Kind() {
	case reflect.Pointer:
		if !v.IsNil() && hasSlices(v.Type().Elem()) {
			out := reflect.New(v.Type().Elem())
			out.Elem().Set(withoutNilSlices(v.Elem()))
			return out
		}
	case reflect.Struct:
		if hasSlices(v.Type()) {
			out := reflect.New(v.Type()).Elem()
			out.Set(v)
			for i := range v.NumField() {
				if f := out.Field(i); f.CanSet() {
					f.Set(withoutNilSlices(v.Field(i)))
				}
			}
			return out
		}
	case reflect.Slice:
		if v.IsNil() || hasSlices(v.Type().Elem()) {
			out := reflect.MakeSlice(v.Type(), v.Len(), v.Len())
			for i := range v.Len() {
				out.Index(i).Set(withoutNilSlices(v.Index(i)))
			}
			return out
		}
	}
	return v
}

// hasSlices reports whether values of a type contain slices.
func hasSlices(t reflect.Type) bool {
	switch t.Kind() {
	case reflect.Slice:
		return true
	case reflect.Pointer:
		return hasSlices(t.Elem())
	case reflect.Struct:
		for i := range t.NumField() {
			if f := t.Field(i); f.IsExported() && hasSlices(f.Type) {
				return true
			}
		}
	}
	return false
}

// Read reads a document into the value that doc points to. It checks the version first;
// unknown, missing and duplicate keys are errors. A *KeyError names the key.
func (f Format) Read(r io.Reader, doc any) error {
	text, err := io.ReadAll(io.LimitReader(r, MaxSize+1))
	switch {
	case err != nil:
		return err
	case len(text) > MaxSize:
		return fmt.Errorf("longer than %d bytes", MaxSize)
	}
	if err := f.checkVersion(text); err != nil {
		return err
	}
	return decode(text, doc)
}

// checkVersion checks only the key "version": another version may have unknown keys.
func (f Format) checkVersion(text []byte) error {
	var head struct {
		Version *json.Number `json:"version"`
	}
	err := json.Unmarshal(text, &head)
	var syntax *json.SyntaxError
	switch {
	case errors.As(err, &syntax):
		return fmt.Errorf("not JSON after %d of %d bytes: %w", syntax.Offset, len(text), err)
	case err != nil:
		return &KeyError{"version", fmt.Errorf("want the number %d: %w", f.Version, err)}
	case head.Version == nil:
		return &KeyError{"version", fmt.Errorf("missing: this is not %s", f.Name)}
	case head.Version.String() != fmt.Sprint(f.Version):
		return &KeyError{"version", fmt.Errorf("%w %v: this fabrictest reads version %d", ErrVersion, *head.Version, f.Version)}
	}
	return nil
}

// ReadFile opens a file and reads it with read. Errors name the file.
func ReadFile[T any](path string, read func(io.Reader) (*T, error)) (*T, error) {
	f, err := cli.OpenFile(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	v, err := read(f)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return v, nil
}
