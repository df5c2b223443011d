package main

import (
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"

	"github.com/fabrictest/fabrictest/internal/cli"
	"github.com/fabrictest/fabrictest/report"
	"github.com/fabrictest/fabrictest/report/conform"
	"github.com/fabrictest/fabrictest/report/ranks"
)

// withoutEscapeFilter returns the writer below a cli.PrintableWriter, for displays and
// processes that filter their own output. The PrintableWriter escapes control characters in the
// output of commands: those in texts of agents, guests or captures must not reach a terminal.
func withoutEscapeFilter(w io.Writer) io.Writer {
	if v, ok := w.(*cli.PrintableWriter); ok {
		return v.W
	}
	return w
}

// terminalOf returns the terminal that a command writes to; nil if w is no terminal, or a dumb one.
func terminalOf(w io.Writer) *os.File {
	f, ok := withoutEscapeFilter(w).(*os.File)
	if !ok || os.Getenv("TERM") == "dumb" || !isTerminal(f) {
		return nil
	}
	return f
}

func isTerminal(f *os.File) bool {
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}

// programOutput returns the writer for the output of a guest's program: filtered for a
// terminal, unchanged for a file or a pipe.
func programOutput(w io.Writer) io.Writer {
	if f, ok := withoutEscapeFilter(w).(*os.File); ok && !isTerminal(f) {
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

// programResult returns the error that makes this program exit with code, the exit code of a
// program that it ran for the user. A program that does not exist is a usage error.
func programResult(code int, err error) error {
	var missing *exec.Error
	switch {
	case errors.As(err, &missing):
		return &cli.Error{Err: err}
	case err == nil && code != 0:
		return exitError(code)
	}
	return err
}

// newProgressLine returns a line on the terminal that shows progress; if w is no terminal, progress
// is printed as lines.
func newProgressLine(w io.Writer) *report.ProgressLine {
	const terminal, noTerminal = true, false
	if f := terminalOf(w); f != nil {
		return report.NewProgressLine(f, terminal)
	}
	return report.NewProgressLine(w, noTerminal)
}

// The runs in the user's cache, by kind.
var (
	runs        = report.Cache{Folder: "runs", Result: report.ResultFile}
	conformRuns = report.Cache{Folder: "conform", Result: conform.ResultFile}
	rankRuns    = report.Cache{Folder: "ranks", Result: ranks.ResultFile}
)
