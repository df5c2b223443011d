package sim

import (
	"fmt"
	"runtime/debug"
	"strings"

	"github.com/fabrictest/fabrictest/internal/goroutine"
)

// WrongGoroutineError is the value of the panic in a goroutine that a program started and that
// called into the world: only the goroutine of the program itself may.
type WrongGoroutineError struct {
	Call      string // the function that was called
	CallSite  string // the place of the call, as file:line
	StartSite string // the place of the go statement
}

func (e *WrongGoroutineError) Error() string {
	return fmt.Sprintf("%s, called at %s, belongs to a simulated world, and the caller is a goroutine that was started at %s: "+
		"in a simulated world one program runs at a time, in the goroutine that it was called in. "+
		"Call it from the program itself (without go), start a program of its own for it (sim.World.Go, or one more rank), "+
		"or run in network namespaces (--on netns), where goroutines are allowed", e.Call, e.CallSite, e.StartSite)
}

// mustOwn panics in a goroutine that is neither the world's nor that of the program that
// is running.
func (w *World) mustOwn() {
	owner := w.goroutine
	if w.current != nil {
		owner = w.current.goroutine
	}
	if w.running && owner != goroutine.Self() {
		panic(foreign(string(debug.Stack())))
	}
}

// foreign reads from a stack who called what.
func foreign(stack string) *WrongGoroutineError {
	e := &WrongGoroutineError{Call: "a call", CallSite: "an unknown place", StartSite: "an unknown place"}
	frames, created, ok := strings.Cut(stack, "\ncreated by ")
	if !ok {
		return e
	}
	if _, place, ok := strings.Cut(created, "\n"); ok {
		e.StartSite = placeOf(place)
	}
	// Each frame has two lines, and that of the goroutine's own function is the last. The
	// call is the first from there that is ours.
	lines := strings.Split(frames, "\n")
	for n := len(lines); n >= 4; n -= 2 {
		e.CallSite, e.Call = placeOf(lines[n-1]), functionOf(lines[n-4])
		if isOurs(lines[n-4]) {
			break
		}
	}
	return e
}

// isOurs reports whether a function of a stack is of this module, and no test.
func isOurs(line string) bool {
	const module = "github.com/fabrictest/fabrictest/"
	name, ok := strings.CutPrefix(line, module)
	pkg, _, _ := strings.Cut(name[strings.LastIndexByte(name, '/')+1:], ".")
	return ok && !strings.HasSuffix(pkg, "_test") && !strings.HasPrefix(name, "examples/")
}

// placeOf is the file:line of a line of a stack.
func placeOf(line string) string {
	line, _, _ = strings.Cut(strings.TrimSpace(line), "\n")
	place, _, _ := strings.Cut(line, " +0x")
	return place
}

// functionOf is the function of a line of a stack, without path and arguments.
func functionOf(line string) string {
	if i := strings.LastIndexByte(line, '('); i > 0 {
		line = line[:i]
	}
	return line[strings.LastIndexByte(line, '/')+1:]
}
