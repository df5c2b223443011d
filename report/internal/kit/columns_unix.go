//go:build unix

package kit

import (
	"os"

	"golang.org/x/sys/unix"
)

// fileColumns is the width of the terminal behind a file, 0 if there is none,
// and the usual one if it does not say.
func fileColumns(f *os.File) int {
	size, err := unix.IoctlGetWinsize(int(f.Fd()), unix.TIOCGWINSZ)
	switch {
	case err != nil:
		return 0
	case size.Col == 0:
		return 80
	default:
		return int(size.Col)
	}
}
