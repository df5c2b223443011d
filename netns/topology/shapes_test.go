package topology_test

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/fabrictest/fabrictest/internal/must"
	"github.com/fabrictest/fabrictest/netns/topology"
)

func TestShapesAreValidAndComplete(t *testing.T) {
	for _, c := range []struct {
		name                    string
		build                   func() (topology.Topology, error)
		hosts, switches, cables int
	}{
		{"pair", func() (topology.Topology, error) { return topology.Pair(topology.Options{}) }, 2, 0, 1},
		{"pair of 8 rails", func() (topology.Topology, error) { return topology.Pair(topology.Options{Rails: 8}) }, 2, 0, 8},
		{"star", func() (topology.Topology, error) { return topology.Star(600, topology.Options{}) }, 600, 1, 600},
		{"star of 2 rails", func() (topology.Topology, error) { return topology.Star(3, topology.Options{Rails: 2}) }, 3, 2, 6},
		{"lone host", func() (topology.Topology, error) { return topology.Star(1, topology.Options{}) }, 1, 1, 1},
		{"tree", func() (topology.Topology, error) { return topology.FatTree(4, 2, 9, topology.Options{}) }, 9, 6, 9 + 8},
		{"tree of 8 rails", func() (topology.Topology, error) { return topology.FatTree(8, 4, 512, topology.Options{Rails: 8}) }, 512, 96, 8 * (512 + 32)},
		{"largest leaves", func() (topology.Topology, error) { return topology.FatTree(2, 1, 2*253, topology.Options{}) }, 506, 3, 508},
	} {
		t.Run(c.name, func(t *testing.T) {
			top := must.Get(c.build())(t)
			if h, s, n := len(top.Hosts), len(top.Switches), len(top.Cables); h != c.hosts || s != c.switches || n != c.cables {
				t.Errorf("%d hosts, %d switches, %d cables; want %d, %d, %d", h, s, n, c.hosts, c.switches, c.cables)
			}
			macs := map[string]topology.Port{}
			for _, p := range top.Ports() {
				mac := top.MAC(p).String()
				if q, twice := macs[mac]; twice {
					t.Fatalf("%v and %v have the hardware address %s", p, q, mac)
				}
				macs[mac] = p
			}
		})
	}
}

func TestNamesAndAddressesFollowPlan(t *testing.T) {
	tree := must.Get(topology.FatTree(2, 2, 4, topology.Options{Rails: 2}))(t)
	h, _ := tree.Host("host3")
	if got, want := fmt.Sprint(h.NICs[1]), "{rdma1 1 [fd00:fab:1:1::2/64 10.1.1.2/24] [fd00:fab:1:1::fe 10.1.1.254]}"; got != want {
		t.Errorf("host3's second NIC is %s, want %s", got, want)
	}
	c, ok := tree.CableAt(topology.Port{Node: "spine1-rail1", Num: 1})
	if got, want := fmt.Sprint(c, c.A.Addrs, c.B.Addrs), "leaf1-rail1/port3 to spine1-rail1/port1 "+
		"[fd00:fab:1:ffff:1:1:0:2/127 172.17.0.6/31] [fd00:fab:1:ffff:1:1:0:3/127 172.17.0.7/31]"; !ok || got != want {
		t.Errorf("leaf1 is cabled to spine1 by\n%s, want\n%s", got, want)
	}
	if a, b := c.A.Addrs[1].Masked(), c.B.Addrs[1].Masked(); a != b {
		t.Errorf("the ends of %v are in the subnets %v and %v", c, a, b)
	}
	star := must.Get(topology.Star(300, topology.Options{}))(t)
	h, _ = star.Host("host299")
	if got, want := fmt.Sprint(h.NICs[0].Addrs, star.Switches[0].Name), "[fd00:fab::12c/64 10.0.1.44/16]switch0"; got != want {
		t.Errorf("host299 of a star is at %s, want %s", got, want)
	}
	if v4, v6 := h.NICs[0].Addr(true), h.NICs[0].Addr(false); v4 != netip.MustParseAddr("10.0.1.44") || v6 != netip.MustParseAddr("fd00:fab::12c") {
		t.Errorf("Addr gives %v and %v", v4, v6)
	}
}

func TestFatTreeBalancesHostsOverLeaves(t *testing.T) {
	tree := must.Get(topology.FatTree(4, 1, 6, topology.Options{}))(t)
	var got []string
	for _, h := range tree.Hosts {
		c, _ := tree.CableAt(topology.Port{Node: h.Name, NIC: "rdma0"})
		got = append(got, c.B.Node)
	}
	if s := strings.Join(got, " "); s != "leaf0 leaf0 leaf1 leaf2 leaf2 leaf3" {
		t.Errorf("6 hosts on 4 leaves: %s", s)
	}
}

func TestShapesRejectInvalidSizes(t *testing.T) {
	for want, build := range map[string]func() (topology.Topology, error){
		"9 rails":             func() (topology.Topology, error) { return topology.Pair(topology.Options{Rails: 9}) },
		"-1 rails":            func() (topology.Topology, error) { return topology.Pair(topology.Options{Rails: -1}) },
		"0 hosts":             func() (topology.Topology, error) { return topology.Star(0, topology.Options{}) },
		"70000 hosts":         func() (topology.Topology, error) { return topology.Star(70000, topology.Options{}) },
		"0 leaves":            func() (topology.Topology, error) { return topology.FatTree(0, 1, 1, topology.Options{}) },
		"0 spines":            func() (topology.Topology, error) { return topology.FatTree(1, 0, 1, topology.Options{}) },
		"1 hosts on 2 leaves": func() (topology.Topology, error) { return topology.FatTree(2, 1, 1, topology.Options{}) },
		"so use 3 leaves":     func() (topology.Topology, error) { return topology.FatTree(2, 1, 600, topology.Options{}) },
		`links of the ports "host9"`: func() (topology.Topology, error) {
			return topology.Pair(topology.Options{Links: map[string]topology.Link{"host9": {}}})
		},
		"MTU 100: must be 1280": func() (topology.Topology, error) {
			return topology.Pair(topology.Options{Link: topology.Link{MTU: 100}})
		},
		"neither may be negative": func() (topology.Topology, error) {
			return topology.Pair(topology.Options{Link: topology.Link{Latency: -1}})
		},
		"ECN from 9 to 3 bytes": func() (topology.Topology, error) {
			return topology.Pair(topology.Options{Link: topology.Link{ECN: topology.ECN{MinBytes: 9, MaxBytes: 3}}})
		},
		"it could be host0/rdma0 or ": func() (topology.Topology, error) {
			top, _ := topology.Pair(topology.Options{Rails: 2})
			_, err := top.FindPort("host0")
			return top, err
		},
	} {
		if _, err := build(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want one about %q", err, want)
		}
	}
}

func TestMostSpecificLinkPatternWins(t *testing.T) {
	top := must.Get(topology.Star(3, topology.Options{
		Rails: 2,
		Link:  topology.Link{MTU: 9000, RateBps: 7},
		Links: map[string]topology.Link{"host*": {MTU: 4000}, "host1": {MTU: 3000}, "host1/rdma1": {MTU: 2000}, "*/rdma0": {RateBps: 5}},
	}))(t)
	for port, want := range map[string]topology.Link{
		"host0/rdma0": {MTU: 4000, RateBps: 5},
		"host0/rdma1": {MTU: 4000, RateBps: 7},
		"host1/rdma0": {MTU: 3000, RateBps: 5},
		"host1/rdma1": {MTU: 2000, RateBps: 7},
	} {
		p := must.Get(top.FindPort(port))(t)
		if c, _ := top.CableAt(p); c.Link != want {
			t.Errorf("%s has %+v, want %+v", port, c.Link, want)
		}
	}
	tree := must.Get(topology.FatTree(2, 2, 2, topology.Options{Links: map[string]topology.Link{"spine1": {RateBps: 1}}}))(t)
	for _, c := range tree.Cables {
		if (c.Link.RateBps == 1) != (c.B.Node == "spine1") {
			t.Errorf("%v has the rate %d", c, c.Link.RateBps)
		}
	}
}
