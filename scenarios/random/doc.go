// Package random exchanges random verbs traffic between two ends and checks all of it.
// Both ends compute the requests of both sides from a Workload. Therefore each can compare
// every received byte, every completion and the final memory with a model that is
// independent of the device.
//
// Reliable services (RC, XRC, RD) must deliver everything exactly once and in order,
// complete requests in order, and leave the memory that the requests in order produce.
// Unreliable services (UC, UD) may lose messages, and reorder or duplicate them if the
// network does, but must deliver them intact.
//
// Package workload uses it for the workload "random", and tests of the emulated NICs use it
// directly. It imports the standard library and verbs only, opens no device and reads no
// clock: it blocks in completion channels, in the Exchange and in verbs.Proc. Therefore the
// same programs run in a simulated world and in real time. An End belongs to the goroutine
// or program that calls Run; after that, Result and Status report how far it came.
package random

import (
	"time"

	"github.com/fabrictest/fabrictest/traffic"
	"github.com/fabrictest/fabrictest/verbs"
)

// Side is one of the two ends of a workload.
type Side int

// The two sides.
const (
	A Side = 0
	B Side = 1
)

// Peer is the other side.
func (s Side) Peer() Side { return 1 - s }

// String is the letter of the side.
func (s Side) String() string { return string(rune('A' + s)) }

// Env is the environment of an end.
type Env struct {
	Device verbs.Context
	Peer   traffic.Exchange
	// GIDIndex is the source GID in the GID table of the device.
	GIDIndex uint8
	// StallTimeout is how long an end may make no progress before it fails with a
	// *traffic.StallError. 0: no limit, for worlds that detect deadlocks.
	StallTimeout time.Duration
	// Concurrent means that the device accesses memory while the program runs, as in real
	// time. Bytes that a later request may be writing are then checked only at the end.
	Concurrent bool
	// DetectPeerEnd makes the end poll the Exchange while it waits, to notice when the peer
	// has ended: Run returns the error of Recv. It hides deadlocks from a simulated world.
	DetectPeerEnd bool
	// OnStep, if not nil, is called between steps of Run. It may call Result and Status.
	OnStep func()
	// Trace, if not nil, is called for every request posted and completed.
	Trace func(format string, args ...any)
}
