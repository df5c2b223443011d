package bench

import (
	"bytes"
	"fmt"
	"strings"

	"github.com/fabrictest/fabrictest/conformance"
)

// crashError is the error of a panic.
type crashError struct {
	value     any
	stack     []byte
	violation error // set if the device panicked
}

// newCrashError returns the error of a panic: a violation if the stack shows that
// the device panicked, else a broken case.
func newCrashError(value any, stack []byte) error {
	c := &crashError{value: value, stack: stack}
	if f := panickingFunction(stack); isDevice(f) {
		c.violation = conformance.Violatedf("a device that survives", "it crashed: %v, in %s", value, f)
	}
	return c
}

func (c *crashError) Error() string {
	if c.violation != nil {
		return c.violation.Error()
	}
	return fmt.Sprintf("panic: %v\n\n%s", c.value, c.stack)
}

func (c *crashError) Unwrap() error { return c.violation }

// module is the path prefix of the functions of this module.
const module = "github.com/fabrictest/fabrictest/"

// isDevice reports whether a function belongs to an emulated device. The simulator
// does not: it panics on misuse.
func isDevice(function string) bool {
	rest, ok := strings.CutPrefix(function, module+"emu/")
	return ok && !strings.HasPrefix(rest, "sim.")
}

// panickingFunction returns the function of this module that panicked first; empty
// if none is on the stack.
func panickingFunction(stack []byte) string {
	// Of nested panics, the last in the text was the first. Its function follows.
	if i := bytes.LastIndex(stack, []byte("\npanic(")); i >= 0 {
		stack = stack[i+1:]
	}
	for line := range strings.Lines(string(stack)) {
		if strings.HasPrefix(line, module) {
			return strings.TrimSpace(line[:strings.LastIndexByte(line, '(')])
		}
	}
	return ""
}
