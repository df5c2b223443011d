package coll

import (
	"fmt"
	"strings"
	"testing"
)

// Table 5.1 of Qian 2010: the complexity for each node of four nodes with four ranks each, with blocks of M
// bytes. aM_bS are b messages of aM bytes one after the other, and aM_bC at once; aM_bW and aM_bR are writes
// to and reads from shared memory of aM bytes by b ranks each. The memory of the versions that copy less is
// not in the table.
func TestNodeAllgathersHaveThePublishedComplexity(t *testing.T) {
	for _, c := range []struct{ name, network, first, last string }{
		{"groups-1-ring", "4M_3S", "1M_4W + 4M_1R", "16M_1W + 16M_4R"},
		{"groups-1", "4M_3C", "1M_4W + 4M_1R", "16M_1W + 16M_4R"},
		{"gather-groups", "4M_3C", "1M_4W + 4M_4R", "16M_1W + 16M_4R"},
		{"groups-2", "2M_6C", "1M_4W + 2M_2R", "8M_2W + 16M_4R"},
		{"groups-4", "1M_12C", "", "4M_4W + 16M_4R"},
		{"groups-1-direct", "4M_3C", "1M_4W + 4M_1R", "16M_1W + 16M_3R"},
		{"groups-1-ring-direct", "4M_3S", "1M_4W + 4M_1R", "16M_1W + 16M_3R"},
		{"gather-groups-direct", "4M_3C", "1M_4W + 4M_4R", "16M_1W + 16M_3R"},
		{"groups-2-direct", "2M_6C", "1M_4W + 2M_2R", "8M_2W + 8M_2R + 16M_2R"},
		{"groups-4-direct", "1M_12C", "", "4M_4W + 12M_4R"},
		{"gather-groups-shared", "4M_3C", "1M_4W", "16M_4R"},
		{"groups-2-shared", "2M_6C", "1M_4W", "16M_4R"},
		{"groups-4-shared", "1M_12C", "1M_4W", "16M_4R"},
	} {
		for node := range 4 {
			v := volumesOf(Find(Allgather, c.name), node)
			if v.network != c.network || v.shared[0] != c.first || v.shared[1] != c.last {
				t.Errorf("%s has %+v at node %d, want %+v", c.name, v, node, c)
			}
		}
	}
}

// volumes are the messages that a node sends to others, and its accesses to shared memory by phase.
type volumes struct {
	network string
	shared  [2]string
}

// volumesOf returns those of a node of four with four ranks each.
func volumesOf(alg *Algorithm, node int) (v volumes) {
	const m, local = 100, 4
	nodes := NewNodes(4*local, func(rank int) int { return rank / local })
	var sent [][]int // bytes of messages to other nodes, by round
	for k, p := range alg.phases {
		var written, read [local]int
		for i := range local {
			c := &Call{Op: Allgather, Rank: node*local + i, Size: 4 * local, Bytes: m, Nodes: nodes}
			for number := range p.rounds(c) {
				var r Round
				p.round(c, number, &r)
				for _, s := range r.Steps {
					switch n := s.Src.Len * s.Count / m; {
					case s.Kind == SendAdvertised && nodes.node[s.Peer] != node:
						at := number + s.Tag // in a ring each message is sent after the one before it
						for len(sent) <= at {
							sent = append(sent, nil)
						}
						sent[at] = append(sent[at], s.Src.Len/m)
					case s.Kind == Copy && s.Dst.Buf == Shared:
						written[i] += n
					case s.Kind == Copy && s.Src.Buf == Shared:
						read[i] += n
					}
				}
			}
		}
		v.shared[k] = strings.Trim(counted(written[:], "W")+" + "+counted(read[:], "R"), " +")
	}
	if len(sent) == 1 {
		v.network = counted(sent[0], "C")
		return v
	}
	var each []int
	for _, round := range sent {
		each = append(each, round...)
	}
	if len(each) == len(sent) { // one in each round
		v.network = counted(each, "S")
	}
	return v
}

// counted says how often each number is in a list, as the table does; 0 is left out.
func counted(list []int, letter string) string {
	var all []string
	for done := map[int]bool{0: true}; len(list) > 0; list = list[1:] {
		if n := list[0]; !done[n] {
			done[n] = true
			count := 0
			for _, other := range list {
				if other == n {
					count++
				}
			}
			all = append(all, fmt.Sprintf("%dM_%d%s", n, count, letter))
		}
	}
	return strings.Join(all, " + ")
}
