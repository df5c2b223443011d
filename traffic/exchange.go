package traffic

import (
	"fmt"
	"time"

	"github.com/fabrictest/fabrictest/verbs"
)

// Exchange is a control channel between two ends, for queue pair numbers, keys and the end
// of the traffic. It is reliable and in order.
type Exchange interface {
	Send(msg []byte) error
	// Recv returns the next message of the peer, or verbs.ErrTimeout after timeout; a
	// negative timeout is infinite.
	Recv(timeout time.Duration) ([]byte, error)
}

// RealTime returns a Proc for goroutines, whose clock starts now.
func RealTime() verbs.Proc { return realTime{start: time.Now()} }

type realTime struct{ start time.Time }

func (r realTime) Now() time.Duration    { return time.Since(r.start) }
func (r realTime) Sleep(d time.Duration) { time.Sleep(d) }

// Compute implements verbs.Proc: it keeps the CPU busy for a time.
func (r realTime) Compute(d time.Duration) {
	for end := r.Now() + d; r.Now() < end; {
		continue
	}
}

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
