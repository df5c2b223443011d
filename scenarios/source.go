package scenarios

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/fabrictest/fabrictest/internal/cmdline"
)

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
	const most = 200
	if len(key) > most {
		key = strings.ToValidUTF8(key[:most], "") + "…"
	}
	quoted := strconv.Quote(key)
	return quoted[1 : len(quoted)-1]
}

func (e *Error) Unwrap() error { return e.Err }

// Errors are all errors of a file, in the order of lines.
type Errors []*Error

// Error returns a line for each error.
func (es Errors) Error() string {
	lines := make([]string, len(es))
	for i, e := range es {
		lines[i] = e.Error()
	}
	return strings.Join(lines, "\n")
}

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

// parent returns the path of the section or list of a key.
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

// suggestion ends the error about an unknown word: with a similar word, or with all known
// words.
func suggestion(word string, known []string) string {
	if words := cmdline.Similar(word, known); len(words) > 0 {
		return "; did you mean " + words[0] + "?"
	}
	return "; there are " + strings.Join(known, ", ")
}
