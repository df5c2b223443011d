package topology

import "net/netip"

// index maps names to nodes.
type index struct {
	hosts    map[string]map[string]*NIC // by host name, NIC name
	switches map[string]*Switch
}

// index returns the NICs of t by the names of host and NIC, and switches by name. It points into t.
func (t Topology) index() index {
	ix := index{make(map[string]map[string]*NIC, len(t.Hosts)), make(map[string]*Switch, len(t.Switches))}
	for i := range t.Hosts {
		h := &t.Hosts[i]
		nics := make(map[string]*NIC, len(h.NICs))
		for j := range h.NICs {
			nics[h.NICs[j].Name] = &h.NICs[j]
		}
		ix.hosts[h.Name] = nics
	}
	for i := range t.Switches {
		ix.switches[t.Switches[i].Name] = &t.Switches[i]
	}
	return ix
}

// addrs returns the addresses of a port, which for a host's port are those of its NIC.
func (ix index) addrs(p Port) []netip.Prefix {
	if n := ix.hosts[p.Node][p.NIC]; n != nil {
		return n.Addrs
	}
	return p.Addrs
}

// rail returns the rail of a port's NIC or switch; 0 if the node is unknown.
func (ix index) rail(p Port) int {
	if n := ix.hosts[p.Node][p.NIC]; n != nil {
		return n.Rail
	}
	if s := ix.switches[p.Node]; s != nil {
		return s.Rail
	}
	return 0
}

// bridge identifies the bridge that p belongs to: ports with the same key forward frames to each
// other. These are all ports of an unrouted switch, or the ports of a routed switch with the same
// address. ok is false for the ports of hosts, and for ports of a routed switch without an address.
func (ix index) bridge(p Port) (key string, ok bool) {
	sw := ix.switches[p.Node]
	switch {
	case sw == nil:
		return "", false
	case !sw.Routed:
		return sw.Name, true
	case len(p.Addrs) == 0:
		return "", false
	default:
		return sw.Name + " " + p.Addrs[0].String(), true
	}
}
