package udplink

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/fabrictest/fabrictest/emu/link"
	"github.com/fabrictest/fabrictest/internal/process"
)

// group is a multicast group, or 255.255.255.255, that the link receives for. A socket
// bound to a unicast address receives neither, so each group has a socket bound to its
// address. The socket of a link with a wildcard address serves all groups.
type group struct {
	addr      netip.Addr
	fd        int
	ownSocket bool // fd is not the link's socket
	joins     int
}

func (g group) close() {
	if g.ownSocket {
		unix.Close(g.fd)
	}
}

// limitedBroadcast is 255.255.255.255.
var limitedBroadcast = netip.AddrFrom4([4]byte{255, 255, 255, 255})

// Join implements link.GroupLink: the link receives datagrams to a multicast group, on the
// interface that owns the link's address, until Leave was called as often as Join. With
// Config.Broadcast the group may be 255.255.255.255.
func (l *Link) Join(addr netip.Addr) error {
	if !l.users.enter() {
		return link.ErrClosed
	}
	defer l.users.leave()
	addr = addr.Unmap().WithZone("")
	if g := l.group(addr); g != nil {
		g.joins++
		return nil
	}
	g, err := l.openGroup(addr)
	if err != nil {
		return fmt.Errorf("udplink: join %v on %v: %w", addr, l.info.Local, err)
	}
	l.groups = append(l.groups, g)
	if g.ownSocket {
		l.sleep.watch(g.fd)
	}
	return nil
}

// Leave undoes one Join. After the last Leave of a group, its queued datagrams may be lost.
func (l *Link) Leave(addr netip.Addr) error {
	if !l.users.enter() {
		return link.ErrClosed
	}
	defer l.users.leave()
	addr = addr.Unmap().WithZone("")
	g := l.group(addr)
	if g == nil {
		return fmt.Errorf("udplink: leave %v on %v: not joined", addr, l.info.Local)
	}
	if g.joins > 1 {
		g.joins--
		return nil
	}
	if g.ownSocket {
		l.sleep.unwatch(g.fd)
		g.close() // leaves the group too
	} else if err := membership(g.fd, addr, l.ifi, leaveGroup); err != nil {
		return fmt.Errorf("udplink: leave %v on %v: %w", addr, l.info.Local, err)
	}
	l.groups = slices.DeleteFunc(l.groups, func(g group) bool { return g.addr == addr })
	return nil
}

// group returns the entry of l.groups for addr; nil if the link has not joined that group.
func (l *Link) group(addr netip.Addr) *group {
	for i := range l.groups {
		if l.groups[i].addr == addr {
			return &l.groups[i]
		}
	}
	return nil
}

// openGroup joins a group: with the link's socket if that has a wildcard address, else with a new
// socket, because a socket bound to a unicast address receives no multicast.
func (l *Link) openGroup(addr netip.Addr) (group, error) {
	switch {
	case addr == limitedBroadcast && !l.sock.Broadcast:
		return group{}, errors.New("the link was opened without Broadcast")
	case !addr.IsMulticast() && addr != limitedBroadcast:
		return group{}, errors.New("not a multicast address")
	case addr.Is6() != l.in.v6:
		return group{}, errors.New("the link is of the other address family")
	case l.in.wildcard:
		g := group{addr: addr, fd: l.fd, joins: 1}
		return g, membership(g.fd, addr, l.ifi, joinGroup)
	}
	if l.ns == nil {
		return group{}, errors.New("/proc was not readable when the link was opened, so its network namespace is unknown")
	}
	g := group{addr: addr, fd: -1, ownSocket: true, joins: 1}
	err := process.InNetNS(l.ns, func() (err error) {
		g.fd, err = l.groupSocket(addr)
		return err
	})
	return g, err
}

// groupSocket opens a socket that receives for one group. With SO_REUSEADDR other links in the
// namespace may join the same group, and each gets a copy of every datagram.
func (l *Link) groupSocket(addr netip.Addr) (fd int, err error) {
	if fd, err = l.sock.newSocket(); err != nil {
		return -1, err
	}
	if err = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEADDR, 1); err == nil && l.in.gro {
		err = enableGRO(fd)
	}
	if err == nil {
		_, err = bind(fd, netip.AddrPortFrom(addr, l.info.Local.Port()), l.ifi)
	}
	if err == nil {
		err = membership(fd, addr, l.ifi, joinGroup)
	}
	if err == nil && addr == limitedBroadcast && l.ifi != 0 {
		// Broadcasts arrive from all interfaces: accept only those of the link's interface.
		err = os.NewSyscallError("SO_BINDTOIFINDEX", unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_BINDTOIFINDEX, l.ifi))
	}
	if err != nil {
		unix.Close(fd)
		return -1, err
	}
	return fd, nil
}

const joinGroup, leaveGroup = true, false // of membership

// membership joins or leaves a multicast group on interface ifi.
func membership(fd int, addr netip.Addr, ifi int, join bool) error {
	if addr == limitedBroadcast {
		return nil // needs no membership
	}
	if addr.Is4() {
		opt := unix.IP_DROP_MEMBERSHIP
		if join {
			opt = unix.IP_ADD_MEMBERSHIP
		}
		return unix.SetsockoptIPMreqn(fd, unix.IPPROTO_IP, opt, &unix.IPMreqn{Multiaddr: addr.As4(), Ifindex: int32(ifi)})
	}
	opt := unix.IPV6_LEAVE_GROUP
	if join {
		opt = unix.IPV6_JOIN_GROUP
	}
	return unix.SetsockoptIPv6Mreq(fd, unix.IPPROTO_IPV6, opt, &unix.IPv6Mreq{Multiaddr: addr.As16(), Interface: uint32(ifi)})
}
