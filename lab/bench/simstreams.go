package bench

import (
	"errors"
	"fmt"
	"io"
	"net/netip"
	"slices"
	"time"

	"github.com/fabrictest/fabrictest/conformance"
	"github.com/fabrictest/fabrictest/emu/link"
	"github.com/fabrictest/fabrictest/emu/mono"
	"github.com/fabrictest/fabrictest/emu/sim"
	"github.com/fabrictest/fabrictest/verbs"
)

// simStreams is the TCP of the simulated peer.
type simStreams struct {
	w       *simWorld
	host    *sim.StreamHost
	from    netip.Addr
	changed sim.Signal // a stream is readable or writable
}

// backlog is the number of streams that may wait for Accept.
const backlog = 128

// ignoredTime is an argument of simulated ports and streams, which use the time of their world.
const ignoredTime = 0

// HandleEvent wakes the programs that wait for streams: one is readable or writable.
func (n *simStreams) HandleEvent(mono.Time, uint64) { n.changed.Broadcast() }

// Dial implements conformance.Streams: it waits until the stream is connected or refused. At the
// timeout it resets the stream.
func (n *simStreams) Dial(to netip.AddrPort, timeout time.Duration) (conformance.Stream, error) {
	l, err := n.host.Dial(ignoredTime, netip.AddrPortFrom(n.from, 0), to)
	if err != nil {
		return nil, err
	}
	s := &simStream{n: n, l: l}
	err = n.await("a stream to "+to.String(), timeout, func() (bool, error) {
		if l.Connected(ignoredTime) {
			return true, nil
		}
		_, err := l.Read(ignoredTime, s.buf[:]) // has the error of a refused connection
		return false, err
	})
	if errors.Is(err, verbs.ErrTimeout) {
		_ = l.Abort(ignoredTime)
	}
	if err != nil {
		return nil, fmt.Errorf("dial %v: %w", to, err)
	}
	return s, nil
}

// await calls try whenever a stream has changed, until it returns true or an error. It returns the
// error, or verbs.ErrTimeout after the timeout.
func (n *simStreams) await(reason string, timeout time.Duration, try func() (bool, error)) (err error) {
	ended := n.w.waitUntil(&n.changed, sim.WaitReason(reason), timeout, func() bool {
		var done bool
		done, err = try()
		return done || err != nil
	})
	if !ended {
		return fmt.Errorf("wait for %s: %w", reason, verbs.ErrTimeout)
	}
	return streamError(err)
}

// Listen implements conformance.Streams.
func (n *simStreams) Listen(port uint16) (conformance.Listener, error) {
	l, err := n.host.Listen(netip.AddrPortFrom(n.from, port), backlog)
	if err != nil {
		return nil, err
	}
	return &simListener{n, l}, nil
}

type simListener struct {
	streams  *simStreams
	listener link.StreamListener
}

// Addr implements conformance.Listener.
func (l *simListener) Addr() netip.AddrPort { return l.listener.Addr() }

// Close implements conformance.Listener.
func (l *simListener) Close() error { return l.listener.Close() }

// Accept implements conformance.Listener.
func (l *simListener) Accept(timeout time.Duration) (conformance.Stream, error) {
	var s link.StreamLink
	err := l.streams.await(fmt.Sprintf("a stream to port %d", l.Addr().Port()), timeout, func() (_ bool, err error) {
		s, err = l.listener.Accept(ignoredTime)
		return s != nil, err
	})
	if err != nil {
		return nil, err
	}
	return &simStream{n: l.streams, l: s}, nil
}

// simStream is a stream of the peer.
type simStream struct {
	n   *simStreams
	l   link.StreamLink
	buf [1 << 16]byte
}

// Local implements conformance.Stream.
func (s *simStream) Local() netip.AddrPort { return s.l.LocalAddr() }

// Remote implements conformance.Stream.
func (s *simStream) Remote() netip.AddrPort { return s.l.RemoteAddr() }

// MSS implements conformance.Stream.
func (s *simStream) MSS() int { return s.l.MSS() }

// CloseWrite implements conformance.Stream.
func (s *simStream) CloseWrite() error { return streamError(s.l.CloseWrite(ignoredTime)) }

// Reset implements conformance.Stream.
func (s *simStream) Reset() error { return streamError(s.l.Abort(ignoredTime)) }

// Write implements conformance.Stream. b starts a new TCP segment. Write blocks for buffer space.
func (s *simStream) Write(b []byte) error {
	return s.n.await("room to write", verbs.Forever, func() (bool, error) {
		written, err := s.l.Write(ignoredTime, b)
		b = b[written:]
		return len(b) == 0, err
	})
}

// Read implements conformance.Stream.
func (s *simStream) Read(timeout time.Duration) ([]byte, error) {
	var read int
	err := s.n.await("bytes from the device", timeout, func() (_ bool, err error) {
		read, err = s.l.Read(ignoredTime, s.buf[:])
		return read > 0, err
	})
	if err != nil {
		return nil, err
	}
	return slices.Clone(s.buf[:read]), nil
}

// streamError wraps errors of a reset or refused stream with conformance.ErrReset, for cases.
func streamError(err error) error {
	switch {
	case err == nil || errors.Is(err, io.EOF):
		return err
	case errors.Is(err, link.ErrReset), errors.Is(err, link.ErrRefused):
		return fmt.Errorf("%w (%w)", conformance.ErrReset, err)
	}
	return err
}
