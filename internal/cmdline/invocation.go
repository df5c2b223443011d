package cmdline

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
)

// goBuildDir matches the go command's temporary folders, and its cache.
var goBuildDir = regexp.MustCompile(`/go-build[0-9]*/`)

// GoRun runs the program in a checkout.
const GoRun = "go run ./cmd/fabrictest"

// Invocation returns how the program was called, for command lines that it prints: its
// name if the shell finds it on PATH, else its path. A program in a go-build folder was
// started by "go run".
func Invocation(arg0 string) string {
	if goBuildDir.MatchString(filepath.ToSlash(arg0)) {
		return GoRun
	}
	base := filepath.Base(arg0)
	if base == arg0 || sameFile(arg0, base) {
		return base
	}
	return Quote(arg0)
}

// sameFile reports whether the shell finds a program under a name.
func sameFile(program, name string) bool {
	found, err := exec.LookPath(name)
	if err != nil {
		return false
	}
	a, errA := os.Stat(program)
	b, errB := os.Stat(found)
	return errA == nil && errB == nil && os.SameFile(a, b)
}
