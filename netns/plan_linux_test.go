package netns

import (
	"testing"

	"github.com/fabrictest/fabrictest/internal/must"
	"github.com/fabrictest/fabrictest/netns/topology"
)

// Interface indexes of a veth pair must differ (see plan.ifindexes), and names
// must be valid in the largest fabrics.
func TestPlanInterfaceNamesAndIndexesAreUnique(t *testing.T) {
	inUserSpace := func(c topology.Cable) bool { return len(c.A.NIC)%2 == len(c.A.Node)%2 }
	for _, draw := range []func() (topology.Topology, error){
		func() (topology.Topology, error) { return topology.Pair(topology.Options{Rails: 8}) },
		func() (topology.Topology, error) { return topology.Star(512, topology.Options{Rails: 8}) },
		func() (topology.Topology, error) { return topology.FatTree(16, 8, 512, topology.Options{Rails: 8}) },
	} {
		top := must.Get(draw())(t)
		p := must.Get(newPlan(top, Options{UserCable: inUserSpace}))(t)
		indexes := map[int]bool{loopbackIndex: true}
		for _, s := range p.namespaces {
			names := map[string]bool{"lo": true}
			for _, d := range s.devices {
				if indexes[d.index] || names[d.name] || len(d.name) > 15 {
					t.Fatalf("%s: the interface %d, %q is not apart from others", s.name, d.index, d.name)
				}
				indexes[d.index], names[d.name] = true, true
			}
		}
	}
}
