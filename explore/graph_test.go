package explore

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
)

// graph is a random directed graph, whose nodes are the states of a machine. A machine that
// replays does not implement Cloner.
type graph struct {
	next     [][]edge
	failing  map[int]bool
	deadlock map[int]bool // of nodes without edges
	inner    bool         // steps choose their target inside
}

type edge struct {
	to       int
	progress bool
}

var errFailing = errors.New("failing node")

func randomGraph(seed uint64, nodes int) *graph {
	r := rand.New(rand.NewPCG(seed, 0))
	g := &graph{next: make([][]edge, nodes), failing: map[int]bool{}, deadlock: map[int]bool{}, inner: r.IntN(2) == 0}
	for from := range g.next {
		for range r.IntN(4) {
			to := r.IntN(nodes)
			g.next[from] = append(g.next[from], edge{to, to > from == (r.IntN(10) > 0)})
		}
	}
	for range r.IntN(3) {
		g.failing[1+r.IntN(nodes-1)] = true
	}
	if r.IntN(3) == 0 {
		g.deadlock[1+r.IntN(nodes-1)] = true
	}
	return g
}

// replayedNode is a machine in a node of a graph.
type replayedNode struct {
	*graph
	at         int
	progressed bool
	chooser    Chooser
}

func (n *replayedNode) SetChooser(c Chooser) { n.chooser = c }
func (n *replayedNode) Progressed() bool     { return n.progressed }
func (n *replayedNode) Fingerprint() [16]byte {
	return Hash(binary.BigEndian.AppendUint64(nil, uint64(n.at)))
}

func (n *replayedNode) Enabled(into []Step) []Step {
	if n.inner && len(n.next[n.at]) > 0 {
		return append(into, Step{Kind: "jump"})
	}
	for i := range n.next[n.at] {
		into = append(into, Step{Kind: "edge", A: int32(i)})
	}
	return into
}

func (n *replayedNode) Take(s Step) error {
	i := int(s.A)
	if s.Kind == "jump" {
		i = n.chooser.Choose("target", len(n.next[n.at]))
	}
	e := n.next[n.at][i]
	n.at, n.progressed = e.to, e.progress
	return nil
}

func (n *replayedNode) Check() error {
	if n.failing[n.at] {
		return fmt.Errorf("node %d: %w", n.at, errFailing)
	}
	return nil
}

func (n *replayedNode) Finish() error {
	if n.deadlock[n.at] {
		return ErrDeadlock
	}
	return nil
}

// clonedNode is a machine that can be copied.
type clonedNode struct{ replayedNode }

func (n *clonedNode) Clone(reuse Machine) Machine {
	c, _ := reuse.(*clonedNode)
	if c == nil {
		c = new(clonedNode)
	}
	*c = *n
	return c
}

func (g *graph) replayed() Machine { return &replayedNode{graph: g} }
func (g *graph) cloned() Machine   { return &clonedNode{replayedNode{graph: g}} }

// reference are the results of simple algorithms for a graph.
type reference struct {
	Counts
	path     Path // of the first shortest failure; nil if there is none
	livelock bool
}

func (g *graph) reference() (ref reference) {
	paths := map[int]Path{0: nil} // first shortest paths
	for queue := []int{0}; len(queue) > 0; queue = queue[1:] {
		from := queue[0]
		for i, e := range g.next[from] {
			path := append(append(Path(nil), paths[from]...), g.choices(from, i)...)
			if g.failing[e.to] || g.deadlock[e.to] && len(g.next[e.to]) == 0 {
				return reference{path: path}
			}
			if _, seen := paths[e.to]; !seen {
				paths[e.to] = path
				queue = append(queue, e.to)
			}
			ref.Edges++
		}
		if len(g.next[from]) == 0 {
			ref.Runs++
		}
	}
	ref.States = len(paths)
	for node := range paths {
		ref.livelock = ref.livelock || g.reaches(node, node, map[int]bool{})
	}
	return ref
}

// choices are those of the path for an edge.
func (g *graph) choices(from, i int) Path {
	n := len(g.next[from])
	switch {
	case !g.inner:
		return Path{{"edge", i, n}}
	case n == 1:
		return Path{{"jump", 0, 1}}
	}
	return Path{{"jump", 0, 1}, {"target", i, n}}
}

// reaches reports whether edges without progress lead from one node to another.
func (g *graph) reaches(from, to int, seen map[int]bool) bool {
	for _, e := range g.next[from] {
		if e.progress || seen[e.to] {
			continue
		}
		seen[e.to] = true
		if e.to == to || g.reaches(e.to, to, seen) {
			return true
		}
	}
	return false
}
