package sim

import (
	"errors"
	"fmt"
	"time"

	"github.com/fabrictest/fabrictest/emu/impair"
)

// StreamConfig is how the byte streams of a Net behave. A stream is reliable:
// what would be a lost packet on the way is time lost here. The impairments of
// ports do not touch streams; these do.
type StreamConfig struct {
	// BufferBytes is how much may be written and not yet read by the peer; 1 MiB
	// if 0.
	BufferBytes int
	// CutPPM is the chance that a segment is cut short at a random place. Bytes
	// arrive in segments, and Read returns no more than one.
	CutPPM uint32
	// StallPPM is the chance that a segment, and so all behind it, is held up for
	// StallFor, as by a loss and its retransmission.
	StallPPM uint32
	StallFor time.Duration
	// CorruptPPM is the chance that a bit of a segment is inverted and TCP's weak
	// checksum does not notice.
	CorruptPPM uint32
	// ResetPPM is the chance that a segment breaks the stream instead of arriving.
	ResetPPM uint32
	// RetryDelay is how long a segment that found no way (partition, link down)
	// waits before it tries again, doubled each time up to RetryDelayMax; after
	// Retries failures the stream breaks. 200 ms, 2 min and 15 if 0.
	RetryDelay, RetryDelayMax time.Duration
	Retries                   int
	// Events are exact.
	Events []StreamEvent
}

// StreamEvent does one exact thing at one place of one stream.
type StreamEvent struct {
	// Conn says which stream, by the order of dialing in the Net: 1 the first, 0
	// every one.
	Conn int
	// FromListener picks the direction: bytes that the listening side writes, or
	// else the dialing side.
	FromListener bool
	// Offset is the place: the number of bytes before it.
	Offset uint64
	Action StreamAction
	// For is how long a stall lasts.
	For time.Duration
	// Bit is which bit of the byte a corruption inverts, 0 the lowest.
	Bit uint8
}

// StreamAction is what a StreamEvent does.
type StreamAction string

// What can be done to a stream at an offset.
const (
	StreamCut     StreamAction = "cut"         // a segment starts there
	StreamStall   StreamAction = "stall"       // the segment that starts there is held up
	StreamCorrupt StreamAction = "corrupt_bit" // a bit of the byte there is inverted
	StreamReset   StreamAction = "reset"       // what is before arrives, then the stream breaks
)

func (c StreamConfig) withDefaults() StreamConfig {
	if c.BufferBytes == 0 {
		c.BufferBytes = 1 << 20
	}
	if c.RetryDelay == 0 {
		c.RetryDelay = 200 * time.Millisecond
	}
	if c.RetryDelayMax == 0 {
		c.RetryDelayMax = max(2*time.Minute, c.RetryDelay)
	}
	if c.Retries == 0 {
		c.Retries = 15
	}
	return c
}

func (c *StreamConfig) validate() error {
	var errs []error
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	for _, f := range []struct {
		name string
		ppm  uint32
	}{{"CutPPM", c.CutPPM}, {"StallPPM", c.StallPPM}, {"CorruptPPM", c.CorruptPPM}, {"ResetPPM", c.ResetPPM}} {
		if f.ppm > impair.PPM {
			bad("Stream.%s %d is more than %d, which is every segment", f.name, f.ppm, impair.PPM)
		}
	}
	if c.BufferBytes < 0 || c.Retries < 0 {
		bad("Stream.BufferBytes %d, Stream.Retries %d: neither may be negative", c.BufferBytes, c.Retries)
	}
	if c.RetryDelay < 0 || c.RetryDelayMax < c.RetryDelay {
		bad("Stream.RetryDelay %v, Stream.RetryDelayMax %v: want 0 < RetryDelay <= RetryDelayMax", c.RetryDelay, c.RetryDelayMax)
	}
	if c.StallFor < 0 || (c.StallPPM > 0 && c.StallFor == 0) {
		bad("Stream.StallFor %v: want a time to stall for", c.StallFor)
	}
	for i, e := range c.Events {
		if err := e.validate(); err != nil {
			bad("Stream.Events[%d]: %w", i, err)
		}
	}
	return errors.Join(errs...)
}

func (e *StreamEvent) validate() error {
	switch {
	case e.Conn < 0:
		return fmt.Errorf("Conn %d is negative (1 the first, 0 every one)", e.Conn)
	case e.Action == StreamStall && e.For <= 0:
		return fmt.Errorf("For %v: want a time to stall for", e.For)
	case e.Action == StreamCorrupt && e.Bit > 7:
		return fmt.Errorf("Bit %d: a byte has 0 to 7", e.Bit)
	}
	switch e.Action {
	case StreamCut, StreamStall, StreamCorrupt, StreamReset:
		return nil
	}
	return fmt.Errorf("action %q is none of cut, stall, corrupt_bit, reset", e.Action)
}
