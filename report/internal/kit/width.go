package kit

import (
	"io"
	"os"
	"unicode"

	"github.com/fabrictest/fabrictest/internal/cli"
)

// TextWidth returns the number of terminal columns of a text.
func TextWidth(s string) int {
	n := 0
	for _, r := range s {
		n += runeWidth(r)
	}
	return n
}

// runeWidth returns the number of terminal columns of a rune: none for a combining or invisible
// one, two for a wide one.
func runeWidth(r rune) int {
	switch {
	case unicode.In(r, unicode.Mn, unicode.Me, unicode.Cf):
		return 0
	case unicode.In(r, unicode.Han, unicode.Hangul, unicode.Hiragana, unicode.Katakana),
		r >= 0x1f300 && r <= 0x1faff, // emoji and pictographs
		r >= 0xff01 && r <= 0xff60:   // full-width forms
		return 2
	}
	return 1
}

// Cut truncates a text of more than n terminal columns, with "…" at its end.
func Cut(s string, n int) string {
	if TextWidth(s) <= n {
		return s
	}
	w := 0
	for i, r := range s {
		w += runeWidth(r)
		if w > n-1 {
			return s[:i] + "…"
		}
	}
	return s
}

// Terminal is a terminal.
type Terminal interface {
	io.Writer
	// Columns is the current width in characters; 0 if it is no terminal.
	Columns() int
}

// columns returns the width of the terminal that w writes to; 0 if w is no terminal.
func columns(w io.Writer) int {
	if t := terminal(w); t != nil {
		return t.Columns()
	}
	return 0
}

// terminal returns a writer as a Terminal; nil if it is neither a Terminal nor a file.
func terminal(w io.Writer) Terminal {
	switch w := w.(type) {
	case Terminal:
		return w
	case *os.File:
		if w != nil {
			return fileTerminal{w}
		}
	}
	return nil
}

// fileTerminal queries the width each time, since windows are resized.
type fileTerminal struct{ *os.File }

func (f fileTerminal) Columns() int { return cli.TerminalWidth(f.File) }
