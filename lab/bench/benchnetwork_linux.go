package bench

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"runtime"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/fabrictest/fabrictest/conformance"
	"github.com/fabrictest/fabrictest/conformance/wire"
	"github.com/fabrictest/fabrictest/emu/link"
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
	impaired              bool // netem is configured
}

const (
	deviceHost, peerHost, partnerHost = "host0", "host1", "host2"

	nic         = "rdma0"
	devicePort  = deviceHost + "/" + nic
	partnerPort = partnerHost + "/" + nic

	minMTU   = 1280 // minimum of IPv6
	partners = 4
)

// newBenchNetwork builds a network of three hosts and a switch: for the device under test, for its
// peer, and for partner devices. The device runs over TCP if streams is set, else over UDP.
func newBenchNetwork(streams bool) (*benchNetwork, error) {
	const hosts = 3 // device, peer and partners
	topo, err := topology.Star(hosts, topology.Options{Link: topology.Link{MTU: defaultMTU}})
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

// configureHosts adds the addresses of the hosts. streams is set for a device over TCP. For a
// device over UDP, configureHosts opens the peer's packet socket instead of giving the peer
// addresses.
func (t *benchNetwork) configureHosts(streams bool) error {
	for _, h := range []struct {
		ns    *netns.NS
		first byte
		n     int
	}{{t.device, firstDevice, deviceAddrs}, {t.partner, firstPartner, partners}, {t.peer, firstPeer, peers}} {
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
	var switchPort int // index of the other end of the device's veth pair
	err = t.onDeviceNIC(func(dev netlink.Link) error {
		switchPort = dev.Attrs().ParentIndex
		return wire.DisableOffloads(nic)
	})
	if err != nil {
		return nil, err
	}
	topo := t.fabric.Topology()
	err = t.fabric.Core().Do(func() error {
		port, err := net.InterfaceByIndex(switchPort)
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

// segmentWire returns the packet socket of the user-space TCP, which it opens on first use.
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

// interfaceAddr returns an address of an interface for netlink. IPv4 addresses are /32, because
// Linux removes the secondary addresses of a network when the primary one is removed.
func interfaceAddr(a netip.Addr) *netlink.Addr {
	if a.Is4() {
		return &netlink.Addr{IPNet: &net.IPNet{IP: a.AsSlice(), Mask: net.CIDRMask(32, 32)}}
	}
	return &netlink.Addr{
		IPNet: &net.IPNet{IP: a.AsSlice(), Mask: net.CIDRMask(64, 128)},
		Flags: unix.IFA_F_NODAD, // duplicate address detection takes a second
	}
}

// addAddr adds an address, and waits until the host receives packets to it.
func addAddr(dev netlink.Link, a netip.Addr) error {
	if err := netlink.AddrAdd(dev, interfaceAddr(a)); err != nil {
		return fmt.Errorf("give %s the address %v: %w", nic, a, err)
	}
	return netns.WaitLocalRoute(&netlink.Handle{}, a)
}

// SetAddress implements linkController for the device's interface.
func (t *benchNetwork) SetAddress(_ string, p netip.Prefix, present bool) error {
	err := t.onDeviceNIC(func(dev netlink.Link) error {
		if present {
			return addAddr(dev, p.Addr())
		}
		return netlink.AddrDel(dev, interfaceAddr(p.Addr()))
	})
	if err != nil {
		return fmt.Errorf("set address %v of the device: %w", p.Addr(), err)
	}
	return nil
}

// SetLink implements linkController for the device's link.
func (t *benchNetwork) SetLink(_ string, up bool) error { return t.fabric.SetLink(devicePort, up) }

// freeAddrs returns a predicate for addresses that no NIC of the topology, device or partner has.
func freeAddrs(topo *topology.Topology) func(netip.Addr) bool {
	taken := make(map[netip.Addr]bool)
	for _, h := range topo.Hosts {
		for _, n := range h.NICs {
			const ipv4, ipv6 = true, false
			taken[n.Addr(ipv4)], taken[n.Addr(ipv6)] = true, true
		}
	}
	for _, family := range []int{4, 6} {
		for _, a := range append(hostAddrs(family, firstDevice, deviceAddrs), hostAddrs(family, firstPartner, partners)...) {
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

// setPath configures netem for the packets that the device and its partners send. The mean delay is
// the jitter, because netem adds or subtracts up to the jitter, and no delay can be negative.
func (t *benchNetwork) setPath(p conformance.Path) error {
	spec := netns.NetemSpec{LossPPM: p.LossPPM, DuplicatePPM: p.DuplicatePPM, Jitter: p.Jitter, Delay: p.Jitter}
	if p == (conformance.Path{}) && !t.impaired {
		return nil
	}
	if p.Jitter > 0 && p.KeepOrder {
		return fmt.Errorf("%w: netem has no jitter without reordering", conformance.ErrBenchCannot)
	}
	for _, port := range []string{devicePort, partnerPort} {
		if err := t.fabric.Netem(port, spec); err != nil {
			return fmt.Errorf("%w: %w", conformance.ErrBenchCannot, err)
		}
		t.impaired = true // also if the next port fails
	}
	t.impaired = p != (conformance.Path{})
	return nil
}

// close closes the packet sockets and removes the namespaces.
func (t *benchNetwork) close() error {
	var errs []error
	for _, w := range []*wire.Ethernet{t.wire, t.segments} {
		if w != nil {
			errs = append(errs, w.Close())
		}
	}
	return errors.Join(append(errs, t.fabric.Close())...)
}

// fenceTimeout is how long a frame may take to the device's host.
const fenceTimeout = 30 * time.Second

// fence waits until all packets of earlier cases have reached the device's host, because a device
// that is opened before that would answer them. It sends a frame from peerAddr to deviceAddr on
// each CPU, since each CPU has a receive queue, and waits until all of them arrive. Without a
// packet socket of the peer (wire) it does nothing.
func (t *benchNetwork) fence(peerAddr, deviceAddr netip.Addr) error {
	if t.wire == nil {
		return nil
	}
	var socket *net.UDPConn
	err := t.device.Do(func() (err error) {
		socket, err = net.ListenUDP("udp", net.UDPAddrFromAddrPort(netip.AddrPortFrom(deviceAddr, 0)))
		return err
	})
	if err != nil {
		return fmt.Errorf("fence after the previous case: %w", err)
	}
	defer socket.Close()
	dst := netip.AddrPortFrom(deviceAddr, uint16(socket.LocalAddr().(*net.UDPAddr).Port))
	frame := link.AppendUDP(nil, &link.Datagram{Src: netip.AddrPortFrom(peerAddr, dst.Port()), Dst: dst, HopLimit: 1, Payload: []byte("fence")})
	sent, err := onEachCPU(func() error { return t.wire.Send(frame) })
	if err != nil {
		return fmt.Errorf("fence after the previous case: %w", err)
	}
	if err := socket.SetReadDeadline(time.Now().Add(fenceTimeout)); err != nil {
		return err
	}
	buf := make([]byte, len(frame))
	for i := range sent {
		if _, err := socket.Read(buf); err != nil {
			return fmt.Errorf("fence after the previous case: frame %d of %d to %v: %w", i+1, sent, dst, err)
		}
	}
	return nil
}

// onEachCPU calls f on each CPU that this process may use, until f fails, and returns the number of
// successful calls. It changes the affinity of a thread that ends with the call.
func onEachCPU(f func() error) (n int, err error) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread()
		var allowed unix.CPUSet
		if err = unix.SchedGetaffinity(0, &allowed); err != nil {
			return
		}
		for cpu := 0; n < allowed.Count(); cpu++ {
			if !allowed.IsSet(cpu) {
				continue
			}
			var one unix.CPUSet
			one.Set(cpu)
			if err = unix.SchedSetaffinity(0, &one); err != nil {
				return
			}
			if err = f(); err != nil {
				return
			}
			n++
		}
	}()
	<-done
	return n, err
}
