package topology

import (
	"fmt"
	"net/netip"
	"path"
	"slices"
	"strconv"
	"strings"
)

// String returns node and port, such as host1/rdma0 or switch0/port3.
func (p Port) String() string {
	if p.NIC != "" {
		return p.Node + "/" + p.NIC
	}
	return p.Node + "/port" + strconv.Itoa(p.Num)
}

// Same reports whether p and q are the same port, whatever their addresses.
func (p Port) Same(q Port) bool { return p.Node == q.Node && p.NIC == q.NIC && p.Num == q.Num }

// String returns both ends: "host1/rdma0 to switch0/port1".
func (c Cable) String() string { return c.A.String() + " to " + c.B.String() }

// Other returns the end of the cable that is not p, which must be one of its ends.
func (c Cable) Other(p Port) Port {
	if c.A.Same(p) {
		return c.B
	}
	return c.A
}

// Addr returns the NIC's IPv4 or IPv6 address; the zero Addr if it has none.
func (n NIC) Addr(ipv4 bool) netip.Addr {
	p, _ := find(n.Addrs, func(p netip.Prefix) bool { return p.Addr().Is4() == ipv4 })
	return p.Addr()
}

// find returns the first element for which match returns true; ok is false if there is none.
func find[T any](all []T, match func(T) bool) (found T, ok bool) {
	if i := slices.IndexFunc(all, match); i >= 0 {
		return all[i], true
	}
	return found, false
}

// Host returns the host of that name, and whether there is one.
func (t Topology) Host(name string) (Host, bool) {
	return find(t.Hosts, func(h Host) bool { return h.Name == name })
}

// Switch returns the switch of that name, and whether there is one.
func (t Topology) Switch(name string) (Switch, bool) {
	return find(t.Switches, func(s Switch) bool { return s.Name == name })
}

// NIC returns the NIC of a host's port; false for a port of a switch.
func (t Topology) NIC(p Port) (NIC, bool) {
	h, _ := t.Host(p.Node)
	return find(h.NICs, func(n NIC) bool { return n.Name == p.NIC })
}

// AddrsOf returns the addresses of a port, which for a host's port are those of its NIC.
func (t Topology) AddrsOf(p Port) []netip.Prefix {
	if n, ok := t.NIC(p); ok {
		return n.Addrs
	}
	return p.Addrs
}

// CableAt returns the cable of a port, and whether it has one.
func (t Topology) CableAt(p Port) (Cable, bool) {
	return find(t.Cables, func(c Cable) bool { return c.A.Same(p) || c.B.Same(p) })
}

// CablesOf returns the cables of a host or switch, in the topology's order.
func (t Topology) CablesOf(node string) []Cable {
	var cables []Cable
	for _, c := range t.Cables {
		if c.A.Node == node || c.B.Node == node {
			cables = append(cables, c)
		}
	}
	return cables
}

// Ports returns every port with a cable: those of hosts in the order of hosts
// and NICs, then those of switches in the order of cables.
func (t Topology) Ports() []Port {
	hosts, switches := t.ports()
	return append(hosts, switches...)
}

// ports returns every port with a cable: those of hosts in the order of hosts and NICs, and those
// of switches in the order of cables.
func (t Topology) ports() (hosts, switches []Port) {
	byNIC := make(map[string]map[string]Port, len(t.Hosts)) // by host name, NIC name
	for _, h := range t.Hosts {
		byNIC[h.Name] = make(map[string]Port, len(h.NICs))
	}
	for _, c := range t.Cables {
		for _, p := range []Port{c.A, c.B} {
			if nics, ok := byNIC[p.Node]; ok {
				nics[p.NIC] = p
			} else {
				switches = append(switches, p)
			}
		}
	}
	for _, h := range t.Hosts {
		for _, n := range h.NICs {
			if p, ok := byNIC[h.Name][n.Name]; ok {
				hosts = append(hosts, p)
			}
		}
	}
	return hosts, switches
}

// FindPort returns the port that name identifies: "host1/rdma0", "leaf0/port2",
// or a host or switch with a single port.
func (t Topology) FindPort(name string) (Port, error) {
	if strings.ContainsAny(name, "*?[") {
		return Port{}, fmt.Errorf("port %q is a pattern; the name of a single port is needed here", name)
	}
	ports, err := t.Match(name)
	if err != nil {
		return Port{}, err
	}
	if len(ports) > 1 {
		return Port{}, fmt.Errorf("port %q is ambiguous: it could be %v or %v", name, ports[0], ports[1])
	}
	return ports[0], nil
}

// Match returns the ports that match a pattern, in the order of Ports, or an error if none does. A
// pattern is a node ("host1": all its ports) or a node and a port ("host1/rdma0"); both may contain
// *, ? and [a-z]. If it matches ports of hosts, Match returns only these: "*" is every NIC.
func (t Topology) Match(pattern string) ([]Port, error) {
	node, port, split := strings.Cut(pattern, "/")
	if !split {
		port = "*"
	}
	if err := checkPattern(node, port); err != nil {
		return nil, fmt.Errorf("port pattern %q: %w; write host1, host1/rdma0 or host*", pattern, err)
	}
	hosts, switches := t.ports()
	for _, group := range [][]Port{hosts, switches} {
		var found []Port
		for _, p := range group {
			_, name, _ := strings.Cut(p.String(), "/")
			if matches(node, p.Node) && matches(port, name) {
				found = append(found, p)
			}
		}
		if found != nil {
			return found, nil
		}
	}
	return nil, fmt.Errorf("no port matches %q: %s", pattern, t.inventory(hosts))
}

// checkPattern returns an error if a part of a pattern (node or port) is empty, contains a
// slash, or is no valid pattern of path.Match.
func checkPattern(parts ...string) error {
	for _, p := range parts {
		if p == "" || strings.Contains(p, "/") {
			return fmt.Errorf("a node, or a node and a port, is expected")
		}
		if _, err := path.Match(p, ""); err != nil {
			return err
		}
	}
	return nil
}

// matches reports whether a name matches a valid pattern.
func matches(pattern, name string) bool {
	ok, _ := path.Match(pattern, name) // no error: checkPattern has checked the pattern
	return ok
}

// inventory names the first and the last of the ports in hosts, and the first switches, for error
// messages.
func (t Topology) inventory(hosts []Port) string {
	const maxSwitches = 8
	var items []string
	if len(hosts) > 0 {
		items = append(items, fmt.Sprintf("%v to %v", hosts[0], hosts[len(hosts)-1]))
	}
	for i, sw := range t.Switches {
		if i == maxSwitches {
			items = append(items, "…")
			break
		}
		items = append(items, sw.Name)
	}
	if items == nil {
		return "the fabric is empty"
	}
	return "the fabric has " + strings.Join(items, ", ")
}
