package udplink

import (
	"fmt"
	"net/netip"
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
)

// From linux/in6.h; x/sys/unix lacks them.
const (
	ipv6FlowInfo     = 11 // shows traffic class and flow label in one message
	ipv6FlowInfoSend = 33 // takes the flow label from the socket address
)

// socketOptions are the options of all sockets of a link: the main one, and those that
// receive for multicast groups.
type socketOptions struct {
	Config
	v6    bool
	iface iface
}

type sockopt struct {
	level, opt, value int
	name              string
}

// newSocket returns an unbound socket with all options but GSO and GRO.
func (o *socketOptions) newSocket() (fd int, err error) {
	family := unix.AF_INET
	if o.v6 {
		family = unix.AF_INET6
	}
	fd, err = unix.Socket(family, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return -1, os.NewSyscallError("socket", err)
	}
	for _, s := range o.options() {
		if err := unix.SetsockoptInt(fd, s.level, s.opt, s.value); err != nil {
			unix.Close(fd)
			if s.opt == unix.SO_BUSY_POLL && err == unix.EPERM {
				return -1, fmt.Errorf("SO_BUSY_POLL: %w: BusyPollMicros needs CAP_NET_ADMIN", err)
			}
			return -1, fmt.Errorf("set %s: %w", s.name, err)
		}
	}
	if err = o.growBuffers(fd); err == nil {
		err = o.chooseMulticastInterface(fd)
	}
	if err == nil && o.DropFragmentable {
		err = attachFilter(fd, append(plainIP(o.v6), unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: acceptAll}))
	}
	if err != nil {
		unix.Close(fd)
		return -1, err
	}
	return fd, nil
}

// options lists the socket options of the address family and Config.
func (o *socketOptions) options() []sockopt {
	wildcard := o.Local.Addr().IsUnspecified()
	var opts []sockopt
	if o.v6 {
		opts = []sockopt{
			{unix.IPPROTO_IPV6, unix.IPV6_V6ONLY, 1, "IPV6_V6ONLY"},
			{unix.IPPROTO_IPV6, unix.IPV6_MTU_DISCOVER, unix.IPV6_PMTUDISC_DO, "IPV6_MTU_DISCOVER"},
			{unix.IPPROTO_IPV6, unix.IPV6_RECVHOPLIMIT, 1, "IPV6_RECVHOPLIMIT"},
			{unix.IPPROTO_IPV6, ipv6FlowInfo, 1, "IPV6_FLOWINFO"},
			{unix.IPPROTO_IPV6, ipv6FlowInfoSend, 1, "IPV6_FLOWINFO_SEND"},
			// A flow label of 0 is sent as 0, not as a hash.
			{unix.IPPROTO_IPV6, unix.IPV6_AUTOFLOWLABEL, 0, "IPV6_AUTOFLOWLABEL"},
			// Linux's own soft-RoCE sends checksum 0 over IPv6 too.
			{unix.SOL_UDP, unix.UDP_NO_CHECK6_RX, 1, "UDP_NO_CHECK6_RX"},
			{unix.IPPROTO_IPV6, unix.IPV6_MULTICAST_ALL, 0, "IPV6_MULTICAST_ALL"},
			{unix.IPPROTO_IPV6, unix.IPV6_MULTICAST_LOOP, 1, "IPV6_MULTICAST_LOOP"},
		}
		if wildcard {
			opts = append(opts, sockopt{unix.IPPROTO_IPV6, unix.IPV6_RECVPKTINFO, 1, "IPV6_RECVPKTINFO"})
		}
		if o.NoChecksum {
			opts = append(opts, sockopt{unix.SOL_UDP, unix.UDP_NO_CHECK6_TX, 1, "UDP_NO_CHECK6_TX"})
		}
	} else {
		opts = []sockopt{
			{unix.IPPROTO_IP, unix.IP_MTU_DISCOVER, unix.IP_PMTUDISC_DO, "IP_MTU_DISCOVER"},
			{unix.IPPROTO_IP, unix.IP_RECVTOS, 1, "IP_RECVTOS"},
			{unix.IPPROTO_IP, unix.IP_RECVTTL, 1, "IP_RECVTTL"},
			{unix.IPPROTO_IP, unix.IP_MULTICAST_ALL, 0, "IP_MULTICAST_ALL"},
			{unix.IPPROTO_IP, unix.IP_MULTICAST_LOOP, 1, "IP_MULTICAST_LOOP"},
		}
		if wildcard {
			opts = append(opts, sockopt{unix.IPPROTO_IP, unix.IP_PKTINFO, 1, "IP_PKTINFO"})
		}
		if o.NoChecksum {
			opts = append(opts, sockopt{unix.SOL_SOCKET, unix.SO_NO_CHECK, 1, "SO_NO_CHECK"})
		}
	}
	if o.Broadcast {
		opts = append(opts, sockopt{unix.SOL_SOCKET, unix.SO_BROADCAST, 1, "SO_BROADCAST"})
	}
	if o.BusyPollMicros != 0 {
		opts = append(opts, sockopt{unix.SOL_SOCKET, unix.SO_BUSY_POLL, o.BusyPollMicros, "SO_BUSY_POLL"})
	}
	return opts
}

// chooseMulticastInterface makes the socket send multicast through the link address's interface.
func (o *socketOptions) chooseMulticastInterface(fd int) (err error) {
	switch {
	case o.iface.index == 0:
		return nil
	case o.v6:
		err = unix.SetsockoptInt(fd, unix.IPPROTO_IPV6, unix.IPV6_MULTICAST_IF, o.iface.index)
	default:
		mreq := &unix.IPMreqn{Address: o.Local.Addr().As4(), Ifindex: int32(o.iface.index)}
		err = unix.SetsockoptIPMreqn(fd, unix.IPPROTO_IP, unix.IP_MULTICAST_IF, mreq)
	}
	if err != nil {
		return fmt.Errorf("send multicast through %s: %w", o.iface.name, err)
	}
	return nil
}

// growBuffers sets the buffer sizes. It first tries to exceed the system's limit, which needs
// CAP_NET_ADMIN.
func (o *socketOptions) growBuffers(fd int) error {
	for _, b := range []struct {
		name          string
		bytes         int
		force, normal int
	}{
		{"SO_RCVBUF", o.RecvBufBytes, unix.SO_RCVBUFFORCE, unix.SO_RCVBUF},
		{"SO_SNDBUF", o.SendBufBytes, unix.SO_SNDBUFFORCE, unix.SO_SNDBUF},
	} {
		if b.bytes == 0 {
			b.bytes = DefaultBufBytes
		}
		if unix.SetsockoptInt(fd, unix.SOL_SOCKET, b.force, b.bytes) == nil {
			continue
		}
		if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, b.normal, b.bytes); err != nil {
			return fmt.Errorf("set %s to %d: %w", b.name, b.bytes, err)
		}
	}
	return nil
}

// probeOffload returns whether to use an offload: want is not OffloadOff, and the kernel has the
// socket option opt. A missing option is an error only if want is OffloadOn.
func probeOffload(fd, opt int, name string, want Offload) (bool, error) {
	if want == OffloadOff {
		return false, nil
	}
	_, err := unix.GetsockoptInt(fd, unix.SOL_UDP, opt)
	if err != nil && want == OffloadOn {
		return false, fmt.Errorf("%s: %w", name, err)
	}
	return err == nil, nil
}

// enableGRO lets the socket receive several datagrams as one super-packet.
func enableGRO(fd int) error {
	if err := unix.SetsockoptInt(fd, unix.SOL_UDP, unix.UDP_GRO, 1); err != nil {
		return fmt.Errorf("set UDP_GRO: %w", err)
	}
	return nil
}

// setDefaults sets the traffic class and hop limit of packets without control messages, and returns
// the hop limit: Config's, or the kernel's if that is 0. Multicast uses the same.
func (o *socketOptions) setDefaults(fd int) (hopLimit uint8, err error) {
	level, tclass, unicast, multicast := unix.IPPROTO_IP, unix.IP_TOS, unix.IP_TTL, unix.IP_MULTICAST_TTL
	if o.v6 {
		level, tclass, unicast, multicast = unix.IPPROTO_IPV6, unix.IPV6_TCLASS, unix.IPV6_UNICAST_HOPS, unix.IPV6_MULTICAST_HOPS
	}
	hops := int(o.HopLimit)
	if hops == 0 {
		if hops, err = unix.GetsockoptInt(fd, level, unicast); err != nil {
			return 0, fmt.Errorf("get the default hop limit: %w", err)
		}
	}
	for _, s := range []sockopt{
		{level, tclass, int(o.TClass), "traffic class"},
		{level, unicast, hops, "hop limit"},
		{level, multicast, hops, "multicast hop limit"},
	} {
		if err := unix.SetsockoptInt(fd, s.level, s.opt, s.value); err != nil {
			return 0, fmt.Errorf("set the default %s: %w", s.name, err)
		}
	}
	return uint8(hops), nil
}

// bind binds fd and returns the bound address. It binds link-local IPv6 addresses on interface ifi.
func bind(fd int, addr netip.AddrPort, ifi int) (netip.AddrPort, error) {
	var sa unix.Sockaddr
	ip := addr.Addr().WithZone("")
	if ip.Is4() {
		sa = &unix.SockaddrInet4{Port: int(addr.Port()), Addr: ip.As4()}
	} else {
		sa = &unix.SockaddrInet6{Port: int(addr.Port()), Addr: ip.As16(), ZoneId: uint32(scopeID(ip, ifi))}
	}
	if err := unix.Bind(fd, sa); err != nil {
		return netip.AddrPort{}, os.NewSyscallError("bind", err)
	}
	bound, err := unix.Getsockname(fd)
	if err != nil {
		return netip.AddrPort{}, os.NewSyscallError("getsockname", err)
	}
	port := addr.Port()
	switch b := bound.(type) {
	case *unix.SockaddrInet4:
		port = uint16(b.Port)
	case *unix.SockaddrInet6:
		port = uint16(b.Port)
	}
	return netip.AddrPortFrom(ip, port), nil
}

// scopeID is the scope ID of an address in a socket address: ifi for link-local scope, else 0.
func scopeID(ip netip.Addr, ifi int) int {
	if ip.Is6() && (ip.IsLinkLocalUnicast() || ip.IsLinkLocalMulticast() || ip.IsInterfaceLocalMulticast()) {
		return ifi
	}
	return 0
}

// kernelDrops returns how many datagrams the kernel dropped. SO_RXQ_OVFL would report it
// too, but only with a later datagram and one control message for each.
func (l *Link) kernelDrops() uint64 {
	drops := socketDrops(l.fd)
	for _, g := range l.groups {
		if g.ownSocket {
			drops += socketDrops(g.fd)
		}
	}
	return l.ring.drops(drops)
}

// socketDrops returns how many received packets the kernel dropped at a socket; 0 if unknown.
func socketDrops(fd int) uint64 {
	var info [unix.SK_MEMINFO_DROPS + 1]uint32
	size := uint32(unsafe.Sizeof(info))
	_, _, errno := unix.RawSyscall6(unix.SYS_GETSOCKOPT, uintptr(fd), unix.SOL_SOCKET, unix.SO_MEMINFO,
		uintptr(unsafe.Pointer(&info)), uintptr(unsafe.Pointer(&size)), 0)
	if errno != 0 {
		return 0
	}
	return uint64(info[unix.SK_MEMINFO_DROPS])
}
