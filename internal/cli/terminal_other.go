//go:build !unix

package cli

import "os"

// TerminalWidth returns 0, as for a file that is not a terminal: this system is not supported.
func TerminalWidth(*os.File) int { return 0 }
