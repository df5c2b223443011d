package conformance

import (
	"errors"
	"fmt"
)

// Violation reports that a device does not meet a requirement.
type Violation struct { //nolint:errname // it is a verdict that happens to be an error
	// Want is the required behaviour, Got the observed behaviour.
	Want, Got string
}

func (v *Violation) Error() string { return "want " + v.Want + ", got " + v.Got }

// Violated returns a [*Violation].
func Violated(want, got string) error { return &Violation{want, got} }

// Violatedf is Violated with a format for the observed behaviour.
func Violatedf(want, format string, args ...any) error {
	return &Violation{want, fmt.Sprintf(format, args...)}
}

// IsViolation reports whether err is, or wraps, a [*Violation].
func IsViolation(err error) bool {
	var v *Violation
	return errors.As(err, &v)
}

// ErrBenchCannot is returned by a wire that cannot send a packet, or a bench that lacks a
// function. The verdict is then unsupported. Wrap it with the reason.
var ErrBenchCannot = errors.New("cannot be done on this bench")
