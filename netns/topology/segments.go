package topology

import "slices"

// Segment is a set of ports that reach each other without a router. All of them have addresses. A
// routed switch that bridges several ports into the segment is listed once, with the lowest port.
type Segment struct {
	Ports []Port
}

// Segments returns the sets of ports that reach each other without a router, in the order of their
// first cables. Ports of unrouted switches have no addresses and are left out, so that a segment
// with only such ports is empty.
func (t Topology) Segments() []Segment {
	ix := t.index()
	domains, _ := t.broadcastDomains(ix)
	var segments []Segment
	position := map[int]int{} // of a domain in segments, by its representative
	for i, c := range t.Cables {
		for side, p := range []Port{c.A, c.B} {
			root := domains.find(cableEnd(i, side))
			at, ok := position[root]
			if !ok {
				at = len(segments)
				position[root] = at
				segments = append(segments, Segment{})
			}
			if ix.addrs(p) != nil {
				segments[at].add(p)
			}
		}
	}
	return segments
}

// add adds a port. A routed switch, whose ports have no NIC, can have several ports in a segment, all
// with the same address: add keeps only the one with the lowest number.
func (s *Segment) add(p Port) {
	if p.NIC == "" {
		i := slices.IndexFunc(s.Ports, func(q Port) bool { return q.NIC == "" && q.Node == p.Node })
		if i >= 0 {
			if p.Num < s.Ports[i].Num {
				s.Ports[i] = p
			}
			return
		}
	}
	s.Ports = append(s.Ports, p)
}

// cableEnd returns the index of an end of a cable, by which broadcastDomains joins ends. side is 0 for
// end A and 1 for end B.
func cableEnd(cable, side int) int { return 2*cable + side }

// broadcastDomains returns the sets of cable ends that are connected by cables,
// by unrouted switches, or by bridges of routed switches. loop is a cable that
// closes a loop of switches, if any: frames would circulate forever.
func (t Topology) broadcastDomains(ix index) (domains disjointSets, loop *Cable) {
	domains = newDisjointSets(2 * len(t.Cables))
	firstEnd := map[string]int{} // by bridge
	for i, c := range t.Cables {
		for side, p := range []Port{c.A, c.B} {
			bridge, ok := ix.bridge(p)
			if !ok {
				continue
			}
			if first, seen := firstEnd[bridge]; seen {
				domains.join(first, cableEnd(i, side))
			} else {
				firstEnd[bridge] = cableEnd(i, side)
			}
		}
	}
	for i := range t.Cables {
		if !domains.join(cableEnd(i, 0), cableEnd(i, 1)) {
			loop = &t.Cables[i]
		}
	}
	return domains, loop
}

// disjointSets is a union-find structure over the integers from 0: the parent of each.
type disjointSets []int

// newDisjointSets returns n sets of one integer each.
func newDisjointSets(n int) disjointSets {
	sets := make(disjointSets, n)
	for i := range sets {
		sets[i] = i
	}
	return sets
}

// find returns the representative of the set that contains i, and shortens the path to it.
func (sets disjointSets) find(i int) int {
	for sets[i] != i {
		sets[i] = sets[sets[i]]
		i = sets[i]
	}
	return i
}

// join unites the sets of a and b and reports whether they were disjoint.
func (sets disjointSets) join(a, b int) bool {
	a, b = sets.find(a), sets.find(b)
	sets[max(a, b)] = min(a, b)
	return a != b
}
