package wire

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// socket is a UDP socket bound to one of the wire's addresses, or to a group.
type socket struct {
	at   netip.AddrPort
	file *os.File // owns the socket
	conn syscall.RawConn
	// checksumOff: the socket sends no UDP checksums.
	checksumOff bool
}

// option is a socket option with its name in linux headers.
type option struct {
	level, name, value int
	label              string
}

// ipv6FlowInfo is IPV6_FLOWINFO of linux/in6.h, missing in package unix.
const ipv6FlowInfo = 11

// options returns the socket options with which the kernel sends exactly the headers that
// datagram.packet predicts, and reports those of received datagrams.
func options(ipv6 bool, index int) []option {
	all := []option{
		{unix.SOL_SOCKET, unix.SO_TIMESTAMPNS, 1, "SO_TIMESTAMPNS"},
		{unix.SOL_SOCKET, unix.SO_RXQ_OVFL, 1, "SO_RXQ_OVFL"},
	}
	if ipv6 {
		return append(all,
			option{unix.IPPROTO_IPV6, unix.IPV6_V6ONLY, 1, "IPV6_V6ONLY"},
			option{unix.IPPROTO_IPV6, unix.IPV6_RECVHOPLIMIT, 1, "IPV6_RECVHOPLIMIT"},
			option{unix.IPPROTO_IPV6, unix.IPV6_RECVTCLASS, 1, "IPV6_RECVTCLASS"},
			option{unix.IPPROTO_IPV6, ipv6FlowInfo, 1, "IPV6_FLOWINFO"},
			option{unix.IPPROTO_IPV6, unix.IPV6_AUTOFLOWLABEL, 0, "IPV6_AUTOFLOWLABEL"},
			option{unix.IPPROTO_IPV6, unix.IPV6_MTU_DISCOVER, unix.IPV6_PMTUDISC_DO, "IPV6_MTU_DISCOVER"},
			option{unix.IPPROTO_IPV6, unix.IPV6_DONTFRAG, 1, "IPV6_DONTFRAG"},
			option{unix.IPPROTO_IPV6, unix.IPV6_MULTICAST_IF, index, "IPV6_MULTICAST_IF"},
			option{unix.IPPROTO_IPV6, unix.IPV6_MULTICAST_LOOP, 0, "IPV6_MULTICAST_LOOP"},
			// RoCEv2 packets have no UDP checksum; IPv6 sockets drop them by default.
			option{unix.IPPROTO_UDP, unix.UDP_NO_CHECK6_RX, 1, "UDP_NO_CHECK6_RX"})
	}
	return append(all,
		option{unix.IPPROTO_IP, unix.IP_RECVTTL, 1, "IP_RECVTTL"},
		option{unix.IPPROTO_IP, unix.IP_RECVTOS, 1, "IP_RECVTOS"},
		// DF set gives identification 0 on an unconnected socket.
		option{unix.IPPROTO_IP, unix.IP_MTU_DISCOVER, unix.IP_PMTUDISC_DO, "IP_MTU_DISCOVER"},
		option{unix.IPPROTO_IP, unix.IP_MULTICAST_LOOP, 0, "IP_MULTICAST_LOOP"})
}

// bind creates a UDP socket bound to an address. index is that of its interface.
func bind(at netip.AddrPort, index int) (*socket, error) {
	ipv6 := at.Addr().Is6()
	family := unix.AF_INET
	if ipv6 {
		family = unix.AF_INET6
	}
	fd, err := unix.Socket(family, unix.SOCK_DGRAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, os.NewSyscallError("socket", err)
	}
	s := &socket{at: at}
	if err := s.configure(fd, ipv6, index); err != nil {
		unix.Close(fd)
		return nil, err
	}
	s.file, s.conn, err = newFile(fd, "udp:"+at.String())
	return s, err
}

// newFile returns a file that owns a socket, and its raw connection. It closes the socket on error.
func newFile(fd int, name string) (*os.File, syscall.RawConn, error) {
	file := os.NewFile(uintptr(fd), name)
	conn, err := file.SyscallConn()
	if err != nil {
		file.Close()
	}
	return file, conn, err
}

// setOptions sets the options of a socket, and enlarges its receive buffer, without privileges up to
// the kernel's limit.
func setOptions(fd int, options []option) error {
	for _, o := range options {
		if err := unix.SetsockoptInt(fd, o.level, o.name, o.value); err != nil {
			return fmt.Errorf("%s: %w", o.label, err)
		}
	}
	const size = 8 << 20
	if unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, size) == nil {
		return nil
	}
	if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUF, size); err != nil {
		return fmt.Errorf("SO_RCVBUF: %w", err)
	}
	return nil
}

// configure sets the options of a new socket, and binds it to s.at. index is that of the interface.
func (s *socket) configure(fd int, ipv6 bool, index int) error {
	if err := setOptions(fd, options(ipv6, index)); err != nil {
		return err
	}
	if !ipv6 {
		if err := unix.SetsockoptIPMreqn(fd, unix.IPPROTO_IP, unix.IP_MULTICAST_IF, &unix.IPMreqn{Ifindex: int32(index)}); err != nil {
			return fmt.Errorf("IP_MULTICAST_IF: %w", err)
		}
	}
	switch err := unix.Bind(fd, sockaddr(s.at, index)); {
	case errors.Is(err, unix.EADDRINUSE):
		return fmt.Errorf("another program has UDP port %d at %v, or a soft-RoCE device of this host's kernel has it everywhere: %w", s.at.Port(), s.at.Addr(), err)
	case err != nil:
		return fmt.Errorf("bind to %v: %w", s.at, err)
	}
	return nil
}

// sockaddr converts an address. Those of IPv6 that are link-local or multicast get the interface
// index as their zone.
func sockaddr(a netip.AddrPort, index int) unix.Sockaddr {
	if a.Addr().Is4() {
		return &unix.SockaddrInet4{Port: int(a.Port()), Addr: a.Addr().As4()}
	}
	to := &unix.SockaddrInet6{Port: int(a.Port()), Addr: a.Addr().As16()}
	if a.Addr().IsLinkLocalUnicast() || a.Addr().IsMulticast() {
		to.ZoneId = uint32(index)
	}
	return to
}

// join joins the multicast group that the socket is bound to.
func (s *socket) join(index int) (err error) {
	group := s.at.Addr()
	cerr := s.conn.Control(func(fd uintptr) {
		if group.Is4() {
			err = unix.SetsockoptIPMreqn(int(fd), unix.IPPROTO_IP, unix.IP_ADD_MEMBERSHIP, &unix.IPMreqn{Multiaddr: group.As4(), Ifindex: int32(index)})
			return
		}
		err = unix.SetsockoptIPv6Mreq(int(fd), unix.IPPROTO_IPV6, unix.IPV6_JOIN_GROUP, &unix.IPv6Mreq{Multiaddr: group.As16(), Interface: uint32(index)})
	})
	return errors.Join(cerr, err)
}

// send sends a datagram from the socket's address.
func (s *socket) send(d *datagram, index int) (err error) {
	if err := s.setChecksum(d.hasChecksum); err != nil {
		return err
	}
	level, tclass, hopLimit := unix.IPPROTO_IP, unix.IP_TOS, unix.IP_TTL
	if d.dst.Addr().Is6() {
		level, tclass, hopLimit = unix.IPPROTO_IPV6, unix.IPV6_TCLASS, unix.IPV6_HOPLIMIT
	}
	control := append(controlMessage(level, tclass, d.tclass), controlMessage(level, hopLimit, d.hopLimit)...)
	cerr := s.conn.Write(func(fd uintptr) bool {
		err = unix.Sendmsg(int(fd), d.payload, control, sockaddr(d.dst, index), 0)
		return !errors.Is(err, unix.EAGAIN)
	})
	return errors.Join(cerr, err)
}

// setChecksum switches UDP checksums of sent datagrams on or off.
func (s *socket) setChecksum(wanted bool) (err error) {
	if s.checksumOff == !wanted {
		return nil
	}
	level, name, off := unix.SOL_SOCKET, unix.SO_NO_CHECK, 0
	if s.at.Addr().Is6() {
		level, name = unix.IPPROTO_UDP, unix.UDP_NO_CHECK6_TX
	}
	if !wanted {
		off = 1
	}
	cerr := s.conn.Control(func(fd uintptr) { err = unix.SetsockoptInt(int(fd), level, name, off) })
	if err = errors.Join(cerr, err); err != nil {
		return fmt.Errorf("set UDP checksum option: %w", err)
	}
	s.checksumOff = !wanted
	return nil
}
