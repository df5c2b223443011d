//go:build !unix

package console

import "os"

// fileColumns takes nothing for a terminal: plain lines are right everywhere.
func fileColumns(*os.File) int { return 0 }
