package sim

import (
	"fmt"
	"runtime/debug"
	"strings"

	"github.com/fabrictest/fabrictest/internal/process"
)

// WrongGoroutineError is the panic value of a call into the world from a
// goroutine that a program started. Only the program's own goroutine may call.
type WrongGoroutineError struct {
	Call      string // called function
	CallSite  string // file:line of the call
	StartSite string // file:line of the go statement
}

func (e *WrongGoroutineError) Error() string {
	return fmt.Sprintf("%s, called at %s, belongs to a simulated world, but its caller is a goroutine started at %s: "+
		"a simulated world runs one program at a time, in its own goroutine. "+
		"Call it from the program itself (without go), start another program for it (sim.World.Go, or one more rank), "+
		"or run in network namespaces (--on netns), where goroutines are allowed", e.Call, e.CallSite, e.StartSite)
}

// checkGoroutine panics unless the caller is the goroutine of Run or of the
// running program.
func (w *World) checkGoroutine() {
	owner := w.goroutine
	if w.current != nil {
		owner = w.current.goroutine
	}
	if w.running && owner != process.Goroutine() {
		panic(newWrongGoroutineError(string(debug.Stack())))
	}
}

// newWrongGoroutineError finds the call and the go statement in a stack trace.
func newWrongGoroutineError(stack string) *WrongGoroutineError {
	e := &WrongGoroutineError{Call: "a call", CallSite: "an unknown place", StartSite: "an unknown place"}
	frames, created, ok := strings.Cut(stack, "\ncreated by ")
	if !ok {
		return e
	}
	if _, place, ok := strings.Cut(created, "\n"); ok {
		e.StartSite = fileLineOf(place)
	}
	// Each frame has two lines, and the outermost function is last. The call is
	// the first frame from there that belongs to this module.
	lines := strings.Split(frames, "\n")
	for n := len(lines); n >= 4; n -= 2 {
		e.CallSite, e.Call = fileLineOf(lines[n-1]), functionOf(lines[n-4])
		if isModuleFunction(lines[n-4]) {
			break
		}
	}
	return e
}

// isModuleFunction reports whether a stack line names a function of this module
// outside of tests and examples.
func isModuleFunction(line string) bool {
	const module = "github.com/fabrictest/fabrictest/"
	name, ok := strings.CutPrefix(line, module)
	pkg, _, _ := strings.Cut(name[strings.LastIndexByte(name, '/')+1:], ".")
	return ok && !strings.HasSuffix(pkg, "_test") && !strings.HasPrefix(name, "examples/")
}

// fileLineOf returns the file:line of a stack line.
func fileLineOf(line string) string {
	line, _, _ = strings.Cut(strings.TrimSpace(line), "\n")
	place, _, _ := strings.Cut(line, " +0x")
	return place
}

// functionOf returns the function of a stack line, without path and arguments.
func functionOf(line string) string {
	if i := strings.LastIndexByte(line, '('); i > 0 {
		line = line[:i]
	}
	return line[strings.LastIndexByte(line, '/')+1:]
}
