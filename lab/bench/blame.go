package bench

import (
	"bytes"
	"fmt"
	"strings"

	"github.com/fabrictest/fabrictest/conformance"
)

// crashError is a panic.
type crashError struct {
	value any
	stack []byte
	fault error // of the device, if it is
}

// crashed says whose fault a panic is, by the stack that it happened on. A device
// that crashes violates whatever is asked of it; a case that does is broken.
func crashed(value any, stack []byte) error {
	c := &crashError{value: value, stack: stack}
	if f := culprit(stack); isDevice(f) {
		c.fault = conformance.Violatedf("a device that survives", "it crashed: %v, in %s", value, f)
	}
	return c
}

func (c *crashError) Error() string {
	if c.fault != nil {
		return c.fault.Error()
	}
	return fmt.Sprintf("panic: %v\n\n%s", c.value, c.stack)
}

func (c *crashError) Unwrap() error { return c.fault }

// module is the path that functions of this module begin with.
const module = "github.com/fabrictest/fabrictest/"

// isDevice reports whether a function belongs to an emulated device. The simulated
// world does not: it panics when it is misused.
func isDevice(function string) bool {
	rest, ok := strings.CutPrefix(function, module+"emu/")
	return ok && !strings.HasPrefix(rest, "sim.") && !strings.HasPrefix(rest, "internal/simdrive.")
}

// culprit is the function of this module in which the trouble began that a stack
// tells of; empty if none is on it.
func culprit(stack []byte) string {
	// A stack is told from its end: the last panic in the text is the first that
	// was, and behind it comes who panicked.
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
