package scenarios

import (
	"bytes"
	"fmt"
	"regexp"
	"strconv"
	"strings"
)

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

// syntaxError converts an error of the YAML parser, which counts lines from 0 in structural
// errors and from 1 in lexical ones.
func syntaxError(src *source, data []byte, err error) *Error {
	m := yamlLine.FindStringSubmatch(strings.ReplaceAll(err.Error(), "\n", " "))
	if m == nil {
		return src.errorAt("", fmt.Errorf("not YAML: %w", err))
	}
	line, _ := strconv.Atoi(m[1])
	what := m[2]
	if anchor := unknownAnchor.FindStringSubmatch(what); anchor != nil {
		before, _, _ := bytes.Cut(data, []byte("*"+anchor[1]))
		line = 1 + bytes.Count(before, []byte("\n"))
	} else if line == 0 || strings.HasPrefix(what, "did not find expected") {
		line++
	}
	if hint := hints[what]; hint != "" {
		what += ": " + hint
	}
	return &Error{File: src.file, Line: line, Err: fmt.Errorf("not YAML: %s", what)}
}
