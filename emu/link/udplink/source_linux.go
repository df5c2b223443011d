package udplink

import (
	"fmt"
	"net/netip"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// source is the sockets that a link with Config.SeparateSourcePort sends from: one that
// sends to anybody, and one, of the same port, that is connected to whom single
// datagrams went of late. Neither is ever read.
type sourceSockets struct {
	fd, peer  int    // -1 without SeparateSourcePort
	header    header // of the datagrams that peer sends
	connected bool
	usePeer   bool // connected, and to where the single datagrams of now go
}

// hotAfter is how many single datagrams in a row make it worth while to connect
// to where they go, which takes about as long as sending ten.
const connectAfter = 64

// open opens both sockets and returns the address that they send from.
func (s *sourceSockets) open(o *socketOptions) (from netip.AddrPort, err error) {
	from = netip.AddrPortFrom(o.Local.Addr(), 0)
	for _, fd := range []*int{&s.fd, &s.peer} {
		if *fd, err = o.newSocket(); err != nil {
			return from, err
		}
		for _, opt := range []sockopt{
			{unix.SOL_SOCKET, unix.SO_REUSEADDR, 1, "SO_REUSEADDR"},
			{unix.SOL_SOCKET, unix.SO_RCVBUF, 0, "SO_RCVBUF"}, // the least there is
		} {
			if err := unix.SetsockoptInt(*fd, opt.level, opt.opt, opt.value); err != nil {
				return from, fmt.Errorf("set %s: %w", opt.name, err)
			}
		}
		if from, err = bind(*fd, from, o.iface.index); err != nil {
			return from, err
		}
		if _, err = o.setDefaults(*fd); err != nil {
			return from, err
		}
	}
	return from, nil
}

func (s *sourceSockets) close() {
	for _, fd := range []int{s.fd, s.peer} {
		if fd >= 0 {
			unix.Close(fd)
		}
	}
}

// sendFD is the socket that can send to anybody.
func (l *Link) sendFD() int {
	if l.source.fd >= 0 {
		return l.source.fd
	}
	return l.fd
}

// connectedTo reports whether peer is connected to where m goes. After a while
// of single datagrams to the same place it sees to that.
func (l *Link) connectedTo(m *message) bool {
	s := &l.source
	switch l.out.singleRun {
	case 1:
		s.usePeer = s.connected && s.header == m.header
	case connectAfter:
		if s.peer >= 0 && !s.usePeer {
			s.connect(m)
		}
	}
	return s.usePeer
}

func (s *sourceSockets) connect(m *message) {
	_, _, errno := syscall.RawSyscall(unix.SYS_CONNECT, uintptr(s.peer), uintptr(unsafe.Pointer(&m.addr)), uintptr(m.addrLen))
	s.header, s.connected, s.usePeer = m.header, errno == 0, errno == 0
}
