package wire

import (
	"errors"
	"fmt"
)

// What parsing finds wrong. The errors it returns are made once, at start-up: a
// flood of bad input costs no allocation. Compare with errors.Is, since the
// error of a short header also names the header.
var (
	// ErrShort is input that ends inside a header. From a stream it means that
	// more has to come.
	ErrShort = errors.New("too short")
	// ErrKey is input that begins neither an MPA request nor an MPA reply.
	ErrKey = errors.New("neither key of an MPA start-up frame")
	// ErrPrivateData is a start-up frame whose private data is longer than
	// MaxPrivateData.
	ErrPrivateData = fmt.Errorf("private data of an MPA start-up frame exceeds %d octets", MaxPrivateData)
)

// shortError says which header the input ends in.
func shortError(header string, need int) error {
	return fmt.Errorf("%s of %d octets: %w", header, need, ErrShort)
}
