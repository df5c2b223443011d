//go:build !unix

package show

import "os"

// windowWidth is not supported here.
func windowWidth(*os.File) int { return 0 }
