package wire

import (
	"errors"
	"fmt"
)

// Errors of Parse. They are allocated once, at start-up. Compare with errors.Is: the error
// of a short header also has its name.
var (
	// ErrShort: the input ends inside a header. In a stream more octets may follow.
	ErrShort = errors.New("too short")
	// ErrKey: the input begins neither an MPA request nor an MPA reply.
	ErrKey = errors.New("neither key of an MPA start-up frame")
	// ErrPrivateData: the private data of a start-up frame is longer than MaxPrivateData.
	ErrPrivateData = fmt.Errorf("private data of an MPA start-up frame exceeds %d octets", MaxPrivateData)
)

// shortError returns the error for an input that ends inside a header of need octets.
func shortError(header string, need int) error {
	return fmt.Errorf("%s of %d octets: %w", header, need, ErrShort)
}
