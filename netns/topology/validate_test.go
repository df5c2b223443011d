package topology_test

import (
	"encoding/json"
	"net/netip"
	"reflect"
	"strings"
	"testing"

	"github.com/fabrictest/fabrictest/internal/must"
	"github.com/fabrictest/fabrictest/netns/topology"
)

func TestValidateReportsErrors(t *testing.T) {
	star := func() topology.Topology { return must.Get(topology.Star(3, topology.Options{Rails: 2}))(t) }
	tree := func() topology.Topology { return must.Get(topology.FatTree(2, 2, 4, topology.Options{}))(t) }
	for _, c := range []struct {
		want  string
		top   topology.Topology
		spoil func(*topology.Topology)
	}{
		{"there is no host", topology.Topology{}, func(*topology.Topology) {}},
		{"host0: there are two nodes", star(), func(t *topology.Topology) { t.Hosts[1].Name = "host0" }},
		{`host name "a/b"`, star(), func(t *topology.Topology) { t.Hosts[1].Name = "a/b" }},
		{"host1/rdma0: there are two NICs", star(), func(t *topology.Topology) { t.Hosts[1].NICs[1].Name = "rdma0" }},
		{"host1/rdma1: it has no address", star(), func(t *topology.Topology) { t.Hosts[1].NICs[1].Addrs = nil }},
		{"host0/rdma0: no cable", star(), func(t *topology.Topology) { t.Cables = t.Cables[1:] }},
		{"host0/rdma0: two cables", star(), func(t *topology.Topology) { t.Cables[1].A = t.Cables[0].A }},
		{"no node host7", star(), func(t *topology.Topology) { t.Cables[0].A.Node = "host7" }},
		{`host0 has no NIC "x"`, star(), func(t *topology.Topology) { t.Cables[0].A.NIC = "x" }},
		{"both ends are the same port", star(), func(t *topology.Topology) { t.Cables[0].A = t.Cables[0].B }},
		{"host1/rdma0: address fd00:fab::1 is that of host0/rdma0 too", star(), func(t *topology.Topology) { t.Hosts[1].NICs[0].Addrs[0] = t.Hosts[0].NICs[0].Addrs[0] }},
		{"subnets", star(), func(t *topology.Topology) { t.Hosts[1].NICs[0].Addrs[1] = netip.MustParsePrefix("10.9.0.1/16") }},
		{"rails 0 and 1 differ", star(), func(t *topology.Topology) { t.Hosts[1].NICs[0].Rail = 1 }},
		{"closes a loop", star(), func(t *topology.Topology) {
			for n := range 2 {
				t.Cables = append(t.Cables, topology.Cable{A: topology.Port{Node: "switch0-rail0", Num: 10 + n}, B: topology.Port{Node: "switch0-rail1", Num: 10 + n}})
			}
		}},
		{"gateway fd00:fab::9", tree(), func(t *topology.Topology) { t.Hosts[0].NICs[0].Gateways[0] = netip.MustParseAddr("fd00:fab::9") }},
		{"those of other switches none", tree(), func(t *topology.Topology) { t.Switches[0].Routed = false }},
		{"leaf1/port0: address", tree(), func(t *topology.Topology) { t.Cables[2].B.Addrs = t.Cables[0].B.Addrs }},
		{"its ports have numbers", tree(), func(t *topology.Topology) { t.Cables[2].B.NIC = "x" }},
	} {
		c.spoil(&c.top)
		if err := c.top.Validate(); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("error %v, want one about %q", err, c.want)
		}
	}
}

func TestTopologyJSONRoundTrip(t *testing.T) {
	top := must.Get(topology.FatTree(2, 2, 4, topology.Options{Rails: 2, Link: topology.Link{MTU: 4200, ECN: topology.ECN{MaxPPM: 3}}}))(t)
	b := must.Get(json.Marshal(top))(t)
	var back topology.Topology
	must.Do(t, json.Unmarshal(b, &back))
	if !reflect.DeepEqual(top, back) {
		t.Errorf("%+v became %+v", top, back)
	}
}
