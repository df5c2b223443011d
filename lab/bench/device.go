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
	"github.com/fabrictest/fabrictest/verbs"
)

// DeviceOptions is how a device of another host is judged. Interface is needed.
type DeviceOptions struct {
	// Interface is the judge's end of the device's cable.
	Interface string
	// Wire is how the judge is at that end; the usual way for the device if empty.
	Wire DeviceWire
	// Peers say at which addresses the judge is, and in which network. For RoCE each is
	// the first of four in a row, which nobody else may have, the judge's kernel
	// included; without one of IPv6, the judge makes up link-local ones. For iWARP they
	// are the kernel's own, on the interface; without any, those that it has there. So they
	// are for [WireUDP], and for [WireSegments] they are as for RoCE.
	Peers []netip.Prefix
	// Partners is the interface at whose addresses cases have partners of the device, which
	// are emulated; the judge's own if empty.
	Partners string
	// Agent is where the agent is reached: a link or an address that its connection
	// needs is left alone.
	Agent netip.Addr
	// Redial reaches the agent again after it was lost; nil if nobody can.
	Redial func(context.Context) (*agent.Client, error)
	// Host is the device's, if it can be looked at and restarted from outside; then Redial
	// is not asked.
	Host DeviceHost
	// RestartAfter says after which cases, by ID, the device is restarted; nil for none.
	RestartAfter func(id string) bool
	// Within, if not nil, calls a function in the network namespace of Interface, where
	// that is not the program's own.
	Within func(func() error) error
	// Note is told what happens to the device beside the cases; nil if nobody cares.
	Note func(string)
	// MaxTime ends a case in which no verb call returns for so long, and any case after
	// ten times as long; 2 min if 0.
	MaxTime time.Duration
}

// DeviceHost is the machine that a device is in, from outside.
type DeviceHost interface {
	// Trouble says what has become of the machine since it was asked last; nil if nothing
	// has, as far as can be seen. sign is what makes one think so, nil if nothing does: the
	// connection to its agent is lost (agent.ErrLost), which is trouble enough, or a case
	// came to no end.
	Trouble(sign error) error
	// Restart switches the machine off and on, whatever state it is in, and reaches its
	// agent.
	Restart(context.Context) (*agent.Client, error)
}

// ends are the addresses of a family: those of the device, and the judge's that reach
// them.
type ends struct{ local, peers []netip.Addr }

// linkLocalPeers is the first of the judge's link-local addresses, and their network.
var linkLocalPeers = netip.MustParsePrefix("fe80::fab:7e57:0:1/64")

// datagramEnds finds out at which addresses a RoCE device and the judge meet, by family.
// The device's are those of RoCEv2 in its GID table, in its order.
func datagramEnds(table []verbs.GIDEntry, networks []netip.Prefix) (map[int]ends, error) {
	return rowEnds("RoCEv2 address", routed(table), append(slices.Clone(networks), linkLocalPeers))
}

// segmentEnds is the same for iWARP over a TCP of the judge's own. The device's addresses
// are those of its network interface.
func segmentEnds(device, networks []netip.Prefix) (map[int]ends, error) {
	if len(networks) == 0 {
		return nil, errors.New("the judge needs addresses of its own, which nobody has: name the first of four in a row, in a network of the device's")
	}
	return rowEnds("address", routable(device), networks)
}

// routable are the addresses of an interface that a connection manager takes: those that
// hold on the link alone would need their scope.
func routable(device []netip.Prefix) (has []netip.Addr) {
	for _, p := range device {
		if !p.Addr().IsLinkLocalUnicast() {
			has = append(has, p.Addr())
		}
	}
	return has
}

// rowEnds finds those of a device's addresses that are in each network, and has the judge
// be at the first addresses of the network that are named.
func rowEnds(what string, has []netip.Addr, networks []netip.Prefix) (map[int]ends, error) {
	met := make(map[int]ends)
	for _, n := range networks {
		family := familyOf(n.Addr())
		local := within(n, has)
		if _, found := met[family]; found || len(local) == 0 {
			continue
		}
		e := ends{local: local}
		for a := n.Addr(); len(e.peers) < peers; a = a.Next() {
			switch {
			case !n.Contains(a):
				return nil, fmt.Errorf("the judge at %v: it needs %d addresses from there on, and %v is in another network", n, peers, a)
			case slices.Contains(has, a):
				return nil, fmt.Errorf("the judge at %v: it needs %d addresses from there on, and %v is the device's", n, peers, a)
			}
			e.peers = append(e.peers, a)
		}
		met[family] = e
	}
	if len(met) == 0 {
		return nil, fmt.Errorf("the device has no %s in %v, only %v: name an address of the judge in a network of one of these", what, networks, has)
	}
	return met, nil
}

// streamEnds is the same for iWARP. The device's addresses are those of its network
// interface, the judge's those of its own.
func streamEnds(device, own, wanted []netip.Prefix) (map[int]ends, error) {
	has := routable(device)
	met := make(map[int]ends)
	for _, n := range own {
		if len(wanted) > 0 && !slices.ContainsFunc(wanted, func(w netip.Prefix) bool { return w.Addr() == n.Addr() }) {
			continue
		}
		family := familyOf(n.Addr())
		if local := within(n, has); len(local) > 0 {
			e := met[family]
			e.local, e.peers = local, append(e.peers, n.Addr())
			met[family] = e
		}
	}
	if len(met) == 0 {
		return nil, fmt.Errorf("the judge's interface has the addresses %v, none of which is in a network of the device's %v: give it one (ip address add)", own, has)
	}
	return met, nil
}

// within are the addresses in a network.
func within(n netip.Prefix, all []netip.Addr) (in []netip.Addr) {
	for _, a := range all {
		if n.Contains(a) {
			in = append(in, a)
		}
	}
	return in
}

func familyOf(a netip.Addr) int {
	if a.Is4() {
		return 4
	}
	return 6
}

// meeting is where a case with this setup takes place. What a device as it comes is not
// cannot be had here: a lab of emulated devices makes others, this one has the one.
func meeting(s conformance.Setup, met map[int]ends, mtu int) (e ends, err error) {
	never := func(format string, args ...any) (ends, error) {
		return e, fmt.Errorf("%w: the device is judged as it is: %s", conformance.ErrCannot, fmt.Sprintf(format, args...))
	}
	switch {
	case s.Markers: // that it does not ask for CRCs can be seen in what it says first: cases look
		return never("verbs have no way to choose markers of MPA")
	case s.Reliable, s.Isolate:
		return never("verbs have no way to choose the service of datagram-iWARP")
	case s.MTU != 0 && s.MTU != mtu:
		return never("its cable has an MTU of %d, and the case wants %d", mtu, s.MTU)
	}
	family := s.Family
	if family == 0 {
		family = 6
		if len(met[family].local) == 0 {
			family = 4
		}
	}
	e, n := met[family], 1
	if s.TwoAddresses {
		n = 2
	}
	if len(e.local) < n {
		return never("it has %d addresses of IPv%d that the judge can reach, and the case wants %d", len(e.local), family, n)
	}
	e.local = e.local[:n]
	return e, nil
}

// identityOf finds a device at an agent.
func identityOf(client *agent.Client, name string) (agent.Identity, agent.DeviceIdentity, error) {
	id, err := client.Identity()
	if err != nil {
		return id, agent.DeviceIdentity{}, err
	}
	names := make([]string, 0, len(id.Devices))
	for _, d := range id.Devices {
		if d.Info.Name == name {
			return id, d, nil
		}
		names = append(names, d.Info.Name)
	}
	return id, agent.DeviceIdentity{}, fmt.Errorf("the agent's host has no device %q: it has %q", name, names)
}

// gidTable reads the GID table of a device's first port.
func gidTable(dev verbs.Context) (table []verbs.GIDEntry, err error) {
	attr, err := dev.QueryPort(1)
	if err != nil {
		return nil, err
	}
	for i := range attr.GIDs {
		e, err := dev.QueryGID(1, i)
		if errors.Is(err, verbs.ErrNotFound) {
			continue // a place that is free
		}
		if err != nil {
			return nil, err
		}
		table = append(table, e)
	}
	return table, nil
}
