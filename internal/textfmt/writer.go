package textfmt

import (
	"bytes"
	"io"
	"sync"
	"unicode/utf8"
)

// PrintableWriter writes text to W, escaped by [Printable]. It may be used from several goroutines.
type PrintableWriter struct {
	W io.Writer

	mu   sync.Mutex
	rest []byte // incomplete UTF-8 sequence at the end of the last write
}

// Write implements io.Writer.
func (w *PrintableWriter) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	text := append(w.rest, p...)
	whole := len(text) - incomplete(text)
	w.rest = bytes.Clone(text[whole:])
	if _, err := io.WriteString(w.W, Printable(string(text[:whole]))); err != nil {
		return 0, err
	}
	return len(p), nil
}

// Flush writes an incomplete UTF-8 sequence.
func (w *PrintableWriter) Flush() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	_, err := io.WriteString(w.W, Printable(string(w.rest)))
	w.rest = nil
	return err
}

// incomplete returns the length of an incomplete UTF-8 sequence at the end of text.
func incomplete(text []byte) int {
	for n := 1; n < utf8.UTFMax && n <= len(text); n++ {
		if b := text[len(text)-n:]; utf8.RuneStart(b[0]) {
			if utf8.FullRune(b) {
				return 0
			}
			return n
		}
	}
	return 0
}
