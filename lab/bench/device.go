package bench

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/fabrictest/fabrictest/agent"
	"github.com/fabrictest/fabrictest/conformance"
	"github.com/fabrictest/fabrictest/conformance/wire"
	"github.com/fabrictest/fabrictest/verbs"
)

// DeviceOptions are options for a device of another host. Interface is required.
type DeviceOptions struct {
	// Interface is the judge's interface on the device's link.
	Interface string
	// Wire is how the judge uses the link; empty means the default for the device.
	Wire DeviceWire
	// Peers are the judge's addresses with their networks. With WirePackets and WireSegments each
	// is the first of four unused addresses, which the kernel must not have; without an IPv6 one,
	// WirePackets uses link-local addresses. With WireUDP and WireTCP they are addresses of the
	// kernel on Interface; empty means all of these.
	Peers []netip.Prefix
	// PartnerInterface is the interface with the addresses of emulated partner
	// devices; empty means Interface.
	PartnerInterface string
	// Agent is the address of the agent: the case leaves links and addresses alone
	// that its connection needs.
	Agent netip.Addr
	// Redial connects to the agent again after the connection was lost; nil if impossible.
	Redial func(context.Context) (*agent.Client, error)
	// Host is the device's host, if it can be restarted from outside; then Redial is not used.
	Host DeviceHost
	// RestartAfter reports whether the device is restarted after a case; nil for none.
	RestartAfter func(id string) bool
	// InNamespace, if not nil, calls a function in the network namespace of
	// Interface, if that is not the program's.
	InNamespace func(func() error) error
	// OnNote, if not nil, is called with events of the device outside of cases.
	OnNote func(string)
	// MaxTime ends a case in which no verb call returns for so long, and every case
	// after ten times as long; 0 means 2 min.
	MaxTime time.Duration
}

// DeviceHost controls the machine of a device from outside.
type DeviceHost interface {
	// Problem returns an error if the machine has crashed since the last call. sign is an error
	// that suggests it: agent.ErrLost, or that a case hung; nil if there is none.
	Problem(sign error) error
	// Restart restarts the machine in any state, and connects to its agent.
	Restart(context.Context) (*agent.Client, error)
}

// addrPair has the addresses of one family: of the device, and of the judge.
type addrPair struct{ local, peers []netip.Addr }

// DeviceProperties are the properties of a Device that a report lists.
type DeviceProperties struct {
	Identity agent.DeviceIdentity
	Attr     verbs.DeviceAttr
	MTU      int              // of the link
	Wire     DeviceWire       // how the judge, which tests the device, accesses the link
	addrs    map[int]addrPair // by address family, 4 or 6
}

// Streams reports whether the device uses TCP.
func (d *DeviceProperties) Streams() bool {
	return d.Identity.Info.Transport == verbs.TransportIWARP
}

// Protocol returns the protocol of the device.
func (d *DeviceProperties) Protocol() conformance.Protocol {
	if d.Streams() {
		return conformance.IWARP
	}
	return conformance.RoCE
}

// Addresses returns the addresses of the device and of the judge, the host that tests it.
func (d *DeviceProperties) Addresses() (device, judge []netip.Addr) {
	for _, family := range []int{6, 4} {
		device, judge = append(device, d.addrs[family].local...), append(judge, d.addrs[family].peers...)
	}
	return device, judge
}

// linkLocalPeers is the first link-local address of the judge, with its network.
var linkLocalPeers = netip.MustParsePrefix("fe80::fab:7e57:0:1/64")

// globalAddrs returns the addresses without those that are link-local, which a connection
// manager could not use without a scope.
func globalAddrs(device []netip.Prefix) (deviceIPs []netip.Addr) {
	for _, p := range device {
		if !p.Addr().IsLinkLocalUnicast() {
			deviceIPs = append(deviceIPs, p.Addr())
		}
	}
	return deviceIPs
}

// pairWithRange returns addresses by family. For each family, it selects the first network that
// contains some of deviceIPs, and pairs these with consecutive addresses for this host,
// from the network's address on. kind describes the device's addresses in errors.
func pairWithRange(kind string, deviceIPs []netip.Addr, networks []netip.Prefix) (map[int]addrPair, error) {
	pairs := make(map[int]addrPair)
	for _, n := range networks {
		family := familyOf(n.Addr())
		local := addrsIn(n, deviceIPs)
		if _, found := pairs[family]; found || len(local) == 0 {
			continue
		}
		e := addrPair{local: local}
		for a := n.Addr(); len(e.peers) < peers; a = a.Next() {
			switch {
			case !n.Contains(a):
				return nil, fmt.Errorf("judge address %v: it needs %d consecutive addresses, and %v is in another network", n, peers, a)
			case slices.Contains(deviceIPs, a):
				return nil, fmt.Errorf("judge address %v: it needs %d consecutive addresses, and %v belongs to the device", n, peers, a)
			}
			e.peers = append(e.peers, a)
		}
		pairs[family] = e
	}
	if len(pairs) == 0 {
		return nil, fmt.Errorf("the device has no %s in %v, only %v: give the first of four unused addresses of the judge in a network of one of these", kind, networks, deviceIPs)
	}
	return pairs, nil
}

// addrsIn returns the addresses in a network.
func addrsIn(n netip.Prefix, all []netip.Addr) (in []netip.Addr) {
	for _, a := range all {
		if n.Contains(a) {
			in = append(in, a)
		}
	}
	return in
}

// familyOf returns the IP version of an address, 4 or 6.
func familyOf(a netip.Addr) int {
	if a.Is4() {
		return 4
	}
	return 6
}

// selectAddrs returns the addresses for a case with a setup, or ErrBenchCannot if the setup needs
// another configuration of the device or another MTU.
func selectAddrs(s conformance.Setup, pairs map[int]addrPair, mtu int) (selected addrPair, err error) {
	cannot := func(format string, args ...any) (addrPair, error) {
		return selected, fmt.Errorf("%w: a device of another host cannot be configured: %s", conformance.ErrBenchCannot, fmt.Sprintf(format, args...))
	}
	switch {
	case s.Markers: // but not NoCRC: cases check the CRC flag in the MPA request themselves
		return cannot("verbs cannot select MPA markers")
	case s.Reliable, s.Isolate:
		return cannot("verbs cannot select the service of datagram-iWARP")
	case s.MTU != 0 && s.MTU != mtu:
		return cannot("its link has an MTU of %d, and the case needs %d", mtu, s.MTU)
	}
	family := s.Family
	if family == 0 {
		family = 6
		if len(pairs[family].local) == 0 {
			family = 4
		}
	}
	selected, n := pairs[family], 1
	if s.TwoAddresses {
		n = 2
	}
	if len(selected.local) < n {
		return cannot("it has %d IPv%d addresses that the judge can reach, and the case needs %d", len(selected.local), family, n)
	}
	selected.local = selected.local[:n]
	return selected, nil
}

// identityOf returns the identity of the device that is called name on the agent's host.
func identityOf(client *agent.Client, name string) (agent.DeviceIdentity, error) {
	id, err := client.Identity()
	if err != nil {
		return agent.DeviceIdentity{}, err
	}
	names := make([]string, 0, len(id.Devices))
	for _, d := range id.Devices {
		if d.Info.Name == name {
			return d, nil
		}
		names = append(names, d.Info.Name)
	}
	return agent.DeviceIdentity{}, fmt.Errorf("the agent's host has no device %q: it has %q", name, names)
}

// DeviceWire is how this host sends and receives on a device's link.
type DeviceWire string

// The wires.
const (
	// WirePackets uses packet sockets, with addresses of the judge only: it sees
	// and sets every bit. It is the default for RoCE, and needs CAP_NET_RAW.
	WirePackets DeviceWire = "packet"
	// WireUDP uses UDP sockets of the kernel, for RoCE, without privileges. See Limitations.
	WireUDP DeviceWire = "udp"
	// WireTCP uses the kernel's TCP. It is the default for iWARP, and needs no privileges.
	WireTCP DeviceWire = "tcp"
	// WireSegments uses a user-space TCP over packet sockets, for iWARP: it sees
	// and sets every segment. It needs CAP_NET_RAW.
	WireSegments DeviceWire = "segments"
)

// DeviceWires returns the wires (how this host sends and receives on the link) for a device, which
// is an iWARP device if streams is set and else a RoCE device. The default is first.
func DeviceWires(streams bool) []DeviceWire {
	if streams {
		return []DeviceWire{WireTCP, WireSegments}
	}
	return []DeviceWire{WirePackets, WireUDP}
}

// Description returns the name of the wire for users.
func (w DeviceWire) Description() string {
	switch w {
	case WirePackets:
		return "AF_PACKET"
	case WireUDP:
		return "UDP sockets"
	case WireTCP:
		return "TCP of the kernel"
	case WireSegments:
		return "TCP by hand over AF_PACKET"
	}
	return string(w)
}

// Limitations lists what this host cannot see or set over the wire, as text for users.
func (w DeviceWire) Limitations() []string {
	switch w {
	case WireUDP:
		return wire.UDPLimitations()
	case WireTCP:
		return []string{"TCP itself: segments, options and timers are between the kernels, and the judge sees what was written and read"}
	case WirePackets, WireSegments:
	}
	return nil
}

// wireFor returns the requested wire (how this host sends and receives on the device's link), or
// the default if that is empty. It returns an error if the wire is not one for the device, which is
// an iWARP device if streams is set and else a RoCE device.
func wireFor(requested DeviceWire, streams bool) (DeviceWire, error) {
	wires := DeviceWires(streams)
	switch {
	case requested == "":
		return wires[0], nil
	case slices.Contains(wires, requested):
		return requested, nil
	}
	kind := "RoCE"
	if streams {
		kind = "iWARP"
	}
	return "", fmt.Errorf("a device of %s cannot be judged over the wire %q: give %s or %s", kind, requested, wires[0], wires[1])
}

// kernelAddrPairs pairs addresses of a device with addresses of this host in the same
// network, by family. deviceIPs are all addresses of the device, kernel those of this host's
// interface; wanted, if not empty, selects some of kernel.
func kernelAddrPairs(deviceIPs []netip.Addr, kernel, wanted []netip.Prefix) (map[int]addrPair, error) {
	pairs := make(map[int]addrPair)
	// Link-local addresses come second: a family uses them only if it has no others.
	for _, linkLocal := range []bool{false, true} {
		for _, n := range kernel {
			family := familyOf(n.Addr())
			e, found := pairs[family]
			switch {
			case n.Addr().IsLinkLocalUnicast() != linkLocal:
				continue
			case linkLocal && found:
				continue
			case len(wanted) > 0 && !slices.ContainsFunc(wanted, func(w netip.Prefix) bool { return w.Addr() == n.Addr() }):
				continue
			}
			if reachable := addrsIn(n, deviceIPs); len(reachable) > 0 {
				e.local, e.peers = reachable, append(e.peers, n.Addr())
				pairs[family] = e
			}
		}
	}
	if len(pairs) == 0 {
		return nil, fmt.Errorf("the judge's interface has the addresses %v, none of which is in a network of the device's %v: give it one (ip address add)", kernel, deviceIPs)
	}
	return pairs, nil
}

// roceV2Addrs returns the RoCEv2 addresses in the GID table of a device's first port, in its order.
func roceV2Addrs(dev verbs.Context) (deviceIPs []netip.Addr, err error) {
	attr, err := dev.QueryPort(1)
	if err != nil {
		return nil, err
	}
	for i := range attr.GIDs {
		e, err := dev.QueryGID(1, i)
		if errors.Is(err, verbs.ErrNotFound) {
			continue // a free entry
		}
		if err != nil {
			return nil, err
		}
		if a := e.GID.Addr(); e.Type == verbs.GIDTypeRoCEv2 && !a.IsUnspecified() && !slices.Contains(deviceIPs, a) {
			deviceIPs = append(deviceIPs, a)
		}
	}
	return deviceIPs, nil
}

// reservePartnerAddr removes the last of several addresses of this host in each family
// from pairs. Partners, other emulated devices on this host, use it, with separate sockets.
func reservePartnerAddr(pairs map[int]addrPair) {
	for family, e := range pairs {
		if n := len(e.peers); n > 1 {
			e.peers = e.peers[:n-1]
			pairs[family] = e
		}
	}
}
