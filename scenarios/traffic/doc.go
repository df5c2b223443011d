// Package traffic exchanges traffic between two ends over verbs and checks all
// of it. What is sent follows from a Workload, which both ends hold: each knows
// what the other will post, so every byte that arrives, every completion and
// the memory image at the end are compared with a model that knows nothing of
// the device.
//
// Reliable services (RC, XRC, RD) must deliver everything exactly once and in
// order, complete requests in order, and leave the memory that the requests in
// order make. Unreliable ones (UC, UD) may lose messages, and reorder or
// duplicate them where the network does, but what arrives must be whole.
//
// The package imports the standard library and verbs only, opens nothing and
// keeps no time of its own: it blocks in completion channels, in the Exchange
// and in verbs.Proc, so that the same programs run in a simulated world and in
// real time. An End belongs to the one goroutine or program that calls Run;
// when that has ended, in whatever way, Result and Status say how far it came.
package traffic

import (
	"time"

	"github.com/fabrictest/fabrictest/verbs"
)

// Side tells the two ends of a workload apart.
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

// Exchange is a way from one end to the other besides the fabric: what tells
// queue pair numbers and keys, and later that an end is done. Messages arrive
// in order and are never lost.
type Exchange interface {
	Send(msg []byte) error
	// Recv returns the peer's next message. It waits for timeout at most
	// (without end if it is negative) and then returns verbs.ErrTimeout.
	Recv(timeout time.Duration) ([]byte, error)
}

// Env is what an end needs of the world around it.
type Env struct {
	Device verbs.Context
	Peer   Exchange
	// GIDIndex is the entry of the device's GID table to send from.
	GIDIndex uint8
	// StallTimeout is how long an end waits while nothing at all happens before it
	// fails with a *StuckError. 0 means without end, for worlds that detect a
	// deadlock themselves.
	StallTimeout time.Duration
	// Concurrent says that the device works on memory while the program runs, as
	// it does in real time. Bytes that a later request may be writing are then
	// left alone until the end.
	Concurrent bool
	// DetectPeerEnd has the end look at the Exchange now and then whatever it waits for,
	// so that it notices when the peer has ended: Run returns the error of Recv.
	// A simulated world cannot tell a deadlock from such an end.
	DetectPeerEnd bool
	// Pulse, if not nil, is called between steps, by the program that called Run:
	// a place to look at Result and Status while things go on.
	OnStep func()
	// Trace, if not nil, is told of every request posted and completed.
	Trace func(format string, args ...any)
}
