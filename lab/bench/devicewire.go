package bench

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/fabrictest/fabrictest/conformance/udpwire"
	"github.com/fabrictest/fabrictest/verbs"
)

// DeviceWire is how the judge is at the other end of a device's cable.
type DeviceWire string

// The ways. Each is for one kind of device.
const (
	// WirePackets: as a host of its own, by packet sockets, which see and set every bit.
	// It is the usual one for RoCE, and takes CAP_NET_RAW.
	WirePackets DeviceWire = "packet"
	// WireUDP: as any program of this host, by UDP sockets, for RoCE. It takes no
	// permission, and sees and sets less.
	WireUDP DeviceWire = "udp"
	// WireTCP: as any program of this host, by its kernel's TCP. It is the usual one for
	// iWARP, and takes no permission.
	WireTCP DeviceWire = "tcp"
	// WireSegments: as a host of its own whose TCP the judge makes by hand, by packet
	// sockets, for iWARP: it sees and sets every segment. It takes CAP_NET_RAW.
	WireSegments DeviceWire = "segments"
)

// DeviceWires are the ways to be at the end of a device's cable, the usual one first.
func DeviceWires(streams bool) []DeviceWire {
	if streams {
		return []DeviceWire{WireTCP, WireSegments}
	}
	return []DeviceWire{WirePackets, WireUDP}
}

// Unprivileged is the way that takes no permission.
func Unprivileged(streams bool) DeviceWire {
	if streams {
		return WireTCP
	}
	return WireUDP
}

// Words tell it to people.
func (w DeviceWire) Words() string {
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

// Blind tells what the judge neither sees nor sets by a wire, in words for people; nothing
// where there is nothing.
func (w DeviceWire) Blind() []string {
	switch w {
	case WireUDP:
		return udpwire.Blind()
	case WireTCP:
		return []string{"TCP itself: segments, options and timers are between the kernels, and the judge sees what was written and read"}
	case WirePackets, WireSegments:
	}
	return nil
}

// wireFor is the way for a device of that kind, of those that were asked for.
func wireFor(asked DeviceWire, streams bool) (DeviceWire, error) {
	ways := DeviceWires(streams)
	switch {
	case asked == "":
		return ways[0], nil
	case slices.Contains(ways, asked):
		return asked, nil
	}
	kind := "RoCE"
	if streams {
		kind = "iWARP"
	}
	return "", fmt.Errorf("a device of %s cannot be judged by the wire %q: give %s or %s", kind, asked, ways[0], ways[1])
}

// socketEnds finds out at which addresses a RoCE device and the sockets of the judge's
// host meet, by family. own are the addresses of the judge's interface; wanted, if there
// are any, those of them to use.
func socketEnds(table []verbs.GIDEntry, own, wanted []netip.Prefix) (map[int]ends, error) {
	has := routed(table)
	met := make(map[int]ends)
	// Addresses that hold on the link alone are for devices that have no other.
	for _, local := range []bool{false, true} {
		for _, n := range own {
			family := familyOf(n.Addr())
			e, found := met[family]
			switch {
			case n.Addr().IsLinkLocalUnicast() != local, found && local:
				continue
			case len(wanted) > 0 && !slices.ContainsFunc(wanted, func(w netip.Prefix) bool { return w.Addr() == n.Addr() }):
				continue
			}
			if reach := within(n, has); len(reach) > 0 {
				e.local, e.peers = reach, append(e.peers, n.Addr())
				met[family] = e
			}
		}
	}
	if len(met) == 0 {
		return nil, fmt.Errorf("the judge's interface has the addresses %v, none of which is in a network of the device's %v: give it one (ip address add)", own, has)
	}
	return met, nil
}

// routed are the addresses of RoCEv2 in a GID table, in its order.
func routed(table []verbs.GIDEntry) (has []netip.Addr) {
	for _, e := range table {
		if a := e.GID.Addr(); e.Type == verbs.GIDTypeRoCEv2 && !a.IsUnspecified() && !slices.Contains(has, a) {
			has = append(has, a)
		}
	}
	return has
}

// leaveOne takes the last address of each family from the judge, if it has several, for
// the device's partners: a socket of theirs and one of the judge's cannot be at the same.
func leaveOne(met map[int]ends) {
	for family, e := range met {
		if n := len(e.peers); n > 1 {
			e.peers = e.peers[:n-1]
			met[family] = e
		}
	}
}
