package traffic

import (
	"fmt"
	"time"
)

// Violation is something that the service does not allow.
type Violation struct { //nolint:errname // a finding, not a failure: what judges call it too
	Where string // lane, direction and request
	Want  string
	Got   string
}

// Error says where, and what was wrong.
func (v *Violation) Error() string {
	return fmt.Sprintf("%s: %s; want %s", v.Where, v.Got, v.Want)
}

// StallError is an end whose Patience is exhausted.
type StallError struct {
	After  time.Duration
	Status string // as End.Status says
}

// Error says what the end was waiting for.
func (e *StallError) Error() string {
	return fmt.Sprintf("nothing happened for %v: %s", e.After, e.Status)
}
