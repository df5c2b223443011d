package udplink

import (
	"fmt"
	"net/netip"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// sourceSockets are the sockets from which a link with Config.SeparateSourcePort sends: fd
// to all destinations, and peer, on the same port, connected to the destination of recent
// single datagrams. Neither is ever read.
type sourceSockets struct {
	fd, peer  int    // -1 without SeparateSourcePort
	header    header // header of the datagrams that peer sends
	connected bool
	usePeer   bool // peer is connected to the destination of the current single datagrams
}

// connectAfter is the number of consecutive single datagrams after which peer is connected
// to their destination, which takes about as long as to send ten.
const connectAfter = 64

// open opens both sockets and returns their address.
func (s *sourceSockets) open(o *socketOptions) (from netip.AddrPort, err error) {
	from = netip.AddrPortFrom(o.Local.Addr(), 0)
	for _, fd := range []*int{&s.fd, &s.peer} {
		if *fd, err = o.newSocket(); err != nil {
			return from, err
		}
		for _, opt := range []sockopt{
			{unix.SOL_SOCKET, unix.SO_REUSEADDR, 1, "SO_REUSEADDR"},
			{unix.SOL_SOCKET, unix.SO_RCVBUF, 0, "SO_RCVBUF"}, // the minimum
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

// sendFD is the socket that is not connected.
func (l *Link) sendFD() int {
	if l.source.fd >= 0 {
		return l.source.fd
	}
	return l.fd
}

// connectedTo reports whether peer is connected to the destination of m. After connectAfter
// single datagrams to the same destination it connects peer.
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
