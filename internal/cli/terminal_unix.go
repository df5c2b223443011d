//go:build unix

package cli

import (
	"os"

	"golang.org/x/sys/unix"
)

// TerminalWidth returns the width of a terminal in columns: 0 if the file is not a terminal,
// and 80 if the terminal does not report its width.
func TerminalWidth(f *os.File) int {
	size, err := unix.IoctlGetWinsize(int(f.Fd()), unix.TIOCGWINSZ)
	switch {
	case err != nil:
		return 0
	case size.Col == 0:
		return 80
	}
	return int(size.Col)
}
