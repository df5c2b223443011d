package scenarios

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/fabrictest/fabrictest/internal/suggest"
)

// Error is something wrong in a scenario, and where.
type Error struct {
	File   string // as it was given to Load or Parse; empty for a Scenario made otherwise
	Line   int    // 0 if it is not known
	Column int
	Key    string // the path of the key: "impair[0].loss"; empty for the whole file
	Err    error  // what is wrong, and what was expected
}

// Error says file:line:column: key: what.
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
		b.WriteString(printable(e.Key) + ": ")
	}
	b.WriteString(e.Err.Error())
	return b.String()
}

// printable is a path without what would upset a terminal: keys may hold
// anything.
func printable(key string) string {
	const most = 200
	if len(key) > most {
		key = strings.ToValidUTF8(key[:most], "") + "…"
	}
	quoted := strconv.Quote(key)
	return quoted[1 : len(quoted)-1]
}

// Unwrap is what is wrong.
func (e *Error) Unwrap() error { return e.Err }

// Errors are all errors of a file, in the order of lines.
type Errors []*Error

// Error has a line for each error.
func (es Errors) Error() string {
	lines := make([]string, len(es))
	for i, e := range es {
		lines[i] = e.Error()
	}
	return strings.Join(lines, "\n")
}

// Unwrap lists the errors for errors.Is and errors.As.
func (es Errors) Unwrap() []error {
	list := make([]error, len(es))
	for i, e := range es {
		list[i] = e
	}
	return list
}

// place is where something stands in a file.
type place struct{ line, column int }

// source says where the keys of a file stand.
type source struct {
	file   string
	places map[string]place // by path: "impair[0].loss"
}

// errorAt is an error about a key, at its line; at that of the nearest key
// around it if the key itself is not in the file.
func (s *source) errorAt(key string, err error) *Error {
	e := &Error{File: s.file, Key: key, Err: err}
	for at := key; ; at = parent(at) {
		if p, ok := s.places[at]; ok {
			e.Line, e.Column = p.line, p.column
			return e
		}
		if at == "" {
			return e
		}
	}
}

// parent is the path of what a key is part of.
func parent(key string) string {
	if strings.HasSuffix(key, "]") {
		return key[:strings.LastIndexByte(key, '[')]
	}
	return key[:max(strings.LastIndexByte(key, '.'), 0)]
}

// Errorf is an error about a key of the scenario, found by whoever runs it: it
// names the file and the line as those of the loader do. The key is a path:
// "nic.quirks[0]".
func (s *Scenario) Errorf(key, format string, args ...any) error {
	e := s.source.errorAt(key, fmt.Errorf(format, args...))
	if e.File == "" {
		e.File = s.Name
	}
	return e
}

// suggestion is the end of a complaint about an unknown word: the one that was
// probably meant, or all there are.
func suggestion(word string, known []string) string {
	if words := suggest.Similar(word, known); len(words) > 0 {
		return "; did you mean " + words[0] + "?"
	}
	return "; there are " + strings.Join(known, ", ")
}
