package tcplink

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/fabrictest/fabrictest/emu/link"
	"github.com/fabrictest/fabrictest/internal/process"
)

// newSocket returns a socket of a's family in the network namespace of the Net, with all options of
// a stream. Accepted sockets inherit them from the listener.
func (n *Net) newSocket(a netip.Addr) (fd int, err error) {
	family := unix.AF_INET
	if a.Is6() {
		family = unix.AF_INET6
	}
	err = process.InNetNS(n.ns, func() (err error) {
		fd, err = unix.Socket(family, unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, unix.IPPROTO_TCP)
		return kernelError("socket", err)
	})
	if err != nil {
		return -1, err
	}
	if err = n.setOptions(fd, family); err != nil {
		unix.Close(fd)
		return -1, err
	}
	return fd, nil
}

// setOptions sets the options of a stream's socket as the configuration of the Net requires.
func (n *Net) setOptions(fd, family int) error {
	for _, o := range []struct {
		wanted            bool
		level, opt, value int
		name              string
	}{
		// No Nagle delay: bulk senders fill segments themselves, and others wait for answers.
		{true, unix.IPPROTO_TCP, unix.TCP_NODELAY, 1, "TCP_NODELAY"},
		// A new listener may use the address while old streams are in TIME_WAIT.
		{true, unix.SOL_SOCKET, unix.SO_REUSEADDR, 1, "SO_REUSEADDR"},
		// Both families may listen on the same port.
		{family == unix.AF_INET6, unix.IPPROTO_IPV6, unix.IPV6_V6ONLY, 1, "IPV6_V6ONLY"},
		{n.cfg.SendBufBytes > 0, unix.SOL_SOCKET, unix.SO_SNDBUF, n.cfg.SendBufBytes, "SO_SNDBUF"},
		{n.cfg.RecvBufBytes > 0, unix.SOL_SOCKET, unix.SO_RCVBUF, n.cfg.RecvBufBytes, "SO_RCVBUF"},
		{n.cfg.MaxSegment > 0, unix.IPPROTO_TCP, unix.TCP_MAXSEG, n.cfg.MaxSegment, "TCP_MAXSEG"},
		{n.cfg.UserTimeout > 0, unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, int(n.cfg.UserTimeout.Milliseconds()), "TCP_USER_TIMEOUT"},
	} {
		if !o.wanted {
			continue
		}
		if err := unix.SetsockoptInt(fd, o.level, o.opt, o.value); err != nil {
			return fmt.Errorf("set %s to %d: %w", o.name, o.value, err)
		}
	}
	return nil
}

// unmapAddrPort returns a, converted to IPv4 if it is an IPv4-mapped IPv6 address.
func unmapAddrPort(a netip.AddrPort) netip.AddrPort {
	return netip.AddrPortFrom(a.Addr().Unmap(), a.Port())
}

// unspecifiedLike is the unspecified address of a's family.
func unspecifiedLike(a netip.Addr) netip.Addr {
	if a.Is4() {
		return netip.IPv4Unspecified()
	}
	return netip.IPv6Unspecified()
}

// toSockaddr converts an address for the kernel. fd is a socket in the net's namespace, through
// which it looks up the interface of an IPv6 zone.
func toSockaddr(fd int, a netip.AddrPort) (unix.Sockaddr, error) {
	ip := a.Addr()
	if ip.Is4() {
		return &unix.SockaddrInet4{Port: int(a.Port()), Addr: ip.As4()}, nil
	}
	sa := &unix.SockaddrInet6{Port: int(a.Port()), Addr: ip.As16()}
	switch zone := ip.Zone(); {
	case zone != "":
		index, err := interfaceIndex(fd, zone)
		if err != nil {
			return nil, fmt.Errorf("zone of %v: %w", ip, err)
		}
		sa.ZoneId = index
	case ip.IsLinkLocalUnicast():
		return nil, fmt.Errorf("%v is link-local: add a zone, as in %v%%eth0", ip, ip)
	}
	return sa, nil
}

// interfaceIndex returns the index of the interface that an IPv6 zone names. The zone may also be
// the index itself. fd is a socket in the namespace of the interface.
func interfaceIndex(fd int, zone string) (uint32, error) {
	if index, err := strconv.ParseUint(zone, 10, 32); err == nil {
		return uint32(index), nil
	}
	req, err := unix.NewIfreq(zone)
	if err != nil {
		return 0, errors.New("not the name of an interface")
	}
	if err := unix.IoctlIfreq(fd, unix.SIOCGIFINDEX, req); err != nil {
		return 0, os.NewSyscallError("SIOCGIFINDEX", err)
	}
	return req.Uint32(), nil
}

// fromSockaddr converts an address of the kernel.
func fromSockaddr(sa unix.Sockaddr) netip.AddrPort {
	switch a := sa.(type) {
	case *unix.SockaddrInet4:
		return netip.AddrPortFrom(netip.AddrFrom4(a.Addr), uint16(a.Port))
	case *unix.SockaddrInet6:
		ip := netip.AddrFrom16(a.Addr)
		if a.ZoneId != 0 {
			ip = ip.WithZone(strconv.FormatUint(uint64(a.ZoneId), 10))
		}
		return netip.AddrPortFrom(ip, uint16(a.Port))
	}
	return netip.AddrPort{}
}

// localAddr returns the local address of a socket.
func localAddr(fd int) (netip.AddrPort, error) {
	sa, err := unix.Getsockname(fd)
	if err != nil {
		return netip.AddrPort{}, os.NewSyscallError("getsockname", err)
	}
	return fromSockaddr(sa), nil
}

// kernelError adds the name of a system call to its error, and wraps it with the matching error
// of package link if there is one.
func kernelError(call string, err error) error {
	var meaning error
	switch {
	case err == nil:
		return nil
	case errors.Is(err, unix.EADDRINUSE):
		meaning = link.ErrAddrInUse
	case errors.Is(err, unix.EADDRNOTAVAIL) && call == "connect":
		meaning = link.ErrAddrInUse // no local port is free
	case errors.Is(err, unix.EADDRNOTAVAIL), errors.Is(err, unix.ENETUNREACH), errors.Is(err, unix.EHOSTUNREACH),
		errors.Is(err, unix.ENETDOWN), errors.Is(err, unix.EHOSTDOWN):
		meaning = link.ErrUnreachable
	case errors.Is(err, unix.EMFILE), errors.Is(err, unix.ENFILE):
		meaning = link.ErrLimit
	default:
		return os.NewSyscallError(call, err)
	}
	return fmt.Errorf("%w: %w", meaning, os.NewSyscallError(call, err))
}

// socketError returns the error of a stream whose socket has failed: ErrRefused or ErrUnreachable
// if errno says so and the stream was not connected yet, else ErrReset.
func (s *Stream) socketError(errno unix.Errno) error {
	meaning := link.ErrReset
	if !s.connected {
		switch errno {
		case unix.ECONNREFUSED:
			meaning = link.ErrRefused
		case unix.ETIMEDOUT, unix.ENETUNREACH, unix.EHOSTUNREACH, unix.ENETDOWN, unix.EHOSTDOWN:
			meaning = link.ErrUnreachable
		}
	}
	return fmt.Errorf("tcplink: %v to %v: %w: %w", s.local, s.remote, meaning, errno)
}

// errnoOf returns the errno that err wraps; 0 if there is none.
func errnoOf(err error) (errno unix.Errno) {
	errors.As(err, &errno)
	return errno
}
