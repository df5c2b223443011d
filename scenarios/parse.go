package scenarios

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// What a file may be at most. A scenario that somebody wrote is a hundredth of
// it.
const (
	MaxFileBytes = 128 << 10
	maxDepth     = 12     // of lists and sections in each other
	maxNodes     = 20_000 // keys and values
	maxErrors    = 50     // that are reported
)

// Load reads a scenario from a file, whose name must be that of the scenario.
func Load(fsys fs.FS, name string) (*Scenario, error) {
	f, err := fsys.Open(name)
	if err != nil {
		return nil, fmt.Errorf("scenario: %w", err)
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, MaxFileBytes+1))
	if err != nil {
		return nil, fmt.Errorf("scenario %s: %w", name, err)
	}
	s, err := Parse(name, data)
	if err != nil {
		return nil, err
	}
	if base := strings.TrimSuffix(path.Base(name), ".yaml"); s.Name != base {
		return nil, s.Errorf("name", "%s in a file called %s: give both the same name, so that one finds the other", s.Name, path.Base(name))
	}
	return s, nil
}

// Parse reads a scenario. The error holds everything that is wrong with it, in
// the order of lines, as Errors; file is what it calls the file.
func Parse(file string, data []byte) (*Scenario, error) {
	src := source{file: file, places: map[string]place{"": {line: 1}}}
	root, errs := document(&src, data)
	if len(errs) > 0 {
		return nil, errs
	}
	d := decoder{src: &src}
	if err := d.version(root); err != nil {
		return nil, Errors{err}
	}
	s := &Scenario{}
	d.scenario(root, s)
	s.source = src
	check := checker{s: s, bad: d.bad}
	check.everything()
	errs = append(d.errs, check.errs...)
	if len(errs) == 0 {
		return s, nil
	}
	slices.SortStableFunc(errs, func(a, b *Error) int {
		return cmp.Or(cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column))
	})
	if more := len(errs) - maxErrors; more > 0 {
		last := src.errorAt("", fmt.Errorf("%d more errors", more))
		last.Line = errs[maxErrors].Line
		errs = append(errs[:maxErrors], last)
	}
	return nil, errs
}

// document parses YAML and returns the one mapping that a scenario is.
func document(src *source, data []byte) (*yaml.Node, Errors) {
	if len(data) > MaxFileBytes {
		return nil, Errors{src.errorAt("", fmt.Errorf("the file is too large: a scenario has at most %s", Bytes(MaxFileBytes)))}
	}
	dec := yaml.NewDecoder(bytes.NewReader(data))
	var doc, next yaml.Node
	switch err := dec.Decode(&doc); {
	case errors.Is(err, io.EOF):
		return nil, Errors{src.errorAt("", errors.New("the file is empty: a scenario begins with version: 1"))}
	case err != nil:
		return nil, Errors{syntaxError(src, data, err)}
	}
	if err := dec.Decode(&next); err == nil {
		return nil, Errors{errorIn(src, "", &next, errors.New("a second document: one file holds one scenario"))}
	} else if !errors.Is(err, io.EOF) {
		return nil, Errors{syntaxError(src, data, err)}
	}
	w := walker{src: src, budget: maxNodes}
	if w.walk(&doc, maxDepth); len(w.errs) > 0 {
		return nil, w.errs
	}
	if len(doc.Content) != 1 || doc.Content[0].Kind != yaml.MappingNode {
		return nil, Errors{src.errorAt("", errors.New("not a scenario: expected keys and values, such as version: 1"))}
	}
	return doc.Content[0], nil
}

// walker looks for what makes a small file large or deep, and for what the format
// has no use for.
type walker struct {
	src    *source
	budget int
	errs   Errors
}

func (w *walker) fail(n *yaml.Node, format string, args ...any) {
	w.errs = append(w.errs, errorIn(w.src, "", n, fmt.Errorf(format, args...)))
}

// walk reports whether it is worth while to go on: of aliases, anchors and tags
// it finds as many as are reported, of what is too large the first.
func (w *walker) walk(n *yaml.Node, depth int) bool {
	w.budget--
	switch {
	case depth < 0:
		w.fail(n, "nested too deeply")
		return false
	case w.budget < 0:
		w.fail(n, "too many keys and values: at most %d", maxNodes)
		return false
	case n.Kind == yaml.AliasNode:
		w.fail(n, "*%s: aliases are not used in scenarios: write the value out", n.Value)
	case n.Anchor != "":
		w.fail(n, "&%s: anchors are not used in scenarios: leave it out", n.Anchor)
	case n.Style&yaml.TaggedStyle != 0:
		w.fail(n, "%s: tags are not used in scenarios: leave it out", n.Tag)
	}
	for _, c := range n.Content {
		if len(w.errs) == maxErrors || !w.walk(c, depth-1) {
			return false
		}
	}
	return true
}

func errorIn(src *source, key string, n *yaml.Node, err error) *Error {
	return &Error{File: src.file, Line: n.Line, Column: n.Column, Key: key, Err: err}
}
