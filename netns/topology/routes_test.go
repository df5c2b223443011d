package topology_test

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"

	"github.com/fabrictest/fabrictest/internal/must"
	"github.com/fabrictest/fabrictest/netns/topology"
)

func TestSegmentsMatchSubnets(t *testing.T) {
	for _, c := range []struct {
		top  topology.Topology
		want string
	}{
		{must.Get(topology.Pair(topology.Options{Rails: 2}))(t), "[{[host0/rdma0 host1/rdma0]} {[host0/rdma1 host1/rdma1]}]"},
		{must.Get(topology.Star(3, topology.Options{}))(t), "[{[host0/rdma0 host1/rdma0 host2/rdma0]}]"},
		{
			must.Get(topology.FatTree(2, 1, 3, topology.Options{}))(t),
			"[{[host0/rdma0 leaf0/port0 host1/rdma0]} {[host2/rdma0 leaf1/port0]} {[leaf0/port2 spine0/port0]} {[leaf1/port1 spine0/port1]}]",
		},
	} {
		if got := fmt.Sprint(c.top.Segments()); got != c.want {
			t.Errorf("segments are\n%s, want\n%s", got, c.want)
		}
	}
}

// Packets arrive over every next hop, within two hops over a spine.
func TestRoutesUseEverySpine(t *testing.T) {
	top := must.Get(topology.FatTree(3, 4, 6, topology.Options{Rails: 2}))(t)
	routes := top.Routes(nil)
	if want := 2 * (3*4 + 4*6); len(routes) != want { // each leaf 2 others, each spine 3 leaves, of 2 families
		t.Errorf("%d routes, want %d", len(routes), want)
	}
	for _, r := range routes {
		want := 1
		if sw, _ := top.Switch(r.Switch); sw.Tier == 1 {
			want = 4
		}
		if len(r.Via) != want {
			t.Errorf("%s reaches %v by %d next hops, want %d", r.Switch, r.Dst, len(r.Via), want)
		}
		for _, hop := range r.Via {
			if hop.Out.Node != r.Switch || hop.Addr.Is4() != r.Dst.Addr().Is4() {
				t.Errorf("%s reaches %v by %v, %v", r.Switch, r.Dst, hop.Out, hop.Addr)
			}
			c, ok := top.CableAt(hop.Out)
			far := c.Other(hop.Out)
			if !ok || !slices.ContainsFunc(far.Addrs, func(a netip.Prefix) bool { return a.Addr() == hop.Addr }) {
				t.Errorf("%s reaches %v by %v, which is not at the other end of %v", r.Switch, r.Dst, hop.Addr, hop.Out)
			}
		}
	}
}

// No leaf routes to another over a spine whose cable to it is down. A leaf without cables is
// unreachable.
func TestRoutesAvoidDownCables(t *testing.T) {
	top := must.Get(topology.FatTree(3, 2, 3, topology.Options{}))(t)
	cut := func(leaf string, spines ...string) func(topology.Cable) bool {
		return func(c topology.Cable) bool { return c.A.Node != leaf || !slices.Contains(spines, c.B.Node) }
	}
	leaf0 := func(r topology.Route) bool {
		nic := top.Hosts[0].NICs[0]
		return r.Dst.Contains(nic.Addr(false)) || r.Dst.Contains(nic.Addr(true))
	}
	for _, r := range top.Routes(cut("leaf0", "spine0")) {
		var ways []string
		for _, hop := range r.Via {
			c, _ := top.CableAt(hop.Out)
			ways = append(ways, c.Other(hop.Out).Node)
		}
		sw, _ := top.Switch(r.Switch)
		want := "[spine0 spine1]"
		switch {
		case r.Switch == "spine0" && leaf0(r):
			want = "[leaf1 leaf2]" // the only paths, though no leaf uses them
		case sw.Tier == 2:
			want = fmt.Sprintf("[leaf%d]", leafOf(top, r.Dst))
		case leaf0(r) || r.Switch == "leaf0":
			want = "[spine1]"
		}
		if got := fmt.Sprint(ways); got != want {
			t.Errorf("%s reaches %v by %s, want by %s", r.Switch, r.Dst, got, want)
		}
	}
	for _, r := range top.Routes(cut("leaf0", "spine0", "spine1")) {
		if leaf0(r) && len(r.Via) != 0 {
			t.Errorf("%s reaches leaf0 by %v, though it is unreachable", r.Switch, r.Via)
		}
	}
}

func leafOf(top topology.Topology, subnet netip.Prefix) int {
	for i, h := range top.Hosts { // one on each leaf
		if subnet.Contains(h.NICs[0].Addr(true)) || subnet.Contains(h.NICs[0].Addr(false)) {
			return i
		}
	}
	return -1
}
