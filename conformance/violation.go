package conformance

import (
	"errors"
	"fmt"
)

// Violation says that a device does not do what a clause demands.
type Violation struct { //nolint:errname // it is a verdict that happens to be an error
	// Want is what the clause demands, Got what the device did.
	Want, Got string
}

// Error tells both.
func (v *Violation) Error() string { return "want " + v.Want + ", got " + v.Got }

// Violated returns a [*Violation].
func Violated(want, got string) error { return &Violation{want, got} }

// Violatedf is Violated with a format for what was got.
func Violatedf(want, format string, args ...any) error {
	return &Violation{want, fmt.Sprintf(format, args...)}
}

// IsViolation reports whether err is, or wraps, a [*Violation].
func IsViolation(err error) bool {
	var v *Violation
	return errors.As(err, &v)
}

// ErrCannot is what a wire returns that cannot carry what it was given, or a bench
// that cannot do what it was asked to: the case is then unsupported here. Wrap it
// with the reason.
var ErrCannot = errors.New("cannot be done on this bench")
