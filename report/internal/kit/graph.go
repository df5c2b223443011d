package kit

import (
	"fmt"
	"slices"
	"strings"

	"github.com/fabrictest/fabrictest/netns/topology"
)

// graph is the layout of a fabric.
type graph struct {
	hosts    []*node
	switches []*node
	edges    []edge
	w, h     float64
}

type node struct {
	Part
	name       string
	host       bool
	tier, rail int
	folded     int // number of hosts that this node represents, 0 for one host
	x, y       float64
	// dx and dy are the direction of the label.
	dx, dy float64
	small  bool
	more   float64 // additional height
}

type edge struct {
	Part
	a, b *node
	nth  int // index among parallel edges
	of   int
}

// newGraph returns the hosts, switches and cables of a topology as nodes and edges.
func newGraph(t *topology.Topology, looks Looks) *graph {
	g := &graph{}
	by := map[string]*node{}
	for i := range t.Switches {
		s := &t.Switches[i]
		n := &node{name: s.Name, tier: max(1, s.Tier), rail: s.Rail, Part: Part{Title: s.Name}}
		by[s.Name] = n
		g.switches = append(g.switches, n)
	}
	for i := range t.Hosts {
		n := &node{name: t.Hosts[i].Name, host: true, Part: looks.Host(&t.Hosts[i])}
		by[n.name] = n
		g.hosts = append(g.hosts, n)
	}
	for i := range t.Cables {
		c := &t.Cables[i]
		a, b := by[c.A.Node], by[c.B.Node]
		if a != nil && b != nil { // ignore cables with an unknown end
			g.edges = append(g.edges, edge{Part: looks.Cable(c), a: a, b: b})
		}
	}
	return g
}

// number counts parallel edges, which are drawn side by side.
func (g *graph) number() {
	type pair struct{ a, b *node }
	count := map[pair]int{}
	for i := range g.edges {
		e := &g.edges[i]
		e.nth = count[pair{e.a, e.b}]
		count[pair{e.a, e.b}]++
	}
	for i := range g.edges {
		e := &g.edges[i]
		e.of = count[pair{e.a, e.b}]
	}
}

// fold merges the hosts of each switch that have no events, if there are more than limit,
// and the others too once limit is reached.
func (g *graph) fold(limit int) {
	defer g.number()
	if len(g.hosts) <= limit {
		return
	}
	trouble := map[*node]State{}
	home := map[*node]*node{} // the first switch of a host
	for i := range g.edges {
		e := &g.edges[i]
		for _, h := range []*node{e.a, e.b} {
			if h.host {
				trouble[h] = max(trouble[h], e.State, h.State)
				if other := e.other(h); home[h] == nil && !other.host {
					home[h] = other
				}
			}
		}
	}
	into := map[*node]*node{} // merged node of a host
	fold := map[*node]*node{} // merged node of a switch
	var kept []*node
	for _, h := range g.hosts {
		s := home[h]
		if s == nil || trouble[h] != Fine && len(kept) < limit {
			kept = append(kept, h)
			continue
		}
		f := fold[s]
		if f == nil {
			f = &node{host: true}
			fold[s] = f
			kept = append(kept, f)
		}
		f.folded++
		f.State = max(f.State, h.State)
		f.name = fmt.Sprintf("%d hosts", f.folded)
		f.Title = f.name + " of " + s.name
		into[h] = f
	}
	g.hosts = kept
	g.edges = foldEdges(g.edges, into)
}

// foldEdges replaces nodes by those they are folded into, and merges the edges between two nodes.
func foldEdges(edges []edge, into map[*node]*node) []edge {
	type pair struct{ a, b *node }
	var out []edge
	seen := map[pair]int{}
	for _, e := range edges {
		folded := false
		if f := into[e.a]; f != nil {
			e.a, folded = f, true
		}
		if f := into[e.b]; f != nil {
			e.b, folded = f, true
		}
		if !folded {
			out = append(out, e)
			continue
		}
		e.Label, e.Title = "", "several links"
		if at, ok := seen[pair{e.a, e.b}]; ok {
			out[at].State = max(out[at].State, e.State)
			continue
		}
		seen[pair{e.a, e.b}] = len(out)
		out = append(out, e)
	}
	return out
}

func (e *edge) other(n *node) *node {
	if e.a == n {
		return e.b
	}
	return e.a
}

// labels returns the drawn names. Short labels omit the common prefix of all host names:
// "17" for "host17".
func (g *graph) labels(short bool) map[*node]string {
	labels := map[*node]string{}
	prefix := ""
	if short && len(g.hosts) > 0 {
		prefix = strings.TrimRight(g.hosts[0].name, "0123456789")
		if slices.ContainsFunc(g.hosts, func(n *node) bool { return n.folded == 0 && !strings.HasPrefix(n.name, prefix) }) {
			prefix = ""
		}
	}
	for _, n := range g.hosts {
		name := n.name
		if n.folded == 0 && len(name) > len(prefix) {
			name = name[len(prefix):]
		}
		labels[n] = Cut(name, 16)
	}
	for _, n := range g.switches {
		labels[n] = Cut(n.name, 16)
	}
	return labels
}
