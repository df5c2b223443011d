package main

import (
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"

	"github.com/fabrictest/fabrictest/internal/cmdline"
	"github.com/fabrictest/fabrictest/internal/printable"
	"github.com/fabrictest/fabrictest/report"
)

// The output of every command is cleaned (printable.Writer): text of certificates, agents,
// guests, captures, scenarios and peers reaches no terminal as it is. uncleaned is for
// those who write escape sequences of their own, and clean what they show themselves,
// and for processes of ours, which clean their own output.
func uncleaned(w io.Writer) io.Writer {
	if v, ok := w.(*printable.Writer); ok {
		return v.W
	}
	return w
}

// terminalOf is the terminal that a command writes to, nil if it is none or a dumb one.
func terminalOf(w io.Writer) *os.File {
	f, ok := uncleaned(w).(*os.File)
	if !ok || os.Getenv("TERM") == "dumb" || !isTerminal(f) {
		return nil
	}
	return f
}

func isTerminal(f *os.File) bool {
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}

// ofProgram is where the output of a guest's program goes: cleaned to a terminal, and as
// it is to a file or a pipe, which may want its bytes.
func ofProgram(w io.Writer) io.Writer {
	if f, ok := uncleaned(w).(*os.File); ok && !isTerminal(f) {
		return f
	}
	return w
}

// printJSON prints a value as indented JSON.
func printJSON(w io.Writer, v any) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	e.SetEscapeHTML(false)
	return e.Encode(v)
}

// programResult makes the exit code of a program that was run for the user the exit
// code of this one. A program that is not there is a mistake of the caller.
func programResult(code int, err error) error {
	var missing *exec.Error
	switch {
	case errors.As(err, &missing):
		return &cmdline.Error{Err: err}
	case err == nil && code != 0:
		return exitError(code)
	}
	return err
}

// newProgressLine shows progress on the terminal that a command writes to, or as lines.
func newProgressLine(w io.Writer) *report.ProgressLine {
	if f := terminalOf(w); f != nil {
		return report.NewProgressLine(f, true)
	}
	return report.NewProgressLine(w, false)
}
