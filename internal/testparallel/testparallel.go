// Package testparallel raises the number of parallel tests of a test binary. It is
// for tests that mostly wait for processes and timers: go test's default limit,
// the number of CPUs, would make them run one after another.
package testparallel

import (
	"flag"
	"strconv"
)

// SetLimit lets up to n parallel tests run at once, as -parallel=n does. TestMain
// calls it before flags are parsed, and an explicit -parallel flag overrides it.
func SetLimit(n int) {
	if err := flag.Set("test.parallel", strconv.Itoa(n)); err != nil {
		panic(err) // not a test binary
	}
}
