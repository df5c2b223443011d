//go:build unix

package textfmt

import (
	"os"

	"golang.org/x/sys/unix"
)

// TerminalWidth returns the width of the terminal behind a file: 0 if it is none, and 80 if the
// terminal does not know.
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
