package uswitch

import (
	"math"
	"time"
)

// Direction is the way of a frame at a port.
type Direction uint8

// The directions.
const (
	In  Direction = iota // from the port's cable into the switch
	Out                  // from the switch to the port's cable
)

func (d Direction) String() string {
	if d == Out {
		return "out"
	}
	return "in"
}

// Never is a timer that never fires.
const Never time.Duration = math.MaxInt64

// Frame is an Ethernet frame without its check sequence.
type Frame struct {
	Bytes []byte
	// ChecksumPartial says that the checksum of the UDP or TCP header inside is not
	// computed: the field holds the sum over the pseudo-header alone, and the
	// receiving kernel takes the frame as valid. Otherwise the field is as it is
	// on the wire.
	ChecksumPartial bool
}

// Emit sends a frame on, after a time; 0 or less means at once. The bytes are the
// caller's again when it returns.
type Emit func(after time.Duration, f Frame)

// FrameHandler is what happens to frames that pass a port in one direction. Its methods
// are called by the switch alone, one at a time. Times are those of [Switch.Now].
// A Path must not be at two places.
type FrameHandler interface {
	// Apply is given each frame and calls emit for whatever goes on: for f as it
	// is, for others instead, more than once, or not at all. It must not change
	// the bytes of f, nor keep them: a changed frame is a copy.
	Apply(now time.Duration, f Frame, emit Emit)
	// NextTimer is when HandleTimer must next be called; Never if not at all.
	NextTimer() time.Duration
	// HandleTimer lets the Path emit what it has kept back by itself.
	HandleTimer(now time.Duration, emit Emit)
}
