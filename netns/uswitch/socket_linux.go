package uswitch

import (
	"errors"
	"fmt"
	"net"
	"os"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// socket is a packet socket on one interface.
type socket struct {
	fd     int
	index  int // of the interface
	mtu    int
	buffer int  // bytes granted
	failed bool // it has reported an error: the interface went down, and may be removed by now
}

// openSocket opens a packet socket on an interface in the namespace of the calling thread.
func openSocket(name string, bufferBytes int) (*socket, error) {
	intf, err := net.InterfaceByName(name)
	if err != nil {
		return nil, fmt.Errorf("find interface %s: %w", name, err)
	}
	// Protocol 0: receive nothing before bind.
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("packet socket for %s: %w", name, explain(err))
	}
	s := &socket{fd: fd, index: intf.Index, mtu: intf.MTU}
	if err := s.setUp(bufferBytes); err != nil {
		unix.Close(fd)
		return nil, fmt.Errorf("packet socket for %s: %w", name, err)
	}
	return s, nil
}

// explain adds the missing capability to a permission error.
func explain(err error) error {
	if errors.Is(err, unix.EPERM) {
		return fmt.Errorf("%w (it takes CAP_NET_RAW in the user namespace that owns the network namespace)", err)
	}
	return err
}

// setUp sets the options of the socket and binds it. PACKET_QDISC_BYPASS is not set: a veth end has
// no queue to bypass, and with it the kernel drops GSO packets that it must segment.
func (s *socket) setUp(bufferBytes int) error {
	for _, o := range []struct {
		name string
		opt  int
	}{
		{"PACKET_VNET_HDR", unix.PACKET_VNET_HDR},               // GSO packets and partial checksums
		{"PACKET_IGNORE_OUTGOING", unix.PACKET_IGNORE_OUTGOING}, // not the frames that the switch sends
		{"PACKET_AUXDATA", unix.PACKET_AUXDATA},                 // the VLAN tag, which the kernel removes
	} {
		if err := unix.SetsockoptInt(s.fd, unix.SOL_PACKET, o.opt, 1); err != nil {
			return fmt.Errorf("%s: %w", o.name, err)
		}
	}
	if unix.SetsockoptInt(s.fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, bufferBytes) != nil {
		if err := unix.SetsockoptInt(s.fd, unix.SOL_SOCKET, unix.SO_RCVBUF, bufferBytes); err != nil {
			return fmt.Errorf("SO_RCVBUF: %w", err)
		}
	}
	granted, err := unix.GetsockoptInt(s.fd, unix.SOL_SOCKET, unix.SO_RCVBUF)
	if err != nil {
		return fmt.Errorf("SO_RCVBUF: %w", err)
	}
	s.buffer = granted
	const all = unix.ETH_P_ALL<<8&0xff00 | unix.ETH_P_ALL>>8 // in network byte order
	if err := unix.Bind(s.fd, &unix.SockaddrLinklayer{Protocol: all, Ifindex: s.index}); err != nil {
		return fmt.Errorf("bind: %w", err)
	}
	// The promiscuous mode ends with the socket.
	m := unix.PacketMreq{Ifindex: int32(s.index), Type: unix.PACKET_MR_PROMISC}
	if err := unix.SetsockoptPacketMreq(s.fd, unix.SOL_PACKET, unix.PACKET_ADD_MEMBERSHIP, &m); err != nil {
		return fmt.Errorf("PACKET_MR_PROMISC: %w", err)
	}
	return nil
}

// removed reports whether the interface no longer exists. The kernel unbinds the socket of a
// removed interface, but not of one that is down.
func (s *socket) removed() bool {
	name, err := unix.Getsockname(s.fd)
	if err != nil {
		return true // no frame can be sent or received
	}
	ll, ok := name.(*unix.SockaddrLinklayer)
	return !ok || ll.Ifindex != s.index
}

// overruns returns the number of frames that the kernel dropped since the last call because the
// buffer was full; 0 if it cannot be read.
func (s *socket) overruns() uint64 {
	st, err := unix.GetsockoptTpacketStats(s.fd, unix.SOL_PACKET, unix.PACKET_STATISTICS)
	if err != nil {
		return 0
	}
	return uint64(st.Drops)
}

func (s *socket) close() error { return os.NewSyscallError("close", unix.Close(s.fd)) }

// DisableGSO makes an interface in the namespace of the calling thread segment GSO packets before
// it sends them. A host's interface needs it if SupportsUDPGSO is false.
func DisableGSO(name string) error {
	dev, err := netlink.LinkByName(name)
	if err != nil {
		return fmt.Errorf("find interface %s: %w", name, err)
	}
	if err := netlink.LinkSetGSOMaxSegs(dev, 1); err != nil {
		return fmt.Errorf("interface %s: gso_max_segs 1: %w", name, err)
	}
	return nil
}

// SupportsUDPGSO reports whether packet sockets of this kernel send and receive
// UDP GSO packets (6.2 and later).
func SupportsUDPGSO() bool {
	var u unix.Utsname
	if unix.Uname(&u) != nil {
		return false
	}
	return releaseSupportsUDPGSO(unix.ByteSliceToString(u.Release[:]))
}

// releaseSupportsUDPGSO is SupportsUDPGSO for a kernel release such as "6.2.0-39-generic".
func releaseSupportsUDPGSO(release string) bool {
	var major, minor int
	if n, _ := fmt.Sscanf(release, "%d.%d", &major, &minor); n != 2 {
		return false
	}
	return major > 6 || (major == 6 && minor >= 2)
}
