package bench

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/fabrictest/fabrictest/conformance/wire"
	"github.com/fabrictest/fabrictest/verbs"
)

// DeviceWire is the access of the judge to a device's link.
type DeviceWire string

// The kinds of access.
const (
	// WirePackets uses packet sockets, with addresses of the judge only: it sees
	// and sets every bit. It is the default for RoCE, and needs CAP_NET_RAW.
	WirePackets DeviceWire = "packet"
	// WireUDP uses UDP sockets of the kernel, for RoCE. It needs no privileges, and
	// has limitations.
	WireUDP DeviceWire = "udp"
	// WireTCP uses the kernel's TCP. It is the default for iWARP, and needs no
	// privileges.
	WireTCP DeviceWire = "tcp"
	// WireSegments uses a user-space TCP over packet sockets, for iWARP: it sees
	// and sets every segment. It needs CAP_NET_RAW.
	WireSegments DeviceWire = "segments"
)

// DeviceWires returns the kinds of access for a device, the default first.
func DeviceWires(streams bool) []DeviceWire {
	if streams {
		return []DeviceWire{WireTCP, WireSegments}
	}
	return []DeviceWire{WirePackets, WireUDP}
}

// UnprivilegedWire returns the kind of access that needs no privileges.
func UnprivilegedWire(streams bool) DeviceWire {
	if streams {
		return WireTCP
	}
	return WireUDP
}

// Description returns a text for users.
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

// Limitations lists what the judge cannot see or set, as text for users.
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

// wireFor validates the requested access for a device, or returns the default.
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

// kernelAddrPairs returns the addresses of a device and of the judge's kernel, by family: has
// are the device's, kernel those of the judge's interface; wanted, if not empty, selects some
// of these.
func kernelAddrPairs(has []netip.Addr, kernel, wanted []netip.Prefix) (map[int]addrPair, error) {
	pairs := make(map[int]addrPair)
	// Link-local addresses are used only if there are no others.
	for _, local := range []bool{false, true} {
		for _, n := range kernel {
			family := familyOf(n.Addr())
			e, found := pairs[family]
			switch {
			case n.Addr().IsLinkLocalUnicast() != local, found && local:
				continue
			case len(wanted) > 0 && !slices.ContainsFunc(wanted, func(w netip.Prefix) bool { return w.Addr() == n.Addr() }):
				continue
			}
			if reach := addrsIn(n, has); len(reach) > 0 {
				e.local, e.peers = reach, append(e.peers, n.Addr())
				pairs[family] = e
			}
		}
	}
	if len(pairs) == 0 {
		return nil, fmt.Errorf("the judge's interface has the addresses %v, none of which is in a network of the device's %v: give it one (ip address add)", kernel, has)
	}
	return pairs, nil
}

// roceV2Addrs returns the RoCEv2 addresses of a GID table, in its order.
func roceV2Addrs(table []verbs.GIDEntry) (has []netip.Addr) {
	for _, e := range table {
		if a := e.GID.Addr(); e.Type == verbs.GIDTypeRoCEv2 && !a.IsUnspecified() && !slices.Contains(has, a) {
			has = append(has, a)
		}
	}
	return has
}

// reservePartnerAddr removes the judge's last address of each family, if it has
// several, for partner devices, which need separate sockets.
func reservePartnerAddr(pairs map[int]addrPair) {
	for family, e := range pairs {
		if n := len(e.peers); n > 1 {
			e.peers = e.peers[:n-1]
			pairs[family] = e
		}
	}
}
