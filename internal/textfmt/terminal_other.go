//go:build !unix

package textfmt

import "os"

// TerminalWidth returns 0, as for a file that is no terminal.
func TerminalWidth(*os.File) int { return 0 }
