//go:build !linux

package launch

import "os"

func executablePath() (string, error) { return os.Executable() }

// killStrays is not supported here: processes that left the process group of their
// rank are not found.
func killStrays(string, int) {}
