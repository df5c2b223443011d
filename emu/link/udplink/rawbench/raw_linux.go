package rawbench

import (
	"fmt"
	"net/netip"
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Endpoint says where a measurement of bare sockets opens one of them.
type Endpoint struct {
	// NetNS is the descriptor of the network namespace to open it in; 0 means
	// the process's own.
	NetNS int
	// Addr is the address to bind. Port 0 lets the kernel choose.
	Addr netip.AddrPort
	// CPU is the processor, counted from 1, on which the goroutine of the socket runs; 0
	// means any. Wake-ups between processors take three times as long as on one, so compare
	// only measurements that are bound alike.
	CPU int
}

// socket is a bare UDP socket, not connected.
type socket struct {
	fd       int
	addr     netip.AddrPort
	peer     unix.RawSockaddrInet6 // or Inet4 in its first bytes
	peerSize uint32
}

// openSocket opens e's socket on another thread, which enters the namespace.
func openSocket(e Endpoint, block bool) (*socket, error) {
	type opened struct {
		s   *socket
		err error
	}
	c := make(chan opened, 1)
	go func() {
		if e.NetNS != 0 {
			runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
			if err := unix.Setns(e.NetNS, unix.CLONE_NEWNET); err != nil {
				c <- opened{err: fmt.Errorf("enter network namespace: %w", err)}
				return
			}
		}
		s, err := bindSocket(e.Addr, block)
		c <- opened{s, err}
	}()
	o := <-c
	if o.err != nil {
		return nil, fmt.Errorf("raw UDP socket on %v: %w", e.Addr, o.err)
	}
	return o.s, nil
}

func bindSocket(addr netip.AddrPort, block bool) (*socket, error) {
	family, sa := unix.AF_INET6, unix.Sockaddr(&unix.SockaddrInet6{Port: int(addr.Port()), Addr: addr.Addr().As16()})
	if addr.Addr().Is4() {
		family, sa = unix.AF_INET, &unix.SockaddrInet4{Port: int(addr.Port()), Addr: addr.Addr().As4()}
	}
	typ := unix.SOCK_DGRAM | unix.SOCK_CLOEXEC
	if !block {
		typ |= unix.SOCK_NONBLOCK
	}
	fd, err := unix.Socket(family, typ, 0)
	if err != nil {
		return nil, err
	}
	s := &socket{fd: fd}
	if err := s.setUp(family, sa); err != nil {
		s.close()
		return nil, err
	}
	return s, nil
}

// setUp sets the options of s and binds it.
func (s *socket) setUp(family int, sa unix.Sockaddr) error {
	const queue = 4 << 20
	if unix.SetsockoptInt(s.fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, queue) != nil {
		if err := unix.SetsockoptInt(s.fd, unix.SOL_SOCKET, unix.SO_RCVBUF, queue); err != nil {
			return fmt.Errorf("SO_RCVBUF: %w", err)
		}
	}
	level, opt, do := unix.IPPROTO_IPV6, unix.IPV6_MTU_DISCOVER, unix.IPV6_PMTUDISC_DO
	if family == unix.AF_INET {
		level, opt, do = unix.IPPROTO_IP, unix.IP_MTU_DISCOVER, unix.IP_PMTUDISC_DO
	}
	if err := unix.SetsockoptInt(s.fd, level, opt, do); err != nil {
		return fmt.Errorf("MTU_DISCOVER: %w", err)
	}
	if err := unix.Bind(s.fd, sa); err != nil {
		return err
	}
	bound, err := unix.Getsockname(s.fd)
	if err != nil {
		return err
	}
	switch b := bound.(type) {
	case *unix.SockaddrInet4:
		s.addr = netip.AddrPortFrom(netip.AddrFrom4(b.Addr), uint16(b.Port))
	case *unix.SockaddrInet6:
		s.addr = netip.AddrPortFrom(netip.AddrFrom16(b.Addr), uint16(b.Port))
	}
	return nil
}

func (s *socket) close() { unix.Close(s.fd) }

// setPeer sets the destination of sent datagrams.
func (s *socket) setPeer(p netip.AddrPort) {
	port := [2]byte{byte(p.Port() >> 8), byte(p.Port())}
	if p.Addr().Is4() {
		sa := (*unix.RawSockaddrInet4)(unsafe.Pointer(&s.peer))
		*sa = unix.RawSockaddrInet4{Family: unix.AF_INET, Addr: p.Addr().As4()}
		sa.Port = *(*uint16)(unsafe.Pointer(&port))
		s.peerSize = unix.SizeofSockaddrInet4
		return
	}
	s.peer = unix.RawSockaddrInet6{Family: unix.AF_INET6, Addr: p.Addr().As16()}
	s.peer.Port = *(*uint16)(unsafe.Pointer(&port))
	s.peerSize = unix.SizeofSockaddrInet6
}

// openPair opens two sockets that send to each other.
func openPair(a, b Endpoint, block bool) (sa, sb *socket, err error) {
	if sa, err = openSocket(a, block); err != nil {
		return nil, nil, err
	}
	if sb, err = openSocket(b, block); err != nil {
		sa.close()
		return nil, nil, err
	}
	sa.setPeer(sb.addr)
	sb.setPeer(sa.addr)
	return sa, sb, nil
}
