package wire

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

// Dial implements conformance.Streams. It waits until the connection is established.
func (h *TCPHost) Dial(to netip.AddrPort, timeout time.Duration) (conformance.Stream, error) {
	h.mu.Lock()
	port, err := h.freePort(to)
	if err != nil || h.err != nil {
		h.mu.Unlock()
		return nil, errors.Join(err, h.err)
	}
	c := h.newConn(netip.AddrPortFrom(h.cfg.Addr, port), to)
	c.open(time.Now(), h.newISN())
	h.mu.Unlock()
	err = h.waitUntil("stream to "+to.String(), timeout, func() bool { return c.established || c.err != nil })
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case c.err != nil && errors.Is(c.err, errNoResponse):
		return nil, fmt.Errorf("dial %v: %w (%w)", to, verbs.ErrTimeout, c.err)
	case c.err != nil:
		return nil, fmt.Errorf("dial %v: %w", to, c.err)
	case err != nil:
		c.abort(net.ErrClosed)
		return nil, fmt.Errorf("dial %v: %w", to, err)
	}
	return &tcpStream{h, c}, nil
}

// tcpListener accepts connections to a port.
type tcpListener struct {
	h        *TCPHost
	at       netip.AddrPort
	closed   bool
	halfOpen []*tcpConn // SYN received
	ready    []*tcpConn
}

// Listen implements conformance.Streams. Port 0 stands for a free port.
func (h *TCPHost) Listen(port uint16) (conformance.Listener, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	var err error
	if port == 0 {
		port, err = h.freePort(netip.AddrPort{})
	}
	switch {
	case err != nil:
		return nil, err
	case h.err != nil:
		return nil, h.err
	case h.listeners[port] != nil:
		return nil, fmt.Errorf("TCP port %d is in use", port)
	}
	l := &tcpListener{h: h, at: netip.AddrPortFrom(h.cfg.Addr, port)}
	h.listeners[port] = l
	return l, nil
}

// Addr implements conformance.Listener.
func (l *tcpListener) Addr() netip.AddrPort { return l.at }

// Accept implements conformance.Listener.
func (l *tcpListener) Accept(timeout time.Duration) (conformance.Stream, error) {
	err := l.h.waitUntil(fmt.Sprint("stream to port ", l.at.Port()), timeout, func() bool { return len(l.ready) > 0 || l.closed })
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
	return &tcpStream{l.h, c}, nil
}

// Close implements conformance.Listener. It aborts connections that were not accepted.
func (l *tcpListener) Close() error {
	l.h.mu.Lock()
	defer l.h.mu.Unlock()
	if l.closed {
		return net.ErrClosed
	}
	l.closed = true
	delete(l.h.listeners, l.at.Port())
	for _, c := range slices.Concat(l.halfOpen, l.ready) {
		c.abort(net.ErrClosed)
	}
	l.halfOpen, l.ready = nil, nil
	l.h.notify()
	return nil
}

// tcpStream is a connection of a host.
type tcpStream struct {
	h *TCPHost
	c *tcpConn
}

var _ conformance.RawStream = (*tcpStream)(nil)

// Local implements conformance.Stream.
func (s *tcpStream) Local() netip.AddrPort { return s.c.local }

// Remote implements conformance.Stream.
func (s *tcpStream) Remote() netip.AddrPort { return s.c.remote }

// MSS implements conformance.Stream: the smaller of this host's announced MSS and the link's.
func (s *tcpStream) MSS() int {
	s.h.mu.Lock()
	defer s.h.mu.Unlock()
	return min(s.c.rcv.mss, s.h.linkMSS())
}

// maxSendBuffer limits the unacknowledged octets.
const maxSendBuffer = 1 << 20

// Write implements conformance.Stream. It waits for room in the send buffer.
func (s *tcpStream) Write(b []byte) error {
	err := s.h.waitUntil("room to write", verbs.Forever, func() bool { return s.c.err != nil || s.c.snd.end.sub(s.c.snd.una) < maxSendBuffer })
	if err != nil {
		return err
	}
	return s.locked(func(c *tcpConn, now time.Time) error {
		switch {
		case c.err != nil:
			return c.err
		case c.snd.fin:
			return errors.New("the stream is closed for writing")
		}
		c.write(now, b)
		return c.err
	})
}

// Read implements conformance.Stream.
func (s *tcpStream) Read(timeout time.Duration) (b []byte, err error) {
	waitErr := s.h.waitUntil("octets from the device", timeout, func() bool {
		if b == nil && err == nil {
			b, err = s.c.read()
		}
		return b != nil || err != nil
	})
	if b != nil {
		return b, nil
	}
	return nil, cmp.Or(err, waitErr)
}

// locked runs call on the connection and the current time, with the host locked.
func (s *tcpStream) locked(call func(c *tcpConn, now time.Time) error) error {
	s.h.mu.Lock()
	defer s.h.mu.Unlock()
	return call(s.c, time.Now())
}

// CloseWrite implements conformance.Stream.
func (s *tcpStream) CloseWrite() error {
	return s.locked(func(c *tcpConn, now time.Time) error {
		c.closeWrite(now)
		return c.err
	})
}

// Reset implements conformance.Stream.
func (s *tcpStream) Reset() error {
	return s.locked(func(c *tcpConn, _ time.Time) error {
		c.abort(net.ErrClosed)
		return nil
	})
}

// Hold implements conformance.RawStream.
func (s *tcpStream) Hold(b []byte) error {
	return s.locked(func(c *tcpConn, _ time.Time) error { return c.queueManual(b) })
}

// SendHeldFIN implements conformance.RawStream.
func (s *tcpStream) SendHeldFIN(from int) error {
	return s.locked(func(c *tcpConn, now time.Time) error { return c.sendManualFIN(now, from) })
}

// SendHeld implements conformance.RawStream.
func (s *tcpStream) SendHeld(from, to int) error {
	return s.locked(func(c *tcpConn, now time.Time) error { return c.sendManualRange(now, from, to, 0) })
}
