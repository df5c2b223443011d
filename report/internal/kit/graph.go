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
	name        string
	host        bool
	tier, rail  int
	mergedHosts int // number of hosts that this node represents, 0 for one host
	x, y        float64
	// dx and dy are the direction of the label.
	dx, dy      float64
	small       bool
	extraHeight float64 // for parallel cables
}

type edge struct {
	Part
	a, b     *node
	nth      int // index among parallel edges
	parallel int // number of edges between a and b
}

// newGraph returns the hosts, switches and cables of a topology as nodes and edges, without
// positions. The painter gives the state, title and label of hosts and cables.
func newGraph(t *topology.Topology, painter Painter) *graph {
	g := &graph{}
	byName := map[string]*node{}
	for i := range t.Switches {
		s := &t.Switches[i]
		// A switch without a tier is drawn as a leaf.
		n := &node{name: s.Name, tier: max(1, s.Tier), rail: s.Rail, Part: Part{Title: s.Name}}
		byName[s.Name] = n
		g.switches = append(g.switches, n)
	}
	for i := range t.Hosts {
		n := &node{name: t.Hosts[i].Name, host: true, Part: painter.Host(&t.Hosts[i])}
		byName[n.name] = n
		g.hosts = append(g.hosts, n)
	}
	for i := range t.Cables {
		c := &t.Cables[i]
		a, b := byName[c.A.Node], byName[c.B.Node]
		if a != nil && b != nil { // ignore cables with an unknown end
			g.edges = append(g.edges, edge{Part: painter.Cable(c), a: a, b: b})
		}
	}
	return g
}

// numberParallelEdges numbers edges between the same two nodes, which are drawn side by side.
func (g *graph) numberParallelEdges() {
	type pair struct{ a, b *node }
	count := map[pair]int{}
	for i := range g.edges {
		e := &g.edges[i]
		e.nth = count[pair{e.a, e.b}]
		count[pair{e.a, e.b}]++
	}
	for i := range g.edges {
		e := &g.edges[i]
		e.parallel = count[pair{e.a, e.b}]
	}
}

// mergeHosts replaces the hosts of each switch by one node if there are more than limit hosts.
// Hosts without a switch, and up to limit hosts whose state or cable is not Fine, stay separate. It
// also numbers the parallel edges that result.
func (g *graph) mergeHosts(limit int) {
	defer g.numberParallelEdges()
	if len(g.hosts) <= limit {
		return
	}
	worst := map[*node]State{} // of a host and its cables
	home := map[*node]*node{}  // the first switch of a host
	for i := range g.edges {
		e := &g.edges[i]
		for _, h := range []*node{e.a, e.b} {
			if h.host {
				worst[h] = max(worst[h], e.State, h.State)
				if other := e.other(h); home[h] == nil && !other.host {
					home[h] = other
				}
			}
		}
	}
	mergedInto := map[*node]*node{} // merged node, by host
	mergedOf := map[*node]*node{}   // merged node, by switch
	var kept []*node
	for _, h := range g.hosts {
		s := home[h]
		if s == nil || worst[h] != Fine && len(kept) < limit {
			kept = append(kept, h)
			continue
		}
		merged := mergedOf[s]
		if merged == nil {
			merged = &node{host: true}
			mergedOf[s] = merged
			kept = append(kept, merged)
		}
		merged.mergedHosts++
		merged.State = max(merged.State, h.State)
		merged.name = fmt.Sprintf("%d hosts", merged.mergedHosts)
		merged.Title = merged.name + " of " + s.name
		mergedInto[h] = merged
	}
	g.hosts = kept
	g.edges = mergeEdges(g.edges, mergedInto)
}

// mergeEdges replaces hosts by the merged nodes in mergedInto, and merges the edges between a
// merged node and another node into one with the worst state.
func mergeEdges(edges []edge, mergedInto map[*node]*node) []edge {
	type pair struct{ a, b *node }
	var out []edge
	seen := map[pair]int{}
	for _, e := range edges {
		changed := false
		if merged := mergedInto[e.a]; merged != nil {
			e.a, changed = merged, true
		}
		if merged := mergedInto[e.b]; merged != nil {
			e.b, changed = merged, true
		}
		if !changed {
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

// other returns the end of the edge that is not n.
func (e *edge) other(n *node) *node {
	if e.a == n {
		return e.b
	}
	return e.a
}

// labels returns the names to draw, by node. Short labels omit the common prefix of all host
// names: "17" for "host17".
func (g *graph) labels(short bool) map[*node]string {
	labels := map[*node]string{}
	prefix := ""
	if short && len(g.hosts) > 0 {
		prefix = strings.TrimRight(g.hosts[0].name, "0123456789")
		if slices.ContainsFunc(g.hosts, func(n *node) bool { return n.mergedHosts == 0 && !strings.HasPrefix(n.name, prefix) }) {
			prefix = ""
		}
	}
	for _, n := range g.hosts {
		name := n.name
		if n.mergedHosts == 0 && len(name) > len(prefix) {
			name = name[len(prefix):]
		}
		labels[n] = Cut(name, 16)
	}
	for _, n := range g.switches {
		labels[n] = Cut(n.name, 16)
	}
	return labels
}
