//go:build !unix

package kit

import "os"

// fileColumns takes nothing for a terminal: plain lines are right everywhere.
func fileColumns(*os.File) int { return 0 }
