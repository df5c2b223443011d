package tcplink

import (
	"errors"
	"fmt"
	"net/netip"

	"golang.org/x/sys/unix"

	"github.com/fabrictest/fabrictest/emu/link"
	"github.com/fabrictest/fabrictest/emu/mono"
	"github.com/fabrictest/fabrictest/internal/racesync"
)

// Listener takes TCP connections: a link.StreamListener.
type Listener struct {
	net  *Net
	fd   int // -1 once it is closed
	id   link.StreamID
	addr netip.AddrPort
}

var _ link.StreamListener = (*Listener)(nil)

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

// Accept implements link.StreamListener.
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
			racesync.Received()
		case errors.Is(err, unix.EAGAIN):
			return nil, nil
		case errors.Is(err, unix.EMFILE), errors.Is(err, unix.ENFILE):
			if !n.rejectNext(l.fd) {
				return nil, nil // the kernel says so before it looks whether anybody is there
			}
			continue
		case errors.Is(err, unix.EINTR), errors.Is(err, unix.ECONNABORTED), errors.Is(err, unix.EPROTO):
			continue // what was to be accepted broke before; the next may not have
		default:
			return nil, fmt.Errorf("tcplink: accept on %v: %w", l.addr, kernelError("accept", err))
		}
		if s := n.accepted(fd, fromSockaddr(peer)); s != nil {
			return s, nil
		}
	}
}

// accepted makes a stream of what was accepted; nil if there are enough, or it
// has broken already.
func (n *Net) accepted(fd int, peer netip.AddrPort) *Stream {
	s := &Stream{net: n, fd: fd, remote: peer}
	var err error
	if s.local, err = localAddr(fd); err != nil {
		unix.Close(fd)
		return nil
	}
	if len(n.live) >= n.cfg.MaxStreams || n.addStream(s) != nil {
		n.stats.Rejected++
		_ = unix.SetsockoptLinger(fd, unix.SOL_SOCKET, unix.SO_LINGER, &unix.Linger{Onoff: 1}) // else it ends in order
		unix.Close(fd)
		return nil
	}
	s.onConnected()
	n.stats.Accepted++
	return s
}

// turnAway resets the next stream, for which the process has no descriptor, and
// reports whether there was one. To leave it where it is would let it wait for
// good: epoll has named it.
func (n *Net) rejectNext(listener int) bool {
	if n.spare >= 0 {
		unix.Close(n.spare)
	}
	fd, _, err := unix.Accept4(listener, unix.SOCK_CLOEXEC)
	if err == nil {
		n.stats.Rejected++
		_ = unix.SetsockoptLinger(fd, unix.SOL_SOCKET, unix.SO_LINGER, &unix.Linger{Onoff: 1}) // else it ends in order
		unix.Close(fd)
	}
	if n.spare, _ = openSpare(); n.spare < 0 {
		n.spare = -1 // somebody was quicker; there may be one the next time
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

func (l *Listener) closeLocked() {
	unix.Close(l.fd)
	l.fd = -1
	l.net.releaseID(l.id)
	l.net.listeners--
}
