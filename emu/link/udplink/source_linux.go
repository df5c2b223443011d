package udplink

import (
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/fabrictest/fabrictest/emu/link"
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

// open opens two sockets that only send: s.fd to all destinations, and s.peer, which will be connected
// to one. It returns the address and port to which both are bound (SO_REUSEADDR).
func (s *sourceSockets) open(o *socketOptions) (from netip.AddrPort, err error) {
	from = netip.AddrPortFrom(o.Local.Addr(), 0) // the first bind chooses the port of both
	for _, fd := range []*int{&s.fd, &s.peer} {
		if *fd, err = o.newSocket(); err != nil {
			return from, err
		}
		for _, opt := range []sockopt{
			{unix.SOL_SOCKET, unix.SO_REUSEADDR, 1, "SO_REUSEADDR"},
			{unix.SOL_SOCKET, unix.SO_RCVBUF, 0, "SO_RCVBUF"}, // the minimum: the sockets are not read
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

// close closes the sockets that are open.
func (s *sourceSockets) close() {
	for _, fd := range []int{s.fd, s.peer} {
		if fd >= 0 {
			unix.Close(fd)
		}
	}
}

// sendFD returns the unconnected socket, for datagrams to any destination: that of the separate
// source port if the link has one (Config.SeparateSourcePort), else the socket that also receives.
func (l *Link) sendFD() int {
	if l.source.fd >= 0 {
		return l.source.fd
	}
	return l.fd
}

// usePeerSocket reports whether to send m from the connected socket, source.peer, which is cheaper.
// It connects that socket after connectAfter consecutive single datagrams to the same destination.
func (l *Link) usePeerSocket(m *message) bool {
	s := &l.source
	switch l.out.singleRun {
	case 1: // the header has changed
		s.usePeer = s.connected && s.header == m.header
	case connectAfter:
		if s.peer >= 0 && !s.usePeer {
			s.connect(m)
		}
	}
	return s.usePeer
}

// connect connects the socket s.peer to the destination of m. s.usePeer reports success.
func (s *sourceSockets) connect(m *message) {
	_, _, errno := syscall.RawSyscall(unix.SYS_CONNECT, uintptr(s.peer), uintptr(unsafe.Pointer(&m.addr)), uintptr(m.addrLen))
	s.header, s.connected, s.usePeer = m.header, errno == 0, errno == 0
}

// Maximum packet sizes of both families.
const (
	maxIPv4 = 1<<16 - 1
	maxIPv6 = 1<<16 - 1 + link.IPv6HeaderLen
)

// headerLen returns the length of the IP and UDP headers.
func headerLen(v6 bool) int {
	if v6 {
		return link.IPv6HeaderLen + link.UDPHeaderLen
	}
	return link.IPv4HeaderLen + link.UDPHeaderLen
}

// iface is the network interface that has a local address.
type iface struct {
	name  string
	index int // 0 if no interface is known
	mtu   int
}

// findInterface returns the network interface that has addr, in the caller's network namespace. It
// returns the zero iface if addr is unspecified (0.0.0.0 or ::) or no interface has it, and an
// error if several interfaces have the same link-local address.
func findInterface(addr netip.Addr) (iface, error) {
	if addr.IsUnspecified() {
		return iface{}, nil
	}
	ifis, err := net.Interfaces()
	if err != nil {
		return iface{}, fmt.Errorf("list interfaces: %w", err)
	}
	var found []iface
	for _, ifi := range ifis {
		if z := addr.Zone(); z != "" && z != ifi.Name && z != strconv.Itoa(ifi.Index) {
			continue
		}
		if hasAddr(ifi, addr.WithZone("")) {
			found = append(found, iface{ifi.Name, ifi.Index, ifi.MTU})
		}
	}
	switch {
	case len(found) > 1 && addr.IsLinkLocalUnicast():
		return iface{}, fmt.Errorf("%s and %s both have it: add a zone", found[0].name, found[1].name)
	case len(found) == 0:
		return iface{}, nil
	}
	return found[0], nil
}

// hasAddr reports whether ifi owns addr; the loopback interface owns its whole networks.
func hasAddr(ifi net.Interface, addr netip.Addr) bool {
	addrs, err := ifi.Addrs()
	if err != nil {
		return false
	}
	for _, a := range addrs {
		ipnet, ok := a.(*net.IPNet)
		if !ok {
			continue
		}
		ip, _ := netip.AddrFromSlice(ipnet.IP)
		if ip.Unmap() == addr {
			return true
		}
		// All of 127.0.0.0/8 is local although lo lists only 127.0.0.1.
		if ifi.Flags&net.FlagLoopback != 0 && addr.IsLoopback() && ipnet.Contains(addr.AsSlice()) {
			return true
		}
	}
	return false
}

// effectiveMTU returns cfg.MTU or, if 0, that of the interface; an error if invalid or unknown.
func effectiveMTU(cfg Config, i iface) (int, error) {
	v6 := cfg.Local.Addr().Is6()
	lowest, highest := headerLen(v6)+1, maxIPv4 // one octet of payload or more
	if v6 {
		highest = maxIPv6
	}
	switch {
	case cfg.MTU == 0 && i.mtu == 0:
		return 0, fmt.Errorf("no interface owns %v, so its MTU is unknown: set Config.MTU", cfg.Local.Addr())
	case cfg.MTU == 0:
		return min(i.mtu, highest), nil
	case cfg.MTU < lowest || cfg.MTU > highest:
		return 0, fmt.Errorf("MTU %d, want %d to %d", cfg.MTU, lowest, highest)
	}
	return cfg.MTU, nil
}
