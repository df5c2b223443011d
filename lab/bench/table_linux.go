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
	"github.com/fabrictest/fabrictest/conformance/etherwire"
	"github.com/fabrictest/fabrictest/netns"
	"github.com/fabrictest/fabrictest/netns/topology"
)

// table is the network of a bench: three hosts around a switch. On one is the
// device, on one its partners; the third is the peer for streams. The peer for
// packets sits at the switch's port towards the device, and sees all that it sends,
// whomever it is for.
type table struct {
	fabric                *netns.Fabric
	device, peer, partner *netns.NS
	wire                  *etherwire.Wire // nil for streams
	segments              *etherwire.Wire // for a TCP by hand; nil if nobody asked for it yet
	mtu                   int
	shaken                bool         // the path is not the one at first
	taken                 []netip.Addr // from the device
}

const (
	deviceHost, peerHost, partnerHost = "host0", "host1", "host2"

	nic         = "rdma0"
	devicePort  = deviceHost + "/" + nic
	partnerPort = partnerHost + "/" + nic

	leastMTU = 1280 // IPv6 is switched off below that
	partners = 4
)

func newTable(streams bool) (*table, error) {
	drawn, err := topology.Star(3, topology.Options{Link: topology.Link{MTU: defaultMTU}})
	if err != nil {
		return nil, err
	}
	f, err := netns.Build(drawn, netns.Options{})
	if err != nil {
		return nil, err
	}
	t := &table{fabric: f, device: f.Host(deviceHost).NS, peer: f.Host(peerHost).NS, partner: f.Host(partnerHost).NS, mtu: defaultMTU}
	if err := t.furnish(streams); err != nil {
		return nil, errors.Join(err, t.close())
	}
	return t, nil
}

// furnish gives the hosts their addresses, and puts the peer in its place.
func (t *table) furnish(streams bool) error {
	for _, h := range []struct {
		ns    *netns.NS
		first byte
		n     int
	}{{t.device, firstDevice, 2}, {t.partner, firstPartner, partners}, {t.peer, firstPeer, peers}} {
		if h.ns == t.peer && !streams {
			continue // they are the wire's, and no kernel may answer for them
		}
		if err := h.ns.Do(func() error { return configure(h.first, h.n) }); err != nil {
			return err
		}
	}
	if streams {
		return nil
	}
	drawn := t.fabric.Topology()
	var err error
	t.wire, err = t.tap(etherwire.Config{
		Addrs:  append(hostAddrs(6, firstPeer, peers), hostAddrs(4, firstPeer, peers)...),
		Claims: unclaimed(&drawn),
	})
	return err
}

// tap opens a wire at the switch's port towards the device, whose packets are from then on
// as they are on the cable.
func (t *table) tap(cfg etherwire.Config) (w *etherwire.Wire, err error) {
	var far int
	err = t.device.Do(func() error {
		dev, err := netlink.LinkByName(nic)
		if err != nil {
			return err
		}
		far = dev.Attrs().ParentIndex
		return etherwire.OffloadsOff(nic)
	})
	if err != nil {
		return nil, err
	}
	drawn := t.fabric.Topology()
	err = t.fabric.Core().Do(func() error {
		port, err := net.InterfaceByIndex(far)
		if err != nil {
			return fmt.Errorf("find the switch's port towards the device: %w", err)
		}
		cfg.Interface, cfg.Device = port.Name, drawn.MAC(topology.Port{Node: deviceHost, NIC: nic})
		w, err = etherwire.Open(cfg)
		return err
	})
	return w, err
}

// segmentWire is where a TCP by hand is, which it opens when it is first asked for.
func (t *table) segmentWire() (*etherwire.Wire, error) {
	if t.segments != nil {
		return t.segments, nil
	}
	addrs := []netip.Addr{hostAddr(6, segmentPeer), hostAddr(4, segmentPeer)}
	var err error
	t.segments, err = t.tap(etherwire.Config{Addrs: addrs, Keep: tcpTo(addrs)})
	return t.segments, err
}

// configure gives the NIC of the calling thread's namespace its addresses, and leads
// all the world's to it: a device must be able to send anywhere.
func configure(first byte, n int) error {
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

// interfaceAddr is an address as an interface has it. Those of IPv4 have a network
// each: Linux takes all of a network away together with the first of them.
func interfaceAddr(a netip.Addr) *netlink.Addr {
	if a.Is4() {
		return &netlink.Addr{IPNet: &net.IPNet{IP: a.AsSlice(), Mask: net.CIDRMask(32, 32)}}
	}
	return &netlink.Addr{
		IPNet: &net.IPNet{IP: a.AsSlice(), Mask: net.CIDRMask(64, 128)},
		Flags: unix.IFA_F_NODAD, // it would take a second
	}
}

func addAddr(dev netlink.Link, a netip.Addr) error {
	if err := netlink.AddrAdd(dev, interfaceAddr(a)); err != nil {
		return fmt.Errorf("give %s the address %v: %w", nic, a, err)
	}
	return netns.WaitLocalRoute(&netlink.Handle{}, a)
}

// setAddress takes an address from the device's interface, or gives it back.
func (t *table) setAddress(a netip.Addr, present bool) error {
	i := slices.Index(t.taken, a)
	if present == (i < 0) {
		return nil
	}
	err := t.device.Do(func() error {
		dev, err := netlink.LinkByName(nic)
		if err != nil {
			return err
		}
		if present {
			return addAddr(dev, a)
		}
		return netlink.AddrDel(dev, interfaceAddr(a))
	})
	switch {
	case err != nil:
		return fmt.Errorf("set address %v of the device: %w", a, err)
	case present:
		t.taken = slices.Delete(t.taken, i, i+1)
	default:
		t.taken = append(t.taken, a)
	}
	return nil
}

// restoreAddrs gives back what was taken.
func (t *table) restoreAddrs() error {
	for len(t.taken) > 0 {
		if err := t.setAddress(t.taken[0], true); err != nil {
			return err
		}
	}
	return nil
}

// unclaimed says which addresses no host of the table has.
func unclaimed(drawn *topology.Topology) func(netip.Addr) bool {
	taken := make(map[netip.Addr]bool)
	for _, h := range drawn.Hosts {
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

// setMTU sets that of the device's end, if it is another.
func (t *table) setMTU(mtu int) error {
	if t.mtu == mtu {
		return nil
	}
	err := t.device.Do(func() error {
		dev, err := netlink.LinkByName(nic)
		if err != nil {
			return err
		}
		return netlink.LinkSetMTU(dev, mtu)
	})
	if err != nil {
		return fmt.Errorf("set the MTU of the device's interface to %d: %w", mtu, err)
	}
	t.mtu = mtu
	return nil
}

// setLink takes the device's cable out, or puts it in.
func (t *table) setLink(up bool) error { return t.fabric.SetLink(devicePort, up) }

// setPath has the kernel's netem shake what the device and its partners send.
func (t *table) setPath(p conformance.Path) error {
	spec := netns.NetemSpec{LossPPM: p.LossPPM, DuplicatePPM: p.DuplicatePPM, Jitter: p.Jitter, Delay: p.Jitter}
	if p == (conformance.Path{}) && !t.shaken {
		return nil
	}
	if p.Jitter > 0 && p.KeepOrder {
		return cannot("jitter that keeps the order, which netem's does not")
	}
	for _, port := range []string{devicePort, partnerPort} {
		if err := t.fabric.Netem(port, spec); err != nil {
			return fmt.Errorf("%w: %w", conformance.ErrCannot, err)
		}
		t.shaken = true
	}
	t.shaken = p != (conformance.Path{})
	return nil
}

func (t *table) close() error {
	var errs []error
	for _, w := range []*etherwire.Wire{t.wire, t.segments} {
		if w != nil {
			errs = append(errs, w.Close())
		}
	}
	return errors.Join(append(errs, t.fabric.Close())...)
}
