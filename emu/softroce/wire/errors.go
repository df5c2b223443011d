package wire

import (
	"errors"
	"fmt"
)

// What Parse finds wrong. The errors it returns are made once, at start-up: a
// flood of bad packets costs no allocation. Compare with errors.Is, since the
// error of a short header also names the header.
var (
	// ErrShort is a packet that ends inside a header or inside the ICRC.
	ErrShort = errors.New("packet too short")
	// ErrPad is a pad count larger than what lies between headers and ICRC.
	ErrPad = errors.New("pad count exceeds payload")
	// ErrOpcode is an opcode that no transport defines.
	ErrOpcode = errors.New("reserved opcode")
)

// shortError says which header a packet ends in.
func shortError(header string, need int) error {
	return fmt.Errorf("%s of %d bytes: %w", header, need, ErrShort)
}
