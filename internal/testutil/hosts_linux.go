package testutil

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/fabrictest/fabrictest/internal/must"
	"github.com/fabrictest/fabrictest/netns"
)

// HostDevice is the name of the veth device in each host.
const HostDevice = "wire0"

// Host is a network namespace with one end of the veth pair.
type Host struct {
	*netns.NS
	V4, V6 netip.Addr
}

// Addr returns the host's IPv6 address if v6 is set, otherwise its IPv4 address, with a port.
func (h *Host) Addr(v6 bool, port uint16) netip.AddrPort {
	if v6 {
		return netip.AddrPortFrom(h.V6, port)
	}
	return netip.AddrPortFrom(h.V4, port)
}

// HostPair creates two hosts connected by a veth pair with the given MTU. It skips the test
// if namespaces are not available. The namespaces have no name and no mount, so a killed
// test leaves none behind.
func HostPair(tb testing.TB, mtu int) (a, b *Host) {
	tb.Helper()
	if why := NamespacesUnavailable(); why != nil {
		tb.Skipf("no network namespaces here: %v", why)
	}
	var hosts [2]*Host
	for i := range hosts {
		ns := must.Get(netns.New())(tb)
		tb.Cleanup(func() { ns.Close() })
		n := byte(i + 1)
		hosts[i] = &Host{
			NS: ns,
			V4: netip.AddrFrom4([4]byte{10, 77, 0, n}),
			V6: netip.AddrFrom16([16]byte{0: 0xfd, 1: 0x77, 15: n}),
		}
	}
	must.Do(tb, connect(hosts[0], hosts[1], mtu))
	return hosts[0], hosts[1]
}

// connect creates a veth pair between two hosts, configures it, and waits until it carries packets.
func connect(a, b *Host, mtu int) error {
	err := a.Do(func() error {
		attrs := netlink.NewLinkAttrs()
		attrs.Name, attrs.MTU = HostDevice, mtu
		return netlink.LinkAdd(&netlink.Veth{
			LinkAttrs: attrs, PeerName: HostDevice, PeerMTU: uint32(mtu), PeerNamespace: netlink.NsFd(b.FD()),
		})
	})
	if err != nil {
		return fmt.Errorf("create a veth pair: %w", err)
	}
	for _, h := range []*Host{a, b} {
		if err := h.Do(h.configure); err != nil {
			return fmt.Errorf("configure %s: %w", h.V6, err)
		}
	}
	for _, h := range []*Host{a, b} {
		if err := h.Do(func() error { return errors.Join(waitUp(), netns.WaitLocalRoute(&netlink.Handle{}, h.V6)) }); err != nil {
			return fmt.Errorf("wait for %s: %w", h.V6, err)
		}
	}
	return nil
}

// waitUp waits until the operational state of HostDevice, in the namespace of the calling thread,
// is up: the kernel drops packets before.
func waitUp() error {
	const timeout = 30 * time.Second
	for deadline := time.Now().Add(timeout); ; time.Sleep(time.Millisecond) {
		dev, err := netlink.LinkByName(HostDevice)
		if err != nil {
			return err
		}
		if dev.Attrs().OperState == netlink.OperUp {
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("%s is %v after %v", HostDevice, dev.Attrs().OperState, timeout)
		}
	}
}

// configure adds the host's addresses to HostDevice and sets it up, in the thread's namespace.
func (h *Host) configure() error {
	for _, p := range []netip.Prefix{netip.PrefixFrom(h.V4, 24), netip.PrefixFrom(h.V6, 64)} {
		if err := addAddr(p); err != nil {
			return err
		}
	}
	dev, err := netlink.LinkByName(HostDevice)
	if err != nil {
		return err
	}
	return netlink.LinkSetUp(dev)
}

// AddAddr adds an address to the host's device, and waits until it can be used.
func (h *Host) AddAddr(p netip.Prefix) error {
	return h.Do(func() error { return errors.Join(addAddr(p), netns.WaitLocalRoute(&netlink.Handle{}, p.Addr())) })
}

// addAddr adds an address to HostDevice, in the namespace of the calling thread.
func addAddr(p netip.Prefix) error {
	dev, err := netlink.LinkByName(HostDevice)
	if err != nil {
		return err
	}
	addr := &netlink.Addr{IPNet: &net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())}}
	if p.Addr().Is6() {
		// Without duplicate address detection, the address is usable at once.
		addr.Flags = unix.IFA_F_NODAD
	}
	if err := netlink.AddrAdd(dev, addr); err != nil {
		return fmt.Errorf("add %v: %w", p, err)
	}
	return nil
}

// DisableGSO makes the kernel segment every GSO packet in software before it reaches the device: it
// limits packets for the device to one segment.
func (h *Host) DisableGSO() error {
	return h.Do(func() error {
		dev, err := netlink.LinkByName(HostDevice)
		if err != nil {
			return err
		}
		return netlink.LinkSetGSOMaxSegs(dev, 1)
	})
}
