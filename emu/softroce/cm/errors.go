package cm

import (
	"errors"
	"fmt"
)

// Errors of this package wrap one of these, or wire.ErrTooLong for private data that is too long.
var (
	ErrUnknown = errors.New("no such ID")
	ErrState   = errors.New("not possible in this state")
	ErrInUse   = errors.New("service and address already listened on")
	ErrLimit   = errors.New("limit reached")
	ErrParam   = errors.New("invalid parameter")
)

// badParam returns an ErrParam about a parameter of an operation and its value.
func badParam(op, what string, value any) error {
	return fmt.Errorf("%s: %w: %s %v", op, ErrParam, what, value)
}
