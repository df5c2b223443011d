//go:build !unix

package printable

import "os"

// Columns returns 0, as for a file that is no terminal.
func Columns(*os.File) int { return 0 }
