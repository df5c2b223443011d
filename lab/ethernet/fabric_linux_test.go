package ethernet

import (
	"context"
	"encoding/binary"
	"fmt"
	"net"
	"net/netip"
	"testing"
	"time"
	"unsafe"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/fabrictest/fabrictest/internal/must"
	"github.com/fabrictest/fabrictest/internal/testutil"
	"github.com/fabrictest/fabrictest/netns"
	"github.com/fabrictest/fabrictest/netns/uswitch"
)

func TestMain(m *testing.M) { testutil.NamespaceMain(m) }

// host is a namespace whose cable ends at a switch.
type host struct {
	*netns.NS
	v4, v6 netip.Addr
}

func (h *host) addr(v6 bool) netip.Addr {
	if v6 {
		return h.v6
	}
	return h.v4
}

// wired connects two hosts by a switch and resolves their neighbours, so that
// the first frame of a test is the first that an Impairer sees.
func wired(tb testing.TB, mtu int, change func(*uswitch.Config)) (s *uswitch.Switch, a, b *host) {
	tb.Helper()
	var cfg uswitch.Config
	s, a, b = wiredCold(tb, mtu, func(c *uswitch.Config) {
		cfg.Ports = append(cfg.Ports, c.Ports...)
	})
	for _, v6 := range []bool{false, true} {
		x, y := openUDP(tb, a, v6, 9), openUDP(tb, b, v6, 9)
		for i, hello := range [][2]*socket{{x, y}, {y, x}} {
			hello[0].send(tb, hello[1].addr, []byte("hello"), 5)
			if p, _ := hello[1].receive(tb); p == nil {
				tb.Fatalf("host %d does not reach the other over IPv6 %v", i, v6)
			}
		}
	}
	if change != nil {
		change(&cfg)
	}
	for i, p := range cfg.Ports {
		must.Do(tb, s.SetHandler(i, uswitch.In, p.In))
		must.Do(tb, s.SetHandler(i, uswitch.Out, p.Out))
	}
	return s, a, b
}

// wiredCold connects two hosts without resolving neighbours; change may set the
// handlers of the switch's ports.
func wiredCold(tb testing.TB, mtu int, change func(*uswitch.Config)) (s *uswitch.Switch, a, b *host) {
	tb.Helper()
	if why := testutil.NamespacesUnavailable(); why != nil {
		tb.Skipf("no network namespaces here: %v", why)
	}
	middle := must.Get(netns.New())(tb)
	tb.Cleanup(func() { middle.Close() })
	cfg := uswitch.Config{Name: "wire", InNamespace: middle.Do}
	hosts := [2]*host{{v4: v4A, v6: v6A}, {v4: v4B, v6: v6B}}
	for i, h := range hosts {
		h.NS = must.Get(netns.New())(tb)
		tb.Cleanup(func() { h.Close() })
		name := fmt.Sprintf("port%d", i)
		must.Do(tb, middle.Do(func() error { return plug(h, name, mtu) }))
		must.Do(tb, h.Do(h.configure))
		cfg.Ports = append(cfg.Ports, uswitch.PortConfig{Interface: name})
	}
	for i, h := range hosts {
		must.Do(tb, middle.Do(func() error { return waitUp(cfg.Ports[i].Interface) }))
		must.Do(tb, h.Do(h.waitReady))
	}
	if change != nil {
		change(&cfg)
	}
	s = must.Get(uswitch.New(cfg))(tb)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()
	tb.Cleanup(func() {
		cancel()
		must.Do(tb, <-ended)
		must.Do(tb, s.Close())
	})
	return s, hosts[0], hosts[1]
}

const hostDevice = "eth0"

func plug(h *host, name string, mtu int) error {
	attrs := netlink.NewLinkAttrs()
	attrs.Name, attrs.MTU = name, mtu
	if err := netlink.LinkAdd(&netlink.Veth{LinkAttrs: attrs, PeerName: hostDevice, PeerMTU: uint32(mtu), PeerNamespace: netlink.NsFd(h.FD())}); err != nil {
		return err
	}
	dev, err := netlink.LinkByName(name)
	if err != nil {
		return err
	}
	return netlink.LinkSetUp(dev)
}

func (h *host) configure() error {
	dev, err := netlink.LinkByName(hostDevice)
	if err != nil {
		return err
	}
	for _, p := range []netip.Prefix{netip.PrefixFrom(h.v4, 24), netip.PrefixFrom(h.v6, 64)} {
		a := &netlink.Addr{IPNet: &net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())}}
		if p.Addr().Is6() {
			a.Flags = unix.IFA_F_NODAD
		}
		if err := netlink.AddrAdd(dev, a); err != nil {
			return err
		}
	}
	if !uswitch.SupportsUDPGSO() {
		if err := uswitch.DisableGSO(hostDevice); err != nil {
			return err
		}
	}
	return netlink.LinkSetUp(dev)
}

func waitUp(name string) error {
	return await(name+" is up", func() bool {
		dev, err := netlink.LinkByName(name)
		return err == nil && dev.Attrs().OperState == netlink.OperUp
	})
}

// waitReady waits until the host receives packets to its addresses. The kernel
// enables IPv6 addresses asynchronously, after the interface is up.
func (h *host) waitReady() error {
	if err := waitUp(hostDevice); err != nil {
		return err
	}
	return await(h.v6.String()+" is a local address", func() bool {
		routes, err := netlink.RouteGet(h.v6.AsSlice())
		return err == nil && len(routes) > 0 && routes[0].Type == unix.RTN_LOCAL
	})
}

func await(what string, ok func() bool) error {
	for deadline := time.Now().Add(testTimeout); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			return fmt.Errorf("not within %v: %s", testTimeout, what)
		}
	}
	return nil
}

// testTimeout is the timeout for expected packets; quiet is the wait for unexpected ones.
const testTimeout, quiet = 20 * time.Second, 300 * time.Millisecond

// socket is a UDP socket of a host.
type socket struct {
	fd   int
	addr netip.AddrPort
}

func openUDP(tb testing.TB, h *host, v6 bool, port uint16) *socket {
	tb.Helper()
	s := &socket{addr: netip.AddrPortFrom(h.addr(v6), port)}
	family, level, opt, tclass, mtu := unix.AF_INET, unix.IPPROTO_IP, unix.IP_RECVTOS, unix.IP_TOS, unix.IP_MTU_DISCOVER
	if v6 {
		family, level, opt, tclass, mtu = unix.AF_INET6, unix.IPPROTO_IPV6, unix.IPV6_RECVTCLASS, unix.IPV6_TCLASS, unix.IPV6_MTU_DISCOVER
	}
	must.Do(tb, h.Do(func() (err error) {
		if s.fd, err = unix.Socket(family, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0); err != nil {
			return err
		}
		if unix.SetsockoptInt(s.fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, 8<<20) != nil {
			_ = unix.SetsockoptInt(s.fd, unix.SOL_SOCKET, unix.SO_RCVBUF, 8<<20)
		}
		_ = unix.SetsockoptInt(s.fd, level, opt, 1)
		_ = unix.SetsockoptInt(s.fd, level, tclass, 2)                // ECT
		_ = unix.SetsockoptInt(s.fd, level, mtu, unix.IP_PMTUDISC_DO) // IPv4 identification 0
		return unix.Bind(s.fd, sockaddr(s.addr))
	}))
	tb.Cleanup(func() { unix.Close(s.fd) })
	s.timeout(tb, testTimeout)
	return s
}

func (s *socket) timeout(tb testing.TB, d time.Duration) {
	tb.Helper()
	tv := unix.NsecToTimeval(d.Nanoseconds())
	must.Do(tb, unix.SetsockoptTimeval(s.fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &tv))
}

func sockaddr(a netip.AddrPort) unix.Sockaddr {
	if a.Addr().Is4() {
		return &unix.SockaddrInet4{Addr: a.Addr().As4(), Port: int(a.Port())}
	}
	return &unix.SockaddrInet6{Addr: a.Addr().As16(), Port: int(a.Port())}
}

// send sends b as datagrams of size bytes in one GSO packet.
func (s *socket) send(tb testing.TB, to netip.AddrPort, b []byte, size int) {
	tb.Helper()
	control := make([]byte, unix.CmsgSpace(2))
	h := (*unix.Cmsghdr)(unsafe.Pointer(&control[0]))
	h.Level, h.Type = unix.SOL_UDP, unix.UDP_SEGMENT
	h.SetLen(unix.CmsgLen(2))
	binary.NativeEndian.PutUint16(control[unix.CmsgLen(0):], uint16(size))
	if len(b) <= size {
		control = nil
	}
	must.Do(tb, unix.Sendmsg(s.fd, b, control, sockaddr(to), 0))
}

// nothing returns unexpected datagrams received in a while.
func (s *socket) nothing(tb testing.TB) []byte {
	tb.Helper()
	s.timeout(tb, quiet)
	defer s.timeout(tb, testTimeout)
	p, _ := s.receive(tb)
	return p
}

// receive returns the next datagram and its traffic class; nil after the timeout.
func (s *socket) receive(tb testing.TB) ([]byte, uint8) {
	tb.Helper()
	b, oob := make([]byte, 1<<16), make([]byte, 64)
	for {
		n, noob, _, _, err := unix.Recvmsg(s.fd, b, oob, 0)
		switch err {
		case nil:
		case unix.EINTR:
			continue
		default:
			return nil, 0
		}
		ms := must.Get(unix.ParseSocketControlMessage(oob[:noob]))(tb)
		tclass := uint8(0)
		for _, m := range ms {
			tclass = m.Data[0]
		}
		return b[:n:n], tclass
	}
}
