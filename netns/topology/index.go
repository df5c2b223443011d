package topology

import "net/netip"

// index maps names to nodes.
type index struct {
	hosts    map[string]map[string]*NIC
	switches map[string]*Switch
}

func (t Topology) index() index {
	x := index{make(map[string]map[string]*NIC, len(t.Hosts)), make(map[string]*Switch, len(t.Switches))}
	for i := range t.Hosts {
		h := &t.Hosts[i]
		nics := make(map[string]*NIC, len(h.NICs))
		for j := range h.NICs {
			nics[h.NICs[j].Name] = &h.NICs[j]
		}
		x.hosts[h.Name] = nics
	}
	for i := range t.Switches {
		x.switches[t.Switches[i].Name] = &t.Switches[i]
	}
	return x
}

func (x index) addrs(p Port) []netip.Prefix {
	if n := x.hosts[p.Node][p.NIC]; n != nil {
		return n.Addrs
	}
	return p.Addrs
}

func (x index) rail(p Port) int {
	if n := x.hosts[p.Node][p.NIC]; n != nil {
		return n.Rail
	}
	if s := x.switches[p.Node]; s != nil {
		return s.Rail
	}
	return 0
}

// bridge identifies the ports of a node that are in one segment with p.
func (x index) bridge(p Port) (string, bool) {
	sw := x.switches[p.Node]
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
