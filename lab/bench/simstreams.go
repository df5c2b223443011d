package bench

import (
	"errors"
	"fmt"
	"io"
	"net/netip"
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

// newSimStreams returns the TCP of the port peer, which connects from an address.
func newSimStreams(w *simWorld, peer *sim.Port, from netip.Addr) *simStreams {
	n := &simStreams{w: w, host: peer.StreamHost(), from: from}
	n.host.OnReady(n, 0)
	return n
}

// HandleEvent wakes the waiters of streams.
func (n *simStreams) HandleEvent(mono.Time, uint64) { n.changed.Broadcast() }

// Dial implements conformance.Streams.
func (n *simStreams) Dial(to netip.AddrPort, timeout time.Duration) (conformance.Stream, error) {
	l, err := n.host.Dial(0, netip.AddrPortFrom(n.from, 0), to)
	if err != nil {
		return nil, err
	}
	s := &simStream{n: n, l: l}
	found := n.w.waitUntil(&n.changed, sim.WaitReason("a stream to "+to.String()), timeout, func() bool {
		if !l.Connected(0) {
			_, err = l.Read(0, s.buf[:])
		}
		return err != nil || l.Connected(0)
	})
	switch {
	case err != nil:
		return nil, fmt.Errorf("dial %v: %w", to, streamError(err))
	case !found:
		_ = l.Abort(0)
		return nil, fmt.Errorf("dial %v: %w", to, verbs.ErrTimeout)
	}
	return s, nil
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
	n *simStreams
	l link.StreamListener
}

// Addr implements conformance.Listener.
func (l *simListener) Addr() netip.AddrPort { return l.l.Addr() }

// Close implements conformance.Listener.
func (l *simListener) Close() error { return l.l.Close() }

// Accept implements conformance.Listener.
func (l *simListener) Accept(timeout time.Duration) (conformance.Stream, error) {
	var s link.StreamLink
	var err error
	found := l.n.w.waitUntil(&l.n.changed, sim.WaitReason("a stream to port "+fmt.Sprint(l.Addr().Port())), timeout, func() bool {
		s, err = l.l.Accept(0)
		return s != nil || err != nil
	})
	switch {
	case err != nil:
		return nil, err
	case !found:
		return nil, fmt.Errorf("no connection to %v: %w", l.Addr(), verbs.ErrTimeout)
	}
	return &simStream{n: l.n, l: s}, nil
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
func (s *simStream) CloseWrite() error { return streamError(s.l.CloseWrite(0)) }

// Reset implements conformance.Stream.
func (s *simStream) Reset() error { return streamError(s.l.Abort(0)) }

// Write implements conformance.Stream. It starts a segment with b, and blocks while
// the device does not read.
func (s *simStream) Write(b []byte) (err error) {
	s.n.w.waitUntil(&s.n.changed, "room to write", verbs.Forever, func() bool {
		var k int
		k, err = s.l.Write(0, b)
		b = b[k:]
		return err != nil || len(b) == 0
	})
	return streamError(err)
}

// Read implements conformance.Stream.
func (s *simStream) Read(timeout time.Duration) ([]byte, error) {
	var k int
	var err error
	found := s.n.w.waitUntil(&s.n.changed, "bytes from the device", timeout, func() bool {
		k, err = s.l.Read(0, s.buf[:])
		return k > 0 || err != nil
	})
	switch {
	case err != nil:
		return nil, streamError(err)
	case !found:
		return nil, fmt.Errorf("nothing from the device: %w", verbs.ErrTimeout)
	}
	return append([]byte(nil), s.buf[:k]...), nil
}

// streamError adds the errors that cases test for.
func streamError(err error) error {
	switch {
	case err == nil || errors.Is(err, io.EOF):
		return err
	case errors.Is(err, link.ErrReset), errors.Is(err, link.ErrRefused):
		return fmt.Errorf("%w (%w)", conformance.ErrReset, err)
	}
	return err
}
