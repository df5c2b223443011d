package wire

import (
	"errors"
	"fmt"
)

// Errors of Parse. They are allocated once, at start-up. Compare with errors.Is: the error
// of a short header also has its name.
var (
	// ErrShort: the packet ends inside a header or the ICRC.
	ErrShort = errors.New("packet too short")
	// ErrPad: the pad count is larger than the payload.
	ErrPad = errors.New("pad count exceeds payload")
	// ErrOpcode: no transport defines the opcode.
	ErrOpcode = errors.New("reserved opcode")
)

// shortError returns the ErrShort of a header.
func shortError(header string, need int) error {
	return fmt.Errorf("%s of %d bytes: %w", header, need, ErrShort)
}
