package testutil

import (
	"flag"
	"strconv"
)

// SetParallel lets up to n parallel tests run at once, as -parallel=n does. TestMain
// calls it before flags are parsed, and an explicit -parallel flag overrides it.
func SetParallel(n int) {
	if err := flag.Set("test.parallel", strconv.Itoa(n)); err != nil {
		panic(err) // not a test binary
	}
}
