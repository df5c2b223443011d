package mpihost

import (
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
)

// captureOutput redirects the standard output of the process to a file. output returns its lines since the
// last call, sorted: the order of lines of several ranks is not a result of the program.
func captureOutput() (output func() string, err error) {
	f, err := os.CreateTemp("", "fabrictest-output-*")
	if err == nil {
		err = os.Remove(f.Name())
	}
	if err != nil {
		return nil, fmt.Errorf("the output of the ranks: %w", err)
	}
	os.Stdout = f
	return func() string {
		end, err := f.Seek(0, io.SeekCurrent)
		if err != nil || end == 0 {
			return ""
		}
		text := make([]byte, end)
		_, err = f.ReadAt(text, 0)
		if err == nil {
			err = f.Truncate(0)
		}
		if err == nil {
			_, err = f.Seek(0, io.SeekStart)
		}
		if err != nil {
			return "\nthe output cannot be read: " + err.Error()
		}
		lines := strings.Split(strings.TrimSuffix(string(text), "\n"), "\n")
		slices.Sort(lines)
		return "\noutput: " + strings.Join(lines, "\noutput: ")
	}, nil
}
