package scenarios

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// Limits of a file, a hundred times larger than scenarios in use.
const (
	MaxFileBytes = 128 << 10
	maxDepth     = 12     // nesting of lists and sections
	maxNodes     = 20_000 // keys and values
	maxErrors    = 50     // reported
)

// Load reads a scenario from a file, which must have the name of the scenario.
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
		return nil, s.Errorf("name", "%s in a file called %s: give both the same name", s.Name, path.Base(name))
	}
	return s, nil
}

// Parse reads a scenario from data, and checks the parts that it could decode. The error is of type
// Errors: up to maxErrors errors in the order of lines, and then the number of the others. file is
// the file name in them.
func Parse(file string, data []byte) (*Scenario, error) {
	src := source{file: file, positions: map[string]position{"": {line: 1}}}
	root, errs := parseDocument(&src, data)
	if len(errs) > 0 {
		return nil, errs
	}
	d := decoder{src: &src}
	if err := d.checkVersion(root); err != nil {
		return nil, Errors{err}
	}
	s := &Scenario{}
	d.decodeStruct(root, reflect.ValueOf(s).Elem(), "")
	s.source = src
	check := checker{s: s, unreadable: d.unreadable}
	check.checkAll()
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

// parseDocument parses YAML and returns the mapping of the scenario.
func parseDocument(src *source, data []byte) (*yaml.Node, Errors) {
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
	w := structureChecker{src: src, budget: maxNodes}
	if w.walk(&doc, maxDepth); len(w.errs) > 0 {
		return nil, w.errs
	}
	if len(doc.Content) != 1 || doc.Content[0].Kind != yaml.MappingNode {
		return nil, Errors{src.errorAt("", errors.New("not a scenario: expected keys and values, such as version: 1"))}
	}
	return doc.Content[0], nil
}

// structureChecker limits the size and depth of a document, and rejects YAML features that
// the format does not use.
type structureChecker struct {
	src    *source
	budget int
	errs   Errors
}

func (c *structureChecker) fail(n *yaml.Node, format string, args ...any) {
	c.errs = append(c.errs, errorIn(c.src, "", n, fmt.Errorf(format, args...)))
}

// walk checks a node and those below it: their number, that they are at most depth levels deep, and
// that none is an alias or has an anchor or tag. It returns false when checking should stop.
func (c *structureChecker) walk(n *yaml.Node, depth int) bool {
	c.budget--
	switch {
	case depth < 0:
		c.fail(n, "nested too deeply")
		return false
	case c.budget < 0:
		c.fail(n, "too many keys and values: at most %d", maxNodes)
		return false
	case n.Kind == yaml.AliasNode:
		c.fail(n, "*%s: aliases are not used in scenarios: write the value out", n.Value)
	case n.Anchor != "":
		c.fail(n, "&%s: anchors are not used in scenarios: leave it out", n.Anchor)
	case n.Style&yaml.TaggedStyle != 0:
		c.fail(n, "%s: tags are not used in scenarios: leave it out", n.Tag)
	}
	for _, child := range n.Content {
		if len(c.errs) == maxErrors || !c.walk(child, depth-1) {
			return false
		}
	}
	return true
}

// errorIn returns an error about a key, at the position of n.
func errorIn(src *source, key string, n *yaml.Node, err error) *Error {
	return &Error{File: src.file, Line: n.Line, Column: n.Column, Key: key, Err: err}
}

var (
	yamlLine      = regexp.MustCompile(`^yaml: (?:line ([0-9]+): )?(.*)$`)
	unknownAnchor = regexp.MustCompile(`^unknown anchor '(.*)' referenced$`)
)

// hints are the most common causes of errors of the YAML parser.
var hints = map[string]string{
	"found character that cannot start any token":    "indent with spaces, not with tabs, and put a text that begins with a sign in quotes",
	"mapping values are not allowed in this context": "put a text with a colon in it in quotes",
	"did not find expected key":                      "does the line begin in the same column as those around it?",
	"found unexpected end of stream":                 "is a quote or a bracket left open?",
}

// syntaxError converts an error of the YAML parser, which counts lines from 0 in structural errors,
// from 1 in lexical ones, and gives none for an unknown anchor. It adds a hint to errors in hints.
func syntaxError(src *source, data []byte, err error) *Error {
	m := yamlLine.FindStringSubmatch(strings.ReplaceAll(err.Error(), "\n", " "))
	if m == nil {
		return src.errorAt("", fmt.Errorf("not YAML: %w", err))
	}
	line, _ := strconv.Atoi(m[1])
	problem := m[2]
	if anchor := unknownAnchor.FindStringSubmatch(problem); anchor != nil {
		before, _, _ := bytes.Cut(data, []byte("*"+anchor[1]))
		line = 1 + bytes.Count(before, []byte("\n"))
	} else if line == 0 || strings.HasPrefix(problem, "did not find expected") {
		line++
	}
	if hint := hints[problem]; hint != "" {
		problem += ": " + hint
	}
	return &Error{File: src.file, Line: line, Err: fmt.Errorf("not YAML: %s", problem)}
}
