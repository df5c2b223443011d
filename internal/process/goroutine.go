package process

// Goroutine returns a number that is unique among running goroutines, in about a
// nanosecond: the g pointer of the Go runtime. It detects calls from the wrong goroutine. It
// returns 0 on architectures other than amd64 and arm64.
func Goroutine() uintptr { return self() }
