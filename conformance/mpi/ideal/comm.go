package ideal

import (
	"cmp"
	"slices"

	cases "github.com/fabrictest/fabrictest/conformance/mpi"
	"github.com/fabrictest/fabrictest/mpi"
)

// group is the state that the ranks of a communicator share.
type group struct {
	ranks       []int // of the world
	queues      []*recvQueues
	collectives map[int]*collective
}

// newGroup creates the state of a communicator of some ranks of the world.
func (w *world) newGroup(ranks []int) *group {
	g := &group{ranks: ranks, collectives: make(map[int]*collective)}
	for range ranks {
		g.queues = append(g.queues, &recvQueues{})
	}
	return g
}

// comm is a communicator, as one of its ranks sees it.
type comm struct {
	*proc
	group           *group
	rank            int // in the communicator
	collectiveCalls int // so far
	handler         func(rank, size int, err error) error
	freed           bool
	parent          *comm
}

func (c *comm) Rank() int { return c.rank }
func (c *comm) Size() int { return len(c.group.ranks) }

// Node returns the host of a rank. The defect NodeIsRank returns the rank.
func (c *comm) Node(rank int) int {
	if c.Defects.NodeIsRank {
		return rank
	}
	return c.group.ranks[rank] / c.PerNode
}

// SetErrorHandler is MPI_Comm_set_errhandler. The defect HandlerOfParent also changes the parent.
func (c *comm) SetErrorHandler(h func(rank, size int, err error) error) {
	c.handler = h
	if c.Defects.HandlerOfParent && c.parent != nil {
		c.parent.handler = h
	}
}

// hasRank reports whether the communicator has a rank.
func (c *comm) hasRank(rank int) bool { return rank >= 0 && rank < c.Size() }

// unless returns the error of a call that breaks a rule, or nil if a defect accepts the call.
func unless(defect bool, err error) error {
	if defect {
		return nil
	}
	return err
}

// anyCommName is the name of all communicators in errors: no case checks it.
const anyCommName = "c"

// fail returns the error of a call, or what the error handler returns for it. Defects (deliberate
// errors) falsify the error, ignore the handler, or make all later calls fail.
func (c *comm) fail(call string, err error) error {
	if err == nil {
		return nil
	}
	if c.Defects.ErrorWedges {
		c.stickyError = err // all later calls fail with it
	}
	if c.Defects.ErrorsWithoutClass {
		err = mpi.ErrFinalized // a class that no case expects
	}
	if !c.Defects.ErrorsWithoutCall {
		err = &mpi.Error{Op: call, Rank: c.rank, Comm: anyCommName, Err: err}
	}
	if c.handler != nil && !c.Defects.HandlerIgnored {
		return c.handler(c.rank, c.Size(), err)
	}
	return err
}

// startCall begins an MPI call: it may let other ranks run first. It fails if the communicator was
// freed, or if a defect makes all calls fail after an error.
func (c *comm) startCall() error {
	c.yieldSometimes()
	if c.freed && !c.Defects.FreedIsUsable {
		return mpi.ErrComm
	}
	return c.stickyError
}

// splitArgs are the arguments of one rank in Split or SplitNode.
type splitArgs struct{ color, key, rank int }

// Split is MPI_Comm_split. The defect ColorsUnchecked accepts negative colours.
func (c *comm) Split(color, key int) (cases.Comm, error) {
	if err := c.startCall(); err != nil {
		return nil, c.fail("Split", err)
	}
	if color < 0 && color != mpi.Undefined && !c.Defects.ColorsUnchecked {
		return nil, c.fail("Split", mpi.ErrArg)
	}
	return c.split(color, key)
}

// SplitNode is MPI_Comm_split_type by host. The defect NodesMixed puts all hosts together.
func (c *comm) SplitNode(key int) (cases.Comm, error) {
	if err := c.startCall(); err != nil {
		return nil, c.fail("SplitNode", err)
	}
	node := c.Node(c.rank)
	if c.Defects.NodesMixed {
		node = 0
	}
	return c.split(node, key)
}

// split is collective: it makes a communicator for each colour, with its ranks ordered by key. It
// returns the caller's; nil for the colour Undefined. Defects (deliberate errors) change the
// colour, the key or the order, or drop posted receives.
func (c *comm) split(color, key int) (cases.Comm, error) {
	if c.Defects.SplitDropsReceives {
		c.group.queues[c.rank].posted = nil
	}
	if c.Defects.UndefinedJoins && color == mpi.Undefined {
		color = 0
	}
	if c.Defects.ColorsMixed && color >= 0 {
		color = 0
	}
	if c.Defects.KeysIgnored {
		key = 0
	}
	if c.Defects.NegativeKeysLast && key < 0 {
		key = 1000 - key // above all keys of the cases
	}
	coll := c.joinAndWait("Split", splitArgs{color, key, c.rank})
	if color == mpi.Undefined {
		return nil, nil
	}
	var members []splitArgs
	for _, part := range coll.parts {
		if member := part.(splitArgs); member.color == color {
			members = append(members, member)
		}
	}
	slices.SortStableFunc(members, func(a, b splitArgs) int {
		if c.Defects.TiesReversed && a.key == b.key {
			return b.rank - a.rank
		}
		return cmp.Compare(a.key, b.key)
	})
	g := coll.groups[color]
	if g == nil { // the caller is the first of its colour to continue after the wait
		var ranks []int
		for _, member := range members {
			ranks = append(ranks, c.group.ranks[member.rank])
		}
		g = c.newGroup(ranks)
		coll.groups[color] = g
	}
	return c.child(g, slices.IndexFunc(members, func(member splitArgs) bool { return member.rank == c.rank })), nil
}

// child returns the communicator of a new group, in which the caller has this rank. It inherits the
// error handler of c.
func (c *comm) child(g *group, rank int) *comm {
	child := &comm{proc: c.proc, group: g, rank: rank, handler: c.handler, parent: c}
	if c.Defects.HandlerNotInherited {
		child.handler = nil
	}
	return child
}

// Dup is MPI_Comm_dup. The first rank that continues after the wait makes the group for all ranks.
func (c *comm) Dup() (cases.Comm, error) {
	if err := c.startCall(); err != nil {
		return nil, c.fail("Dup", err)
	}
	coll := c.joinAndWait("Dup", nil)
	if coll.groups[0] == nil {
		ranks := slices.Clone(c.group.ranks)
		if c.Defects.DupReverses {
			slices.Reverse(ranks)
		}
		g := c.newGroup(ranks)
		if c.Defects.DupSharesContext {
			g.queues = c.group.queues
		}
		coll.groups[0] = g
	}
	g := coll.groups[0]
	return c.child(g, slices.Index(g.ranks, c.proc.rank)), nil
}

// Free is MPI_Comm_free. Defects (deliberate errors) drop posted receives, or free the parent, too.
func (c *comm) Free() error {
	if err := c.startCall(); err != nil {
		return c.fail("Free", err)
	}
	if c.Defects.FreeDrops {
		c.group.queues[c.rank].posted = nil
	}
	if c.Defects.FreeBreaksParent && c.parent != nil {
		c.parent.freed = true
	}
	c.freed = true
	return nil
}
