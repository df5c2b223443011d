package traffic

import (
	"fmt"
	"time"
)

// Violation is a broken guarantee of the service.
type Violation struct { //nolint:errname // a finding, not a failure
	Where string // lane, direction and request
	Want  string
	Got   string
}

func (v *Violation) Error() string {
	return fmt.Sprintf("%s: %s; want %s", v.Where, v.Got, v.Want)
}

// StallError means that an end made no progress for StallTimeout.
type StallError struct {
	After  time.Duration
	Status string // of End.Status
}

func (e *StallError) Error() string {
	return fmt.Sprintf("nothing happened for %v: %s", e.After, e.Status)
}
