package tcplink

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"runtime"
	"strconv"

	"golang.org/x/sys/unix"
)

// newSocket makes a socket for addresses like a, in the net's namespace, with
// all the options of a stream. A listener hands them on to what it accepts.
func (n *Net) newSocket(a netip.Addr) (fd int, err error) {
	family := unix.AF_INET
	if a.Is6() {
		family = unix.AF_INET6
	}
	err = n.inNamespace(func() (err error) {
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

func (n *Net) setOptions(fd, family int) error {
	for _, o := range []struct {
		want              bool
		level, opt, value int
		name              string
	}{
		// Who streams fills segments by itself, and who does not waits for answers.
		{true, unix.IPPROTO_TCP, unix.TCP_NODELAY, 1, "TCP_NODELAY"},
		// A listener may return to where streams of the last one linger.
		{true, unix.SOL_SOCKET, unix.SO_REUSEADDR, 1, "SO_REUSEADDR"},
		// The two families have listeners of their own, on the same port if need be.
		{family == unix.AF_INET6, unix.IPPROTO_IPV6, unix.IPV6_V6ONLY, 1, "IPV6_V6ONLY"},
		{n.cfg.SendBufBytes > 0, unix.SOL_SOCKET, unix.SO_SNDBUF, n.cfg.SendBufBytes, "SO_SNDBUF"},
		{n.cfg.RecvBufBytes > 0, unix.SOL_SOCKET, unix.SO_RCVBUF, n.cfg.RecvBufBytes, "SO_RCVBUF"},
		{n.cfg.MaxSegment > 0, unix.IPPROTO_TCP, unix.TCP_MAXSEG, n.cfg.MaxSegment, "TCP_MAXSEG"},
		{n.cfg.UserTimeout > 0, unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, int(n.cfg.UserTimeout.Milliseconds()), "TCP_USER_TIMEOUT"},
	} {
		if !o.want {
			continue
		}
		if err := unix.SetsockoptInt(fd, o.level, o.opt, o.value); err != nil {
			return fmt.Errorf("set %s to %d: %w", o.name, o.value, err)
		}
	}
	return nil
}

// inNamespace runs fn on a thread that is in the net's namespace: the caller's
// own if it is.
func (n *Net) inNamespace(fn func() error) error {
	runtime.LockOSThread()
	here, err := n.inOwnNamespace()
	if err != nil || here {
		if err == nil {
			err = fn()
		}
		runtime.UnlockOSThread()
		return err
	}
	runtime.UnlockOSThread()
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // for good: a thread that has moved dies with its goroutine
		if err := unix.Setns(int(n.ns.Fd()), unix.CLONE_NEWNET); err != nil {
			done <- fmt.Errorf("enter the network namespace that the net was opened in: %w", err)
			return
		}
		done <- fn()
	}()
	return <-done
}

// isHere reports whether the calling thread is in the net's namespace.
func (n *Net) inOwnNamespace() (bool, error) {
	var here, there unix.Stat_t
	if err := unix.Stat("/proc/thread-self/ns/net", &here); err != nil {
		return false, os.NewSyscallError("stat /proc/thread-self/ns/net", err)
	}
	if err := unix.Fstat(int(n.ns.Fd()), &there); err != nil {
		return false, os.NewSyscallError("stat the net's namespace", err)
	}
	return here.Dev == there.Dev && here.Ino == there.Ino, nil
}

// plain is the one form of an address: IPv4 is not mapped into IPv6.
func unmapAddrPort(a netip.AddrPort) netip.AddrPort {
	return netip.AddrPortFrom(a.Addr().Unmap(), a.Port())
}

// anyLike is the unspecified address of a's family.
func unspecifiedLike(a netip.Addr) netip.Addr {
	if a.Is4() {
		return netip.IPv4Unspecified()
	}
	return netip.IPv6Unspecified()
}

// sockaddr is a for the kernel. A zone is looked up through fd, which is in the
// right namespace whichever the caller is in.
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
		return nil, fmt.Errorf("%v is on every link: say which, as in %v%%eth0", ip, ip)
	}
	return sa, nil
}

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

// addrOf is what the kernel says an address is.
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

func localAddr(fd int) (netip.AddrPort, error) {
	sa, err := unix.Getsockname(fd)
	if err != nil {
		return netip.AddrPort{}, os.NewSyscallError("getsockname", err)
	}
	return fromSockaddr(sa), nil
}
