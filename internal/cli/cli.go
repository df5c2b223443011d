// Package cli has what commands, and the packages below them, write to users and take from them.
// For input: errors in how a command was called, suggestions for misspelled words, seeds, and the
// files that the command line names. For output: quoted words, quantities as text, control
// characters of untrusted text escaped ([Printable]), and the width of a terminal. Sizes are in
// binary units, rates and times in SI units, with a space before the unit and three or four
// significant digits. The package parses no flags; cmd/fabrictest does.
package cli

import (
	"cmp"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
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
// run?", or "" if no known word is similar.
func Guess(word string, known []string) string {
	if similar := Similar(word, known); len(similar) > 0 {
		return "; did you mean " + strings.Join(similar, ", ") + "?"
	}
	return ""
}

// DidYouMean returns the end of an error message about an unknown word. listCommand is the command
// that lists all words: "did you mean run? 'fabrictest list' lists all", or only the second part if
// no known word is similar.
func DidYouMean(word string, known []string, listCommand string) string {
	listHint := "'" + listCommand + "' lists all"
	if guess := Guess(word, known); guess != "" {
		return strings.TrimPrefix(guess, "; ") + " " + listHint
	}
	return listHint
}

// Choices lists one or more words to choose from: "a, b or c".
func Choices(words []string) string {
	last := len(words) - 1
	return strings.TrimPrefix(strings.Join(words[:last], ", ")+" or "+words[last], " or ")
}

// plainWord matches words that a shell passes on unchanged.
var plainWord = regexp.MustCompile(`^[A-Za-z0-9_@%+=:,./-]+$`)

// Quote returns a word as a shell needs it: in single quotes, unless it has no special characters.
func Quote(s string) string {
	if plainWord.MatchString(s) {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}

// Join returns a command line of words, each quoted if a shell needs that.
func Join(words []string) string {
	return new(Line).Args(words...).String()
}

// Line is a command line to be printed, for a user to run again.
type Line struct{ words []string }

// NewLine begins a command line with words that are not quoted.
func NewLine(words string) *Line { return &Line{[]string{words}} }

// Args adds arguments to the command line, quoted if a shell needs that.
func (l *Line) Args(args ...string) *Line {
	for _, a := range args {
		l.words = append(l.words, Quote(a))
	}
	return l
}

// Flag adds "--name value" for each value that is not empty.
func (l *Line) Flag(name string, values ...string) *Line {
	for _, v := range values {
		if v != "" {
			l.words = append(l.words, "--"+name+" "+Quote(v))
		}
	}
	return l
}

// Number adds "--name n", unless n is 0.
func (l *Line) Number(name string, n uint64) *Line {
	if n == 0 {
		return l
	}
	return l.Flag(name, strconv.FormatUint(n, 10))
}

// Switch adds "--name", a flag without a value, if on is set.
func (l *Line) Switch(name string, on bool) *Line {
	if on {
		l.words = append(l.words, "--"+name)
	}
	return l
}

// Add adds words to the command line as they are, without quotes; it leaves out empty ones.
func (l *Line) Add(words ...string) *Line {
	for _, w := range words {
		if w != "" {
			l.words = append(l.words, w)
		}
	}
	return l
}

// String returns the command line.
func (l *Line) String() string { return strings.Join(l.words, " ") }

const maxSuggestions = 5

// Similar returns up to maxSuggestions known words that are similar to word, the most similar
// first. Known words that contain word are the most similar, if word has three or more letters;
// others have an edit distance of at most a third of word's length. Case is ignored.
func Similar(word string, known []string) []string {
	type candidate struct {
		word     string
		distance int
	}
	lower := strings.ToLower(word)
	var candidates []candidate
	for _, k := range known {
		l := strings.ToLower(k)
		if len(lower) >= 3 && strings.Contains(l, lower) {
			candidates = append(candidates, candidate{k, 0})
		} else if d := EditDistance(lower, l); d <= len(lower)/3 {
			candidates = append(candidates, candidate{k, d})
		}
	}
	slices.SortStableFunc(candidates, func(a, b candidate) int { return cmp.Compare(a.distance, b.distance) })
	words := make([]string, 0, maxSuggestions)
	for _, c := range candidates[:min(len(candidates), maxSuggestions)] {
		words = append(words, c.word)
	}
	return words
}

// EditDistance returns the number of bytes to insert, delete, replace or swap with
// their neighbour to turn a into b (optimal string alignment). If one is longer than twice the
// other plus 8, it saves the computation and returns the longer length, an upper bound.
func EditDistance(a, b string) int {
	if d := len(a) - len(b); d > len(b)+8 || -d > len(a)+8 {
		return max(len(a), len(b))
	}
	// row[j] is the distance between a[:i+1] and b[:j]; prev and prev2 are the rows before.
	prev2, prev, row := make([]int, len(b)+1), make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range prev {
		prev[j] = j
	}
	for i := range len(a) {
		row[0] = i + 1
		for j := range len(b) {
			replaced := prev[j]
			if a[i] != b[j] {
				replaced++
			}
			row[j+1] = min(replaced, prev[j+1]+1, row[j]+1)
			if i > 0 && j > 0 && a[i] == b[j-1] && a[i-1] == b[j] {
				row[j+1] = min(row[j+1], prev2[j-1]+1)
			}
		}
		prev2, prev, row = prev, row, prev2
	}
	return prev[len(b)]
}

// goBuildDir matches the go command's temporary folders, and the executables in its cache.
var goBuildDir = regexp.MustCompile(`/go-build[0-9]*/|/[0-9a-f]{2}/[0-9a-f]{64}-d/`)

// GoRun runs the program in a checkout.
const GoRun = "go run ./cmd/fabrictest"

// Invocation returns the command that starts this program, for command lines that it prints.
// arg0 is os.Args[0]. The result is GoRun if "go run" started the program, its name if a shell
// finds it on PATH, else its path.
func Invocation(arg0 string) string {
	if goBuildDir.MatchString(filepath.ToSlash(arg0)) {
		return GoRun
	}
	base := filepath.Base(arg0)
	if base == arg0 || isOnPath(arg0, base) {
		return base
	}
	return Quote(arg0)
}

// isOnPath reports whether a shell that looks up name on PATH finds the file program.
func isOnPath(program, name string) bool {
	found, err := exec.LookPath(name)
	if err != nil {
		return false
	}
	a, errA := os.Stat(program)
	b, errB := os.Stat(found)
	return errA == nil && errB == nil && os.SameFile(a, b)
}
