package coll

import (
	"fmt"
	"testing"
)

// Allgathers with any number of groups, on hosts with up to five ranks: a number above the ranks of a host does
// not fit the call.
func TestAllgathersOfAnyNumberOfGroups(t *testing.T) {
	var seed uint64
	for _, variant := range []string{"", "-shared", "-direct", "-ring", "-ring-direct"} {
		for groups := 1; groups <= 6; groups++ {
			alg := Find(Allgather, fmt.Sprintf("groups-%d%s", groups, variant))
			for perHost := 1; perHost <= 5; perHost++ {
				for hosts := 1; hosts <= 4; hosts++ {
					p := hosts * perHost
					for _, nodeOf := range []func(rank int) int{
						func(rank int) int { return rank / perHost },
						func(rank int) int { return rank % hosts },
						func(rank int) int { return min(rank/perHost, max(0, hosts-2)) }, // twice as many on the last
					} {
						s := scenario{op: Allgather, size: p, bytes: 12, nodes: NewNodes(p, nodeOf)}
						isDirect := variant == "-direct" || variant == "-ring-direct"
						want := groups <= s.nodes.fewest() && (!isDirect || s.nodes.areConsecutive())
						if s.fits(alg) != want {
							t.Errorf("%s fits %d to %d ranks on %d hosts: %v", alg.Name, s.nodes.fewest(), s.nodes.most(), s.nodes.count(), !want)
						}
						if !want {
							continue
						}
						seed++
						if _, err := s.check(alg, seed); err != nil {
							t.Fatalf("%s with %d ranks on %d hosts: %v", alg.Name, p, hosts, err)
						}
					}
				}
			}
		}
	}
	if seed < 300 {
		t.Errorf("only %d scenarios", seed)
	}
}

func TestNamesOfGroups(t *testing.T) {
	for _, name := range []string{"groups-", "groups-0", "groups--1", "groups-08", "groups-+8", "groups-8-", "groups-8-bruck", "groups-8-ring-shared", "groups-99999999999999999999", "groups"} {
		if Find(Allgather, name) != nil {
			t.Errorf("found %q", name)
		}
	}
	if a := Find(Allgather, "groups-8-ring"); a == nil || a.Name != "groups-8-ring" {
		t.Errorf("found %v", a)
	}
	if Find(Alltoall, "groups-8") != nil {
		t.Error("found an alltoall that does not exist")
	}
}
