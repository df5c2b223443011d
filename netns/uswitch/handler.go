package uswitch

import (
	"math"
	"time"
)

// Direction is the direction of a frame at a port.
type Direction uint8

// The directions.
const (
	In  Direction = iota // from the port's cable into the switch
	Out                  // from the switch to the port's cable
)

// String returns "out" or "in".
func (d Direction) String() string {
	if d == Out {
		return "out"
	}
	return "in"
}

// Never is the time of a timer that never fires.
const Never time.Duration = math.MaxInt64

// Frame is an Ethernet frame without FCS.
type Frame struct {
	Bytes []byte
	// ChecksumPartial is Linux's CHECKSUM_PARTIAL: the UDP or TCP checksum field holds only the
	// pseudo-header sum, and the receiving kernel accepts the frame as valid.
	ChecksumPartial bool
}

// Emit forwards a frame after a delay; 0 or less means at once. The caller may
// reuse the bytes when it returns.
type Emit func(after time.Duration, f Frame)

// FrameHandler handles the frames of one port and direction. The switch calls its methods one at a
// time, with times as of [Switch.Now]. A FrameHandler must not be used for two ports or directions.
type FrameHandler interface {
	// Apply handles a frame and calls emit for each frame to forward: f unchanged, other frames,
	// several, or none. It must not change or keep the bytes of f.
	Apply(now time.Duration, f Frame, emit Emit)
	// NextTimer returns when HandleTimer must next be called; Never if not at all.
	NextTimer() time.Duration
	// HandleTimer lets the FrameHandler emit frames that it holds.
	HandleTimer(now time.Duration, emit Emit)
}
