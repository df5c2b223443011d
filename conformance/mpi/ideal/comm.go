package ideal

import (
	"cmp"
	"slices"

	cases "github.com/fabrictest/fabrictest/conformance/mpi"
	"github.com/fabrictest/fabrictest/mpi"
)

// group is the state that the ranks of a communicator share.
type group struct {
	id          int
	ranks       []int // of the world
	boxes       []*box
	collectives map[int]*collective
}

// group creates the state of a communicator of some ranks of the world.
func (w *world) group(ranks []int) *group {
	w.ids++
	g := &group{id: w.ids, ranks: ranks, collectives: make(map[int]*collective)}
	for range ranks {
		g.boxes = append(g.boxes, &box{})
	}
	return g
}

// comm is a communicator of one rank.
type comm struct {
	p       *proc
	g       *group
	rank    int
	calls   int // collective ones so far
	handler func(rank, size int, err error) error
	freed   bool
	parent  *comm
}

func (c *comm) Rank() int { return c.rank }
func (c *comm) Size() int { return len(c.g.ranks) }

func (c *comm) Node(rank int) int {
	if c.p.w.defects.NodeIsRank {
		return rank
	}
	return c.g.ranks[rank] / c.p.w.PerNode
}

func (c *comm) SetErrorHandler(h func(rank, size int, err error) error) {
	c.handler = h
	if c.p.w.defects.HandlerOfParent && c.parent != nil {
		c.parent.handler = h
	}
}

// fail returns the error of a call, after the error handler.
func (c *comm) fail(call string, err error) error {
	if err == nil {
		return nil
	}
	defects := c.p.w.defects
	if defects.ErrorWedges {
		c.p.failure = err
	}
	if defects.ErrorsWithoutClass {
		err = mpi.ErrFinalized
	}
	if !defects.ErrorsWithoutCall {
		err = &mpi.Error{Op: call, Rank: c.rank, Comm: "c", Err: err}
	}
	if c.handler != nil && !defects.HandlerIgnored {
		return c.handler(c.rank, c.Size(), err)
	}
	return err
}

// usable begins a call on the communicator, and fails if it was freed.
func (c *comm) usable() error {
	c.p.enter()
	if c.freed && !c.p.w.defects.FreedIsUsable {
		return mpi.ErrComm
	}
	return c.p.failure
}

// part is a rank's argument of a call that creates communicators.
type part struct{ color, key, rank int }

func (c *comm) Split(color, key int) (cases.Comm, error) {
	if err := c.usable(); err != nil {
		return nil, c.fail("Split", err)
	}
	if color < 0 && color != mpi.Undefined && !c.p.w.defects.ColorsUnchecked {
		return nil, c.fail("Split", mpi.ErrArg)
	}
	return c.split(color, key)
}

func (c *comm) SplitNode(key int) (cases.Comm, error) {
	if err := c.usable(); err != nil {
		return nil, c.fail("SplitNode", err)
	}
	node := c.Node(c.rank)
	if c.p.w.defects.NodesMixed {
		node = 0
	}
	return c.split(node, key)
}

// split is collective: it makes a communicator for each colour, ordered by key.
func (c *comm) split(color, key int) (cases.Comm, error) {
	defects := c.p.w.defects
	if defects.SplitDropsReceives {
		c.g.boxes[c.rank].posted = nil
	}
	if defects.UndefinedJoins && color == mpi.Undefined {
		color = 0
	}
	if defects.ColorsMixed && color >= 0 {
		color = 0
	}
	if defects.KeysIgnored {
		key = 0
	}
	if defects.NegativeKeysLast && key < 0 {
		key = 1000 - key
	}
	m := c.join(part{color, key, c.rank})
	c.p.blockUntil("the others at Split", m.complete)
	if color == mpi.Undefined {
		return nil, nil
	}
	var members []part
	for _, in := range m.in {
		if of := in.(part); of.color == color {
			members = append(members, of)
		}
	}
	slices.SortStableFunc(members, func(a, b part) int {
		if defects.TiesReversed && a.key == b.key {
			return b.rank - a.rank
		}
		return cmp.Compare(a.key, b.key)
	})
	if m.made == nil {
		m.made = make(map[int]*group)
	}
	g := m.made[color]
	if g == nil {
		var ranks []int
		for _, of := range members {
			ranks = append(ranks, c.g.ranks[of.rank])
		}
		g = c.p.w.group(ranks)
		m.made[color] = g
	}
	return c.child(g, slices.IndexFunc(members, func(of part) bool { return of.rank == c.rank })), nil
}

// child returns a communicator that was made of c.
func (c *comm) child(g *group, rank int) *comm {
	child := &comm{p: c.p, g: g, rank: rank, handler: c.handler, parent: c}
	if c.p.w.defects.HandlerNotInherited {
		child.handler = nil
	}
	return child
}

func (c *comm) Dup() (cases.Comm, error) {
	if err := c.usable(); err != nil {
		return nil, c.fail("Dup", err)
	}
	defects := c.p.w.defects
	m := c.join(nil)
	c.p.blockUntil("the others at Dup", m.complete)
	if m.made == nil {
		ranks := slices.Clone(c.g.ranks)
		if defects.DupReverses {
			slices.Reverse(ranks)
		}
		g := c.p.w.group(ranks)
		if defects.DupSharesContext {
			g.boxes, g.id = c.g.boxes, c.g.id
		}
		m.made = map[int]*group{0: g}
	}
	g := m.made[0]
	return c.child(g, slices.Index(g.ranks, c.p.rank)), nil
}

func (c *comm) Free() error {
	if err := c.usable(); err != nil {
		return c.fail("Free", err)
	}
	defects := c.p.w.defects
	if defects.FreeDrops {
		c.g.boxes[c.rank].posted = nil
	}
	if defects.FreeBreaksParent && c.parent != nil {
		c.parent.freed = true
	}
	c.freed = true
	return nil
}
