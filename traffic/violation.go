package traffic

import (
	"fmt"
	"time"
)

// ViolationKind is the category of a guarantee that the fabric or a device has broken.
type ViolationKind string

// The kinds of violations.
const (
	Contents   ViolationKind = "contents"   // messages or memory: wrong bytes, wrong length, or at the wrong place
	Delivery   ViolationKind = "delivery"   // a message lost, reordered, duplicated, or never sent
	Completion ViolationKind = "completion" // requests and receives: missing, duplicate, or with wrong fields
	Connection ViolationKind = "connection" // behaviour of the connection manager
	Omitted    ViolationKind = "unsaid"     // number of violations that are not described
)

// StallError means that a program made no progress for too long.
type StallError struct {
	After  time.Duration
	Status string // of the program
}

func (e *StallError) Error() string {
	return fmt.Sprintf("nothing happened for %v: %s", e.After, e.Status)
}
