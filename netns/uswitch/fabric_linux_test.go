package uswitch

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"os"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/fabrictest/fabrictest/internal/must"
)

// namespace is a network namespace held by a descriptor.
type namespace struct{ f *os.File }

func newNamespace(tb testing.TB) *namespace {
	tb.Helper()
	ns := &namespace{}
	err := onOwnThread(func() (err error) {
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			return err
		}
		ns.f, err = os.Open("/proc/thread-self/ns/net")
		return err
	})
	if err != nil {
		tb.Skipf("no network namespaces here: %v", err)
	}
	tb.Cleanup(func() { ns.f.Close() })
	return ns
}

func (ns *namespace) do(fn func() error) error {
	return onOwnThread(func() error {
		if err := unix.Setns(int(ns.f.Fd()), unix.CLONE_NEWNET); err != nil {
			return err
		}
		return fn()
	})
}

// host is a namespace with one interface, eth0, connected to a switch.
type host struct {
	*namespace
	mac    net.HardwareAddr
	v4, v6 netip.Addr
}

func (h *host) addr(v6 bool) netip.Addr {
	if v6 {
		return h.v6
	}
	return h.v4
}

const hostDevice = "eth0"

// cables creates n hosts whose cables end in the namespace of a switch.
func cables(tb testing.TB, n, mtu int) (at *namespace, hosts []*host) {
	tb.Helper()
	at = newNamespace(tb)
	for i := range n {
		k := byte(i + 1)
		h := &host{
			namespace: newNamespace(tb),
			mac:       net.HardwareAddr{2, 0, 0, 0, 1, k},
			v4:        netip.AddrFrom4([4]byte{10, 7, 0, k}),
			v6:        netip.AddrFrom16([16]byte{0: 0xfd, 15: k}),
		}
		must.Do(tb, at.do(func() error { return attach(h, portName(i), mtu) }))
		must.Do(tb, h.do(h.configure))
		hosts = append(hosts, h)
	}
	for i, h := range hosts {
		must.Do(tb, at.do(func() error { return waitUp(portName(i)) }))
		must.Do(tb, h.do(h.waitReady))
	}
	// Static neighbours: tests count frames, and address resolution would add some.
	for _, h := range hosts {
		must.Do(tb, h.do(func() error { return h.addNeighbours(hosts) }))
	}
	return at, hosts
}

func attach(h *host, name string, mtu int) error {
	disableKernelTraffic(name)
	attrs := netlink.NewLinkAttrs()
	attrs.Name, attrs.MTU = name, mtu
	err := netlink.LinkAdd(&netlink.Veth{
		LinkAttrs: attrs, PeerName: hostDevice, PeerMTU: uint32(mtu), PeerHardwareAddr: h.mac, PeerNamespace: netlink.NsFd(int(h.f.Fd())),
	})
	if err != nil {
		return err
	}
	disableKernelTraffic(name)
	return setUp(name)
}

// disableKernelTraffic keeps the kernel from sending its own frames on an interface.
func disableKernelTraffic(name string) {
	_ = os.WriteFile("/proc/sys/net/ipv6/conf/"+name+"/disable_ipv6", []byte("1"), 0o644)
}

func setUp(name string) error {
	dev, err := netlink.LinkByName(name)
	if err != nil {
		return err
	}
	return netlink.LinkSetUp(dev)
}

func waitUp(name string) error {
	for deadline := time.Now().Add(testTimeout); ; time.Sleep(time.Millisecond) {
		dev, err := netlink.LinkByName(name)
		if err != nil {
			return err
		}
		if dev.Attrs().OperState == netlink.OperUp {
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("%s is %v after %v", name, dev.Attrs().OperState, testTimeout)
		}
	}
}

func (h *host) configure() error {
	// No router solicitations and multicast reports, which would be counted.
	for _, f := range []string{"router_solicitations", "accept_ra", "dad_transmits"} {
		_ = os.WriteFile("/proc/sys/net/ipv6/conf/"+hostDevice+"/"+f, []byte("0"), 0o644)
	}
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
	if !SupportsUDPGSO() {
		if err := DisableGSO(hostDevice); err != nil {
			return err
		}
	}
	return netlink.LinkSetUp(dev)
}

// waitReady waits until the host receives packets to its addresses. The kernel enables IPv6
// addresses asynchronously, after the interface is up.
func (h *host) waitReady() error {
	if err := waitUp(hostDevice); err != nil {
		return err
	}
	for deadline := time.Now().Add(testTimeout); ; time.Sleep(time.Millisecond) {
		routes, err := netlink.RouteGet(h.v6.AsSlice())
		if err == nil && len(routes) > 0 && routes[0].Type == unix.RTN_LOCAL {
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("%v is not a local address after %v: %v", h.v6, testTimeout, err)
		}
	}
}

func (h *host) addNeighbours(hosts []*host) error {
	dev, err := netlink.LinkByName(hostDevice)
	if err != nil {
		return err
	}
	for _, o := range hosts {
		for _, a := range []netip.Addr{o.v4, o.v6} {
			if o == h {
				continue
			}
			n := &netlink.Neigh{LinkIndex: dev.Attrs().Index, State: netlink.NUD_PERMANENT, IP: a.AsSlice(), HardwareAddr: o.mac}
			if err := netlink.NeighSet(n); err != nil {
				return err
			}
		}
	}
	return nil
}

// run runs a switch with a port for every cable until the test ends.
func run(tb testing.TB, at *namespace, n int, change func(*Config)) *Switch {
	tb.Helper()
	s := open(tb, at, n, change)
	start(tb, s)
	return s
}

func open(tb testing.TB, at *namespace, n int, change func(*Config)) *Switch {
	tb.Helper()
	cfg := Config{Name: tb.Name(), InNamespace: at.do}
	for i := range n {
		cfg.Ports = append(cfg.Ports, PortConfig{Interface: portName(i)})
	}
	if change != nil {
		change(&cfg)
	}
	s := must.Get(New(cfg))(tb)
	return s
}

// start runs switches on one goroutine until the test ends, then closes them.
func start(tb testing.TB, switches ...*Switch) {
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- Run(ctx, switches...) }()
	tb.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			tb.Errorf("Run: %v", err)
		}
		for _, s := range switches {
			must.Do(tb, s.Close())
		}
	})
}
