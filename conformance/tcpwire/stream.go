package tcpwire

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"time"

	"github.com/fabrictest/fabrictest/conformance"
	"github.com/fabrictest/fabrictest/verbs"
)

// Dial implements conformance.Streams.
func (h *Host) Dial(to netip.AddrPort, timeout time.Duration) (conformance.Stream, error) {
	h.mu.Lock()
	port, err := h.port(to)
	if err != nil || h.err != nil {
		h.mu.Unlock()
		return nil, errors.Join(err, h.err)
	}
	c := h.newConn(netip.AddrPortFrom(h.cfg.Addr, port), to)
	c.open(time.Now(), h.first())
	h.mu.Unlock()
	s := &stream{h, c}
	err = h.await("stream to "+to.String(), timeout, func() bool { return c.established || c.err != nil })
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case c.err != nil && errors.Is(c.err, errSilent):
		return nil, fmt.Errorf("dial %v: %w (%w)", to, verbs.ErrTimeout, c.err)
	case c.err != nil:
		return nil, fmt.Errorf("dial %v: %w", to, c.err)
	case err != nil:
		c.breakOff(net.ErrClosed)
		return nil, fmt.Errorf("dial %v: %w", to, err)
	}
	return s, nil
}

// listener takes connections to a port.
type listener struct {
	h      *Host
	at     netip.AddrPort
	closed bool
	coming []*conn // whose SYN we have answered
	ready  []*conn
}

// Listen implements conformance.Streams.
func (h *Host) Listen(port uint16) (conformance.Listener, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	var err error
	if port == 0 {
		port, err = h.port(netip.AddrPort{})
	}
	switch {
	case err != nil:
		return nil, err
	case h.err != nil:
		return nil, h.err
	case h.listeners[port] != nil:
		return nil, fmt.Errorf("TCP port %d is taken", port)
	}
	l := &listener{h: h, at: netip.AddrPortFrom(h.cfg.Addr, port)}
	h.listeners[port] = l
	return l, nil
}

// expects reports whether a connection is one that has come to the listener, and takes it
// from those that come.
func (l *listener) expects(c *conn) bool {
	i := slices.Index(l.coming, c)
	if i >= 0 {
		l.coming = slices.Delete(l.coming, i, i+1)
	}
	return i >= 0
}

// Addr implements conformance.Listener.
func (l *listener) Addr() netip.AddrPort { return l.at }

// Accept implements conformance.Listener.
func (l *listener) Accept(timeout time.Duration) (conformance.Stream, error) {
	err := l.h.await(fmt.Sprint("stream to port ", l.at.Port()), timeout, func() bool { return len(l.ready) > 0 || l.closed })
	if err != nil {
		return nil, fmt.Errorf("accept on %v: %w", l.at, err)
	}
	l.h.mu.Lock()
	defer l.h.mu.Unlock()
	if len(l.ready) == 0 {
		return nil, fmt.Errorf("accept on %v: %w", l.at, net.ErrClosed)
	}
	c := l.ready[0]
	l.ready = l.ready[1:]
	return &stream{l.h, c}, nil
}

// Close implements conformance.Listener. What nobody has accepted is broken.
func (l *listener) Close() error {
	l.h.mu.Lock()
	defer l.h.mu.Unlock()
	if l.closed {
		return net.ErrClosed
	}
	l.closed = true
	delete(l.h.listeners, l.at.Port())
	for _, c := range slices.Concat(l.coming, l.ready) {
		c.breakOff(net.ErrClosed)
	}
	l.coming, l.ready = nil, nil
	l.h.changed()
	return nil
}

// stream is a connection of somebody's.
type stream struct {
	h *Host
	c *conn
}

var _ conformance.Segmented = (*stream)(nil)

// Local implements conformance.Stream.
func (s *stream) Local() netip.AddrPort { return s.c.local }

// Remote implements conformance.Stream.
func (s *stream) Remote() netip.AddrPort { return s.c.remote }

// MSS implements conformance.Stream. It is that of the device's segments: what we ask for,
// and the cable carries.
func (s *stream) MSS() int {
	s.h.mu.Lock()
	defer s.h.mu.Unlock()
	return min(s.c.announce, s.h.fits())
}

// maxUnacked is how much may be said ahead of what the device has taken.
const maxUnacked = 1 << 20

// Write implements conformance.Stream.
func (s *stream) Write(b []byte) error {
	err := s.h.await("room to write", verbs.Forever, func() bool { return s.c.err != nil || s.c.next.sub(s.c.una) < maxUnacked })
	if err != nil {
		return err
	}
	s.h.mu.Lock()
	defer s.h.mu.Unlock()
	if s.c.err == nil && s.c.ended {
		return errors.New("our side of the stream has ended")
	}
	if s.c.err == nil {
		s.c.say(time.Now(), b)
	}
	return s.c.err
}

// Read implements conformance.Stream.
func (s *stream) Read(timeout time.Duration) (b []byte, err error) {
	waited := s.h.await("octets from the device", timeout, func() bool {
		if b == nil && err == nil {
			b, err = s.c.read()
		}
		return b != nil || err != nil
	})
	if b != nil {
		return b, nil
	}
	return nil, cmp.Or(err, waited)
}

// CloseWrite implements conformance.Stream.
func (s *stream) CloseWrite() error {
	s.h.mu.Lock()
	defer s.h.mu.Unlock()
	s.c.finish(time.Now())
	return s.c.err
}

// Reset implements conformance.Stream.
func (s *stream) Reset() error {
	s.h.mu.Lock()
	defer s.h.mu.Unlock()
	s.c.breakOff(net.ErrClosed)
	return nil
}

// Hold implements conformance.Segmented.
func (s *stream) Hold(b []byte) error {
	s.h.mu.Lock()
	defer s.h.mu.Unlock()
	return s.c.holdBack(b)
}

// ReleaseEnd implements conformance.Segmented.
func (s *stream) ReleaseEnd(from int) error {
	s.h.mu.Lock()
	defer s.h.mu.Unlock()
	return s.c.releaseEnd(time.Now(), from)
}

// Release implements conformance.Segmented.
func (s *stream) Release(from, to int) error {
	s.h.mu.Lock()
	defer s.h.mu.Unlock()
	return s.c.release(time.Now(), from, to)
}
