package tcplink

import (
	"errors"
	"fmt"
	"net/netip"

	"golang.org/x/sys/unix"

	"github.com/fabrictest/fabrictest/emu/link"
	"github.com/fabrictest/fabrictest/emu/mono"
	"github.com/fabrictest/fabrictest/internal/process"
)

// Listener is a link.StreamListener.
type Listener struct {
	net  *Net
	fd   int // -1 after Close
	id   link.StreamID
	addr netip.AddrPort
}

var _ link.StreamListener = (*Listener)(nil)

// listen binds the socket to addr and listens. It sets l.addr, with the port that the kernel
// chose if addr has port 0.
func (l *Listener) listen(addr netip.AddrPort, backlog int) error {
	sa, err := toSockaddr(l.fd, addr)
	if err != nil {
		return err
	}
	if err := unix.Bind(l.fd, sa); err != nil {
		return kernelError("bind", err)
	}
	if err := unix.Listen(l.fd, backlog); err != nil {
		return kernelError("listen", err)
	}
	bound, err := localAddr(l.fd)
	l.addr = netip.AddrPortFrom(addr.Addr(), bound.Port())
	return err
}

// ID implements link.StreamListener.
func (l *Listener) ID() link.StreamID { return l.id }

// Addr implements link.StreamListener.
func (l *Listener) Addr() netip.AddrPort { return l.addr }

// Accept implements link.StreamListener. It returns nil if no stream waits. A stream that cannot
// be accepted because of a limit is reset.
func (l *Listener) Accept(mono.Time) (link.StreamLink, error) {
	n := l.net
	n.mu.Lock()
	defer n.mu.Unlock()
	if l.fd < 0 {
		return nil, fmt.Errorf("tcplink: accept on %v: %w", l.addr, link.ErrClosed)
	}
	for {
		fd, peer, err := unix.Accept4(l.fd, unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC)
		switch {
		case err == nil:
			process.RaceReceived() // for the race detector, which does not see raw system calls
		case errors.Is(err, unix.EAGAIN):
			return nil, nil
		case errors.Is(err, unix.EMFILE), errors.Is(err, unix.ENFILE):
			if !n.rejectNext(l.fd) {
				return nil, nil // accept returns EMFILE even if no stream waits
			}
			continue
		case errors.Is(err, unix.EINTR), errors.Is(err, unix.ECONNABORTED), errors.Is(err, unix.EPROTO):
			continue // a signal, or the stream broke before it was accepted
		default:
			return nil, fmt.Errorf("tcplink: accept on %v: %w", l.addr, kernelError("accept", err))
		}
		if s := n.newAcceptedStream(fd, fromSockaddr(peer)); s != nil {
			return s, nil
		}
	}
}

// newAcceptedStream returns the stream of an accepted socket. If the stream has broken, it closes
// the socket and returns nil. If there are MaxStreams already, or epoll cannot watch the socket, it
// resets the stream and returns nil.
func (n *Net) newAcceptedStream(fd int, peer netip.AddrPort) *Stream {
	s := &Stream{net: n, fd: fd, remote: peer}
	var err error
	if s.local, err = localAddr(fd); err != nil {
		unix.Close(fd)
		return nil
	}
	if len(n.live) >= n.cfg.MaxStreams || n.addStream(s) != nil {
		n.stats.Rejected++
		resetOnClose(fd)
		unix.Close(fd)
		return nil
	}
	s.onConnected()
	n.stats.Accepted++
	return s
}

// rejectNext accepts and resets the next stream that waits at a listening socket, with the
// spare descriptor because the process has no other. It reports whether a stream waited. The
// stream must not stay in the backlog, because edge-triggered epoll does not report it again.
func (n *Net) rejectNext(listenFD int) bool {
	if n.spareFD >= 0 {
		unix.Close(n.spareFD)
	}
	fd, _, err := unix.Accept4(listenFD, unix.SOCK_CLOEXEC)
	if err == nil {
		n.stats.Rejected++
		resetOnClose(fd)
		unix.Close(fd)
	}
	if n.spareFD, _ = openSpareFD(); n.spareFD < 0 {
		n.spareFD = -1 // no descriptor is free; the next call tries again
	}
	return err == nil
}

// Close implements link.StreamListener.
func (l *Listener) Close() error {
	l.net.mu.Lock()
	defer l.net.mu.Unlock()
	if l.fd < 0 {
		return fmt.Errorf("tcplink: close of the listener on %v: %w", l.addr, link.ErrClosed)
	}
	l.closeLocked()
	return nil
}

// closeLocked closes the listening socket and releases its ID. The caller holds the Net's lock.
func (l *Listener) closeLocked() {
	unix.Close(l.fd)
	l.fd = -1
	l.net.releaseID(l.id)
	l.net.listeners--
}
