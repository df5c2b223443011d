package topology

import "slices"

// Segment is a set of ports that reach each other without a router. All of them
// have addresses. A routed switch that bridges several ports into the segment
// is listed once, with the lowest port.
type Segment struct {
	Ports []Port
}

// Segments returns the segments, in the order of their first cables.
func (t Topology) Segments() []Segment {
	x := t.index()
	u, _ := t.broadcastDomains(x)
	var segments []Segment
	index := map[int]int{} // root → position in segments
	for i, c := range t.Cables {
		for side, p := range []Port{c.A, c.B} {
			root := u.find(2*i + side)
			at, ok := index[root]
			if !ok {
				at = len(segments)
				index[root] = at
				segments = append(segments, Segment{})
			}
			if x.addrs(p) != nil {
				segments[at].add(p)
			}
		}
	}
	return segments
}

// add adds a port, unless its routed switch is already in the segment.
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

// broadcastDomains unites the ports connected by a cable, by an unrouted
// switch, or by a bridge of a routed switch. loop is a cable that closes a loop
// of switches, if any: frames would circulate forever.
func (t Topology) broadcastDomains(x index) (u unions, loop *Cable) {
	u = newUnions(2 * len(t.Cables))
	first := map[string]int{} // first end at each bridge
	for i, c := range t.Cables {
		for side, p := range []Port{c.A, c.B} {
			bridge, ok := x.bridge(p)
			if !ok {
				continue
			}
			if at, seen := first[bridge]; seen {
				u.join(at, 2*i+side)
			} else {
				first[bridge] = 2*i + side
			}
		}
	}
	for i := range t.Cables {
		if !u.join(2*i, 2*i+1) {
			loop = &t.Cables[i]
		}
	}
	return u, loop
}

// unions is a union-find structure over small integers.
type unions []int

func newUnions(n int) unions {
	u := make(unions, n)
	for i := range u {
		u[i] = i
	}
	return u
}

func (u unions) find(i int) int {
	for u[i] != i {
		u[i] = u[u[i]]
		i = u[i]
	}
	return i
}

// join unites the sets of a and b and reports whether they were disjoint.
func (u unions) join(a, b int) bool {
	a, b = u.find(a), u.find(b)
	u[max(a, b)] = min(a, b)
	return a != b
}
