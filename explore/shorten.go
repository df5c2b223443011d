package explore

import "context"

// breadth explores breadth-first in the order of the choices, so that the first failure has the
// shortest and lexically first path.
type breadth struct {
	walker
	visited visited
	nodes   []node
	inner   map[int32]Path    // the choices inside of the step to a node
	kept    map[int32]Machine // machines of the nodes that are not expanded yet
}

// node is a state with the step from its parent.
type node struct{ parent, picked int32 }

// maxKept limits the number of kept machines. Those of other nodes are made again.
const maxKept = 1 << 14

// shorten replaces the failure by the first of the shortest ones. It gives up when ctx or the time
// of the search is over again, or at far more states than the search has visited.
func (s *search) shorten(ctx context.Context) {
	ctx, cancel := s.withLimit(ctx)
	defer cancel()
	b := &breadth{walker: walker{space: s.space}, nodes: []node{{parent: -1}}, inner: map[int32]Path{}, kept: map[int32]Machine{}}
	b.visited.add(s.initial().Fingerprint(), 0)
	s.failure.Shortest = s.failedDepth == 0
	limit := 1<<20 + 16*int(s.visited.n.Load())
	for depth, first := 0, 0; depth < s.failedDepth && first < len(b.nodes); depth++ {
		end := len(b.nodes)
		for ; first < end; first++ {
			if ctx.Err() != nil || len(b.nodes) > limit {
				return
			}
			if f := b.expand(int32(first)); f != nil {
				s.failure = f
				return
			}
		}
	}
}

// expand takes all steps from a node. It returns the first failure.
func (b *breadth) expand(id int32) *Failure {
	m, kept := b.kept[id]
	var trail []taken
	if delete(b.kept, id); !kept {
		m, trail = b.reach(id)
	}
	b.begin(trail, m, m.Enabled(nil))
	for !b.frames[0].done() {
		m, t, err := b.advance()
		if err == nil {
			if isNew, _ := b.visited.add(m.Fingerprint(), 0); !isNew {
				b.discard(m)
				continue
			}
			err = finish(m, m.Enabled(nil))
		}
		if err != nil {
			_, trail := b.reach(id)
			return &Failure{Err: err, Path: appendTrail(nil, append(trail, t)), Shortest: true}
		}
		b.add(m, id, t)
	}
	return nil
}

// add adds a node for a new state.
func (b *breadth) add(m Machine, parent int32, t taken) {
	id := int32(len(b.nodes))
	b.nodes = append(b.nodes, node{parent, int32(t.picked)})
	if len(t.inner) > 0 {
		b.inner[id] = t.inner
	}
	if b.space.clones && len(b.kept) < maxKept {
		b.kept[id] = m
	}
}

// reach returns a machine in the state of a node, and the steps to it.
func (b *breadth) reach(id int32) (Machine, []taken) {
	if id == 0 {
		return b.space.initial(), nil
	}
	n := b.nodes[id]
	m, trail := b.reach(n.parent)
	steps := m.Enabled(nil)
	t := taken{step: steps[n.picked], picked: int(n.picked), of: len(steps), inner: b.inner[id]}
	retake(m, t)
	return m, append(trail, t)
}
