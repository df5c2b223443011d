package scenarios

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/fabrictest/fabrictest/internal/cli"
)

// decoder fills structs from YAML by their tags. It continues after an error to report all
// of them; values that it cannot decode stay zero.
type decoder struct {
	src  *source
	errs Errors
}

// fail records an error about a key, at the position of n.
func (d *decoder) fail(key string, n *yaml.Node, format string, args ...any) {
	d.errs = append(d.errs, errorIn(d.src, key, n, fmt.Errorf(format, args...)))
}

// unreadable reports whether a value at or below key was not decoded: its checks are skipped.
func (d *decoder) unreadable(key string) bool {
	for _, e := range d.errs {
		if rest, ok := strings.CutPrefix(e.Key, key); ok && (rest == "" || rest[0] == '.' || rest[0] == '[') {
			return true
		}
	}
	return false
}

// checkVersion returns an error if the version is another number than FormatVersion. It is called
// before keys are checked, because other versions may have other keys. decodeStruct reports a
// missing version.
func (d *decoder) checkVersion(root *yaml.Node) *Error {
	for i := 0; i < len(root.Content); i += 2 {
		if n := root.Content[i+1]; root.Content[i].Value == "version" && n.ShortTag() == "!!int" && n.Value != strconv.Itoa(FormatVersion) {
			return errorIn(d.src, "version", n, fmt.Errorf("%s is not supported: this fabrictest reads version %d", quoteShort(n.Value), FormatVersion))
		}
	}
	return nil
}

// decodeValue decodes n into v, which is a field with the given tag or an element of it. key is the
// path of n in the file.
func (d *decoder) decodeValue(n *yaml.Node, v reflect.Value, tag reflect.StructTag, key string) {
	d.src.positions[key] = position{n.Line, n.Column}
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

// decodeStruct decodes the mapping n into a struct. Unknown keys are errors, and so are required
// keys that are missing.
func (d *decoder) decodeStruct(n *yaml.Node, v reflect.Value, key string) {
	fields := fieldsOf(v.Type())
	seen := d.keyIndexes(n, key)
	for name, at := range seen {
		if names := fields.names(); !slices.Contains(names, name) {
			d.fail(join(key, name), n.Content[at], "unknown key%s", suggestion(name, names))
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

// decodeMap decodes the mapping n into a map. The tag applies to its keys, unless they are plain
// strings: these are patterns, which the checker checks.
func (d *decoder) decodeMap(n *yaml.Node, v reflect.Value, tag reflect.StructTag, key string) {
	seen := d.keyIndexes(n, key)
	v.Set(reflect.MakeMap(v.Type()))
	for name, at := range seen {
		k := reflect.New(v.Type().Key()).Elem()
		k.SetString(name)
		if err := checkText(name, tag); err != nil && k.Type() != reflect.TypeFor[string]() {
			d.fail(join(key, name), n.Content[at], "%w", err)
			continue
		}
		e := reflect.New(v.Type().Elem()).Elem()
		d.decodeValue(n.Content[at+1], e, "", join(key, name))
		v.SetMapIndex(k, e)
	}
}

// keyIndexes returns the indexes of the keys in n.Content by name, and records errors for
// invalid and duplicate keys. key is the path of the mapping n.
func (d *decoder) keyIndexes(n *yaml.Node, key string) map[string]int {
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
		delete(d.src.positions, key) // then checks find no such key
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

// Error is an error in a scenario and its position.
type Error struct {
	File   string // as given to Load or Parse; empty for a Scenario made by code
	Line   int    // 0 if unknown
	Column int
	Key    string // path of the key: "impair[0].loss"; empty for the whole file
	Err    error  // the problem, with the expected value
}

// Error returns file:line:column: key: problem.
func (e *Error) Error() string {
	var b strings.Builder
	b.WriteString(e.File)
	if e.Line > 0 {
		fmt.Fprintf(&b, ":%d", e.Line)
		if e.Column > 0 {
			fmt.Fprintf(&b, ":%d", e.Column)
		}
	}
	if b.Len() > 0 {
		b.WriteString(": ")
	}
	if e.Key != "" {
		b.WriteString(printableKey(e.Key) + ": ")
	}
	b.WriteString(e.Err.Error())
	return b.String()
}

// printableKey escapes and shortens the path of a key, which may contain any character.
func printableKey(key string) string {
	const maxLength = 200
	if len(key) > maxLength {
		key = strings.ToValidUTF8(key[:maxLength], "") + "…"
	}
	quoted := strconv.Quote(key)
	return quoted[1 : len(quoted)-1]
}

func (e *Error) Unwrap() error { return e.Err }

// Errors are all errors of a file, in the order of lines.
type Errors []*Error

// Error returns a line for each error.
func (es Errors) Error() string { return errors.Join(es.Unwrap()...).Error() }

// Unwrap returns the errors for errors.Is and errors.As.
func (es Errors) Unwrap() []error {
	list := make([]error, len(es))
	for i, e := range es {
		list[i] = e
	}
	return list
}

// position is a position in a file.
type position struct{ line, column int }

// source holds the positions of the keys of a file.
type source struct {
	file      string
	positions map[string]position // by path: "impair[0].loss"
}

// errorAt returns an error at the position of a key, or of its nearest parent in the file.
func (s *source) errorAt(key string, err error) *Error {
	e := &Error{File: s.file, Key: key, Err: err}
	for at := key; ; at = parent(at) {
		if p, ok := s.positions[at]; ok {
			e.Line, e.Column = p.line, p.column
			return e
		}
		if at == "" {
			return e
		}
	}
}

// parent returns the path of the section or list that contains a key.
func parent(key string) string {
	if strings.HasSuffix(key, "]") {
		return key[:strings.LastIndexByte(key, '[')]
	}
	return key[:max(strings.LastIndexByte(key, '.'), 0)]
}

// Errorf returns an error about a key, with the file and line of the key. The key is a
// path: "nic.defects[0]".
func (s *Scenario) Errorf(key, format string, args ...any) error {
	e := s.source.errorAt(key, fmt.Errorf(format, args...))
	if e.File == "" {
		e.File = s.Name
	}
	return e
}

// suggestion ends the error about an unknown word: with a similar word, or all known words.
func suggestion(word string, known []string) string {
	if words := cli.Similar(word, known); len(words) > 0 {
		return "; did you mean " + words[0] + "?"
	}
	return "; there are " + strings.Join(known, ", ")
}
