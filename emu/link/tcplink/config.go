// Package tcplink is a link.StreamNet over Linux TCP sockets, on which a driver may busy-poll or
// sleep. softiwarp uses it. It does not buffer or copy bytes, and starts no goroutines.
//
// A Net belongs to the network namespace that the caller's thread was in at Open, and
// dials and listens there from any thread.
//
// With up to maxDirectStreams streams Ready reports all of them, and polling costs one
// recv per stream. With more, or while a stream waits to be connected or writable, Ready
// asks epoll. WaitReady sleeps in epoll.
//
// A Net, its streams and its listeners are meant for one goroutine at a time, except that
// any goroutine may call Close and Wake, and one may be in WaitReady while another one
// uses the net. Read, Write, Writev, Ready and WaitReady do not allocate.
package tcplink

import (
	"cmp"
	"errors"
	"fmt"
	"time"
)

// Default limits.
const (
	DefaultMaxStreams   = 16384
	DefaultMaxListeners = 256
)

// maxBacklog bounds the backlog of a listener; the kernel's own bound
// (net.core.somaxconn) may be lower.
const maxBacklog = 4096

// Config configures a Net. The zero value is valid.
type Config struct {
	// MaxStreams and MaxListeners bound the open streams and listeners; 0 means the
	// defaults. Beyond them Dial and Listen fail, and incoming streams are reset.
	MaxStreams, MaxListeners int
	// SendBufBytes and RecvBufBytes are the sizes of the socket buffers. If 0 the kernel
	// tunes them (net.ipv4.tcp_wmem, tcp_rmem). It may grant less than requested
	// (net.core.wmem_max, rmem_max).
	SendBufBytes, RecvBufBytes int
	// MaxSegment bounds the MSS of every stream; 0 leaves it to the path.
	MaxSegment int
	// UserTimeout is how long sent bytes may stay unacknowledged before a stream breaks
	// (TCP_USER_TIMEOUT). If 0 the kernel retries for a quarter of an hour.
	UserTimeout time.Duration
}

// Limits of TCP_MAXSEG.
const (
	minSegment = 88
	maxSegment = 32767
)

// withDefaults returns a copy with defaults for limits of zero, or an error if the result is
// invalid.
func (c Config) withDefaults() (Config, error) {
	c.MaxStreams = cmp.Or(c.MaxStreams, DefaultMaxStreams)
	c.MaxListeners = cmp.Or(c.MaxListeners, DefaultMaxListeners)
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

// Stats are the counters of a Net.
type Stats struct {
	Dialed, Accepted uint64
	// Rejected counts incoming streams reset because of MaxStreams or a lack of descriptors.
	Rejected uint64

	ReadCalls, ReadEmptyCalls, ReadBytes uint64
	// WriteFull counts incomplete writes.
	WriteCalls, WriteFull, WrittenBytes uint64
	// PollCalls counts calls of epoll that do not block, Sleeps those that do.
	PollCalls, Sleeps uint64
}
