package perflab

import (
	"fmt"
	"net/netip"
	"unsafe"

	"golang.org/x/sys/unix"
)

// udpSocket is a bare UDP socket, not connected.
type udpSocket struct {
	fd       int
	addr     netip.AddrPort
	peer     unix.RawSockaddrInet6 // or Inet4 in its first bytes
	peerSize uint32
}

// openSocket opens the socket of an endpoint, in its namespace.
func openSocket(e RawEndpoint, block bool) (s *udpSocket, err error) {
	if err = inNetNS(e.NetNS, func() error { s, err = bindSocket(e.Addr, block); return err }); err != nil {
		return nil, fmt.Errorf("raw UDP socket on %v: %w", e.Addr, err)
	}
	return s, nil
}

// bindSocket opens a socket on an address.
func bindSocket(addr netip.AddrPort, block bool) (*udpSocket, error) {
	typ := unix.SOCK_DGRAM
	if !block {
		typ |= unix.SOCK_NONBLOCK
	}
	fd, err := bind(typ, addr, func(fd int) error { return setUDPOptions(fd, addr.Addr().Is4()) })
	if err != nil {
		return nil, err
	}
	s := &udpSocket{fd: fd}
	bound, err := unix.Getsockname(fd)
	switch b := bound.(type) {
	case *unix.SockaddrInet4:
		s.addr = netip.AddrPortFrom(netip.AddrFrom4(b.Addr), uint16(b.Port))
	case *unix.SockaddrInet6:
		s.addr = netip.AddrPortFrom(netip.AddrFrom16(b.Addr), uint16(b.Port))
	}
	if err != nil {
		s.close()
		return nil, err
	}
	return s, nil
}

// setUDPOptions enlarges the receive queue, and forbids fragmentation.
func setUDPOptions(fd int, v4 bool) error {
	const queue = 4 << 20
	if unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, queue) != nil {
		if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUF, queue); err != nil {
			return fmt.Errorf("SO_RCVBUF: %w", err)
		}
	}
	level, opt, do := unix.IPPROTO_IPV6, unix.IPV6_MTU_DISCOVER, unix.IPV6_PMTUDISC_DO
	if v4 {
		level, opt, do = unix.IPPROTO_IP, unix.IP_MTU_DISCOVER, unix.IP_PMTUDISC_DO
	}
	if err := unix.SetsockoptInt(fd, level, opt, do); err != nil {
		return fmt.Errorf("MTU_DISCOVER: %w", err)
	}
	return nil
}

func (s *udpSocket) close() { unix.Close(s.fd) }

// setPeer sets the destination of sent datagrams.
func (s *udpSocket) setPeer(p netip.AddrPort) {
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
func openPair(a, b RawEndpoint, block bool) (sa, sb *udpSocket, err error) {
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
