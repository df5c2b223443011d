// Package cmdline has what a command and the packages below it need to talk about the
// command line: errors about it, suggestions for misspelled words, quoted words, and the
// files that it names. It parses no flags; cmd/fabrictest does.
package cmdline

import (
	"fmt"
	"regexp"
	"strings"
)

// Error is a mistake in how a command was called. The command exits with code 2.
type Error struct{ Err error }

func (e *Error) Error() string { return e.Err.Error() }

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// Errorf returns an Error with a formatted message.
func Errorf(format string, args ...any) error { return &Error{fmt.Errorf(format, args...)} }

// Guess returns the end of an error message about an unknown word: "; did you mean
// run?", or nothing if no known word is similar.
func Guess(word string, known []string) string {
	if words := Similar(word, known); len(words) > 0 {
		return "; did you mean " + strings.Join(words, ", ") + "?"
	}
	return ""
}

// DidYouMean returns what Guess does, followed by the command that lists all words.
func DidYouMean(word string, known []string, list string) string {
	if g := Guess(word, known); g != "" {
		return strings.TrimPrefix(g, "; ") + " '" + list + "' lists all"
	}
	return "'" + list + "' lists all"
}

// Choices lists words to choose from: a, b or c.
func Choices(words []string) string {
	last := len(words) - 1
	return strings.Join(words[:last], ", ") + " or " + words[last]
}

// plainWord matches words that a shell passes on unchanged.
var plainWord = regexp.MustCompile(`^[A-Za-z0-9_@%+=:,./-]+$`)

// Quote returns a word quoted for a shell.
func Quote(s string) string {
	if plainWord.MatchString(s) {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}

// Join returns a command line of quoted words.
func Join(words []string) string {
	quoted := make([]string, len(words))
	for i, w := range words {
		quoted[i] = Quote(w)
	}
	return strings.Join(quoted, " ")
}
