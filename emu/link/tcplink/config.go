package tcplink

import (
	"errors"
	"fmt"
	"time"
)

// Limits that hold where a Config names none.
const (
	DefaultMaxStreams   = 16384
	DefaultMaxListeners = 256
)

// maxBacklog bounds the backlog of a listener; the kernel's own bound
// (net.core.somaxconn) may be lower.
const maxBacklog = 4096

// Config says how to open a Net. The zero Config is a good one.
type Config struct {
	// MaxStreams and MaxListeners bound what is open at a time; 0 means the
	// defaults. Dial and Listen beyond them fail, and a stream that comes in is
	// turned away with a reset.
	MaxStreams, MaxListeners int
	// SendBufBytes and RecvBufBytes are the buffers of each socket. 0 leaves them
	// to the kernel, which grows them as a stream needs (net.ipv4.tcp_wmem,
	// tcp_rmem); it may grant less than is asked for (net.core.wmem_max, rmem_max).
	SendBufBytes, RecvBufBytes int
	// MaxSegment bounds the MSS of every stream; 0 leaves it to the path.
	MaxSegment int
	// UserTimeout is how long what was sent may stay without acknowledgement before
	// a stream breaks; 0 leaves it to the kernel, which tries for a quarter of an
	// hour.
	UserTimeout time.Duration
}

// The smallest and the largest MSS that Linux can be told.
const (
	minSegment = 88
	maxSegment = 32767
)

func (c Config) withDefaults() (Config, error) {
	if c.MaxStreams == 0 {
		c.MaxStreams = DefaultMaxStreams
	}
	if c.MaxListeners == 0 {
		c.MaxListeners = DefaultMaxListeners
	}
	switch {
	case c.MaxStreams < 0 || c.MaxListeners < 0:
		return c, fmt.Errorf("MaxStreams %d, MaxListeners %d: neither may be negative", c.MaxStreams, c.MaxListeners)
	case c.SendBufBytes < 0 || c.RecvBufBytes < 0:
		return c, fmt.Errorf("SendBufBytes %d, RecvBufBytes %d: neither may be negative", c.SendBufBytes, c.RecvBufBytes)
	case c.MaxSegment != 0 && (c.MaxSegment < minSegment || c.MaxSegment > maxSegment):
		return c, fmt.Errorf("MaxSegment %d: want %d to %d, or 0", c.MaxSegment, minSegment, maxSegment)
	case c.UserTimeout < 0 || c.UserTimeout > 0 && c.UserTimeout < time.Millisecond:
		return c, errors.New("UserTimeout: want at least a millisecond, or 0")
	}
	return c, nil
}

// Stats counts what a Net did.
type Stats struct {
	Dialed, Accepted uint64
	// TurnedAway counts streams that came in beyond MaxStreams, or beyond the
	// descriptors that the process may have.
	Rejected uint64

	ReadCalls, ReadEmptyCalls, ReadBytes uint64
	// WriteFull counts calls that took less than they were given.
	WriteCalls, WriteFull, WrittenBytes uint64
	// PollCalls counts the looks at epoll without sleep, Sleeps those with.
	PollCalls, Sleeps uint64
}
