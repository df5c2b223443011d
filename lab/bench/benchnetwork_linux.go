package bench

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/fabrictest/fabrictest/conformance"
	"github.com/fabrictest/fabrictest/conformance/wire"
	"github.com/fabrictest/fabrictest/netns"
	"github.com/fabrictest/fabrictest/netns/topology"
)

// benchNetwork is the network of a bench: three hosts around a switch, for the
// device, its partners, and the peer of streams. The peer of packets is on the
// switch's port to the device, and sees all packets that it sends.
type benchNetwork struct {
	fabric                *netns.Fabric
	device, peer, partner *netns.NS
	wire                  *wire.Ethernet // nil for streams
	segments              *wire.Ethernet // of the user-space TCP; nil until it is used
	mtu                   int
	impaired              bool         // netem is configured
	removedAddrs          []netip.Addr // of the device
}

const (
	deviceHost, peerHost, partnerHost = "host0", "host1", "host2"

	nic         = "rdma0"
	devicePort  = deviceHost + "/" + nic
	partnerPort = partnerHost + "/" + nic

	minMTU   = 1280 // minimum of IPv6
	partners = 4
)

// newBenchNetwork builds the network, for a device over TCP or over UDP.
func newBenchNetwork(streams bool) (*benchNetwork, error) {
	topo, err := topology.Star(3, topology.Options{Link: topology.Link{MTU: defaultMTU}})
	if err != nil {
		return nil, err
	}
	f, err := netns.Build(topo, netns.Options{})
	if err != nil {
		return nil, err
	}
	t := &benchNetwork{fabric: f, device: f.Host(deviceHost).NS, peer: f.Host(peerHost).NS, partner: f.Host(partnerHost).NS, mtu: defaultMTU}
	if err := t.configureHosts(streams); err != nil {
		return nil, errors.Join(err, t.close())
	}
	return t, nil
}

// configureHosts adds the addresses of the hosts, and opens the packet peer.
func (t *benchNetwork) configureHosts(streams bool) error {
	for _, h := range []struct {
		ns    *netns.NS
		first byte
		n     int
	}{{t.device, firstDevice, 2}, {t.partner, firstPartner, partners}, {t.peer, firstPeer, peers}} {
		if h.ns == t.peer && !streams {
			continue // the wire has these addresses, and the kernel must not answer
		}
		if err := h.ns.Do(func() error { return configureNIC(h.first, h.n) }); err != nil {
			return err
		}
	}
	if streams {
		return nil
	}
	topo := t.fabric.Topology()
	var err error
	t.wire, err = t.openSwitchPort(wire.EthernetConfig{
		Addrs:      append(hostAddrs(6, firstPeer, peers), hostAddrs(4, firstPeer, peers)...),
		AnswersFor: freeAddrs(&topo),
	})
	return err
}

// openSwitchPort opens a packet socket on the switch's port to the device, and
// disables offloads of the device's interface.
func (t *benchNetwork) openSwitchPort(cfg wire.EthernetConfig) (w *wire.Ethernet, err error) {
	var far int
	err = t.onDeviceNIC(func(dev netlink.Link) error {
		far = dev.Attrs().ParentIndex
		return wire.DisableOffloads(nic)
	})
	if err != nil {
		return nil, err
	}
	topo := t.fabric.Topology()
	err = t.fabric.Core().Do(func() error {
		port, err := net.InterfaceByIndex(far)
		if err != nil {
			return fmt.Errorf("find the switch's port towards the device: %w", err)
		}
		cfg.Interface, cfg.Device = port.Name, topo.MAC(topology.Port{Node: deviceHost, NIC: nic})
		w, err = wire.OpenEthernet(cfg)
		return err
	})
	return w, err
}

// onDeviceNIC runs f on the device's interface, in its namespace.
func (t *benchNetwork) onDeviceNIC(f func(netlink.Link) error) error {
	return t.device.Do(func() error {
		dev, err := netlink.LinkByName(nic)
		if err != nil {
			return err
		}
		return f(dev)
	})
}

// segmentWire returns the wire of the user-space TCP, which it opens on first use.
func (t *benchNetwork) segmentWire() (*wire.Ethernet, error) {
	if t.segments != nil {
		return t.segments, nil
	}
	addrs := []netip.Addr{hostAddr(6, segmentPeer), hostAddr(4, segmentPeer)}
	var err error
	t.segments, err = t.openSwitchPort(wire.EthernetConfig{Addrs: addrs, Accept: isTCPTo(addrs)})
	return t.segments, err
}

// configureNIC adds addresses to the NIC of the calling thread's namespace, and a
// default route, because a device must be able to send to any address.
func configureNIC(first byte, n int) error {
	dev, err := netlink.LinkByName(nic)
	if err != nil {
		return err
	}
	for _, family := range []int{4, 6} {
		all := net.IPNet{IP: net.IPv4zero, Mask: net.CIDRMask(0, 32)}
		if family == 6 {
			all = net.IPNet{IP: net.IPv6zero, Mask: net.CIDRMask(0, 128)}
		}
		for _, a := range hostAddrs(family, first, n) {
			if err := addAddr(dev, a); err != nil {
				return err
			}
		}
		if err := netlink.RouteAdd(&netlink.Route{LinkIndex: dev.Attrs().Index, Dst: &all, Scope: netlink.SCOPE_LINK}); err != nil {
			return fmt.Errorf("route everything over %s: %w", nic, err)
		}
	}
	return nil
}

// interfaceAddr returns the netlink address. IPv4 addresses are /32, because Linux
// removes secondary addresses of a network with the first.
func interfaceAddr(a netip.Addr) *netlink.Addr {
	if a.Is4() {
		return &netlink.Addr{IPNet: &net.IPNet{IP: a.AsSlice(), Mask: net.CIDRMask(32, 32)}}
	}
	return &netlink.Addr{
		IPNet: &net.IPNet{IP: a.AsSlice(), Mask: net.CIDRMask(64, 128)},
		Flags: unix.IFA_F_NODAD, // duplicate address detection takes a second
	}
}

func addAddr(dev netlink.Link, a netip.Addr) error {
	if err := netlink.AddrAdd(dev, interfaceAddr(a)); err != nil {
		return fmt.Errorf("give %s the address %v: %w", nic, a, err)
	}
	return netns.WaitLocalRoute(&netlink.Handle{}, a)
}

// setAddress adds or removes an address of the device's interface.
func (t *benchNetwork) setAddress(a netip.Addr, present bool) error {
	i := slices.Index(t.removedAddrs, a)
	if present == (i < 0) {
		return nil
	}
	err := t.onDeviceNIC(func(dev netlink.Link) error {
		if present {
			return addAddr(dev, a)
		}
		return netlink.AddrDel(dev, interfaceAddr(a))
	})
	switch {
	case err != nil:
		return fmt.Errorf("set address %v of the device: %w", a, err)
	case present:
		t.removedAddrs = slices.Delete(t.removedAddrs, i, i+1)
	default:
		t.removedAddrs = append(t.removedAddrs, a)
	}
	return nil
}

// restoreAddrs adds the removed addresses again.
func (t *benchNetwork) restoreAddrs() error {
	for len(t.removedAddrs) > 0 {
		if err := t.setAddress(t.removedAddrs[0], true); err != nil {
			return err
		}
	}
	return nil
}

// freeAddrs returns a predicate for addresses that no host has.
func freeAddrs(topo *topology.Topology) func(netip.Addr) bool {
	taken := make(map[netip.Addr]bool)
	for _, h := range topo.Hosts {
		for _, n := range h.NICs {
			taken[n.Addr(true)], taken[n.Addr(false)] = true, true
		}
	}
	for _, family := range []int{4, 6} {
		for _, a := range append(hostAddrs(family, firstDevice, 2), hostAddrs(family, firstPartner, partners)...) {
			taken[a] = true
		}
	}
	return func(a netip.Addr) bool { return !taken[a] }
}

// setMTU sets the MTU of the device's interface.
func (t *benchNetwork) setMTU(mtu int) error {
	if t.mtu == mtu {
		return nil
	}
	if err := t.onDeviceNIC(func(dev netlink.Link) error { return netlink.LinkSetMTU(dev, mtu) }); err != nil {
		return fmt.Errorf("set the MTU of the device's interface to %d: %w", mtu, err)
	}
	t.mtu = mtu
	return nil
}

// setLink sets the device's link up or down.
func (t *benchNetwork) setLink(up bool) error { return t.fabric.SetLink(devicePort, up) }

// setPath configures netem for packets of the device and its partners.
func (t *benchNetwork) setPath(p conformance.Path) error {
	spec := netns.NetemSpec{LossPPM: p.LossPPM, DuplicatePPM: p.DuplicatePPM, Jitter: p.Jitter, Delay: p.Jitter}
	if p == (conformance.Path{}) && !t.impaired {
		return nil
	}
	if p.Jitter > 0 && p.KeepOrder {
		return cannotCarryf("jitter without reordering, which netem lacks")
	}
	for _, port := range []string{devicePort, partnerPort} {
		if err := t.fabric.Netem(port, spec); err != nil {
			return fmt.Errorf("%w: %w", conformance.ErrBenchCannot, err)
		}
		t.impaired = true
	}
	t.impaired = p != (conformance.Path{})
	return nil
}

func (t *benchNetwork) close() error {
	var errs []error
	for _, w := range []*wire.Ethernet{t.wire, t.segments} {
		if w != nil {
			errs = append(errs, w.Close())
		}
	}
	return errors.Join(append(errs, t.fabric.Close())...)
}
