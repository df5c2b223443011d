package cmdline

import "strings"

// Line is a command line to be printed, for a user to run again.
type Line struct{ words []string }

// NewLine begins a command line with words that are not quoted.
func NewLine(words string) *Line { return &Line{[]string{words}} }

// Args adds quoted arguments.
func (l *Line) Args(args ...string) *Line {
	for _, a := range args {
		l.words = append(l.words, Quote(a))
	}
	return l
}

// Flag adds a flag for each value that is not empty.
func (l *Line) Flag(name string, values ...string) *Line {
	for _, v := range values {
		if v != "" {
			l.words = append(l.words, "--"+name+" "+Quote(v))
		}
	}
	return l
}

// Switch adds a flag without a value, if it is on.
func (l *Line) Switch(name string, on bool) *Line {
	if on {
		l.words = append(l.words, "--"+name)
	}
	return l
}

// Add adds words that are not quoted; empty ones are left out.
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
