//go:build unix

package show

import (
	"os"

	"golang.org/x/sys/unix"
)

// windowWidth returns the number of columns of a terminal, or 0.
func windowWidth(f *os.File) int {
	size, err := unix.IoctlGetWinsize(int(f.Fd()), unix.TIOCGWINSZ)
	if err != nil {
		return 0
	}
	return int(size.Col)
}
