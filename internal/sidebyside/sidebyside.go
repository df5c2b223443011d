// Package sidebyside is for tests that mostly wait: for a process, for a timer, for
// an answer that does not come. They need no processor each, and the usual number of
// tests that run in parallel is that of processors.
package sidebyside

import (
	"flag"
	"strconv"
)

// Tests lets up to n tests that are marked as parallel run at once. A TestMain says so
// before its tests run, and before flags are parsed: what -parallel says goes.
func Tests(n int) {
	if err := flag.Set("test.parallel", strconv.Itoa(n)); err != nil {
		panic(err) // no test binary
	}
}
