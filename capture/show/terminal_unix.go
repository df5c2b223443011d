//go:build unix

package show

import (
	"os"

	"golang.org/x/sys/unix"
)

// windowWidth is the width of the terminal's window, 0 if it has none.
func windowWidth(f *os.File) int {
	size, err := unix.IoctlGetWinsize(int(f.Fd()), unix.TIOCGWINSZ)
	if err != nil {
		return 0
	}
	return int(size.Col)
}
