package coll

import "math"

// A leaderExchange is an allgather or an alltoall of three parts: the ranks of each node put their blocks in
// shared memory, the leaders exchange the data of their nodes by messages from and to that memory, and the
// ranks copy theirs from there. An empty message to the leader says that the blocks of a rank are there, and
// one from the leader that data has arrived: of all nodes, or of one node, which is its tag.
type leaderExchange struct {
	deposit func(c *Call, r *Round)
	// sent and received are the memory of messages to and from the leader of a node.
	sent, received func(c *Call, node int) Slice
	// pickUp copies the data from a node to Out.
	pickUp func(c *Call, r *Round, node int)
}

// phases returns the phase of the exchange with leaders in the order of nodes, and then all data at once,
// or in the order of arrival, and the data of each node when it arrives.
func (x leaderExchange) phases(inOrder bool) []phase {
	return []phase{once(func(c *Call, r *Round) {
		switch {
		case !c.isLeader():
			x.follow(c, r, inOrder)
		default:
			x.gather(c, r, inOrder)
			x.exchange(c, r, inOrder)
		}
	})}
}

// follow are the steps of a rank that is not a leader.
func (x leaderExchange) follow(c *Call, r *Round, inOrder bool) {
	leader, n := c.leader(c.myNode()), c.Nodes.count()
	if inOrder {
		n = 1 // message
	}
	for k := range n {
		at := len(r.Steps)
		r.Steps = append(r.Steps, Step{Kind: Recv, Peer: leader, Tag: k})
		if inOrder {
			x.pickUpAll(c, r)
		} else {
			x.pickUp(c, r, k)
		}
		r.Steps[at].Then = len(r.Steps) - at - 1
	}
	x.deposit(c, r)
	r.send(leader, nothing)
}

func (x leaderExchange) pickUpAll(c *Call, r *Round) {
	for k := range c.Nodes.count() {
		x.pickUp(c, r, k)
	}
}

// otherNodes calls do for each other node, from the next one on, or from the one before back.
func (c *Call) otherNodes(direction int, do func(node int)) {
	n := c.Nodes.count()
	for k := 1; k < n; k++ {
		do((c.myNode() + direction*k + n) % n)
	}
}

// gather advertises the receives of a leader, and waits for the blocks of its node.
func (x leaderExchange) gather(c *Call, r *Round, inOrder bool) {
	c.otherLocals(func(peer int) { r.recv(peer, nothing) })
	c.otherNodes(-1, func(node int) {
		at := len(r.Steps)
		r.Steps = append(r.Steps, Step{Kind: RecvAdvertised, Peer: c.leader(node), Dst: x.received(c, node)})
		if !inOrder {
			x.announce(c, r, node)
			r.Steps[at].Then = len(r.Steps) - at - 1
		}
	})
	x.deposit(c, r)
	c.otherLocals(func(peer int) { r.Steps = append(r.Steps, Step{Kind: WaitFor, Peer: peer}) })
}

// announce tells the ranks of the node that the data from a node is there, and picks up this rank's.
func (x leaderExchange) announce(c *Call, r *Round, node int) {
	c.otherLocals(func(peer int) { r.Steps = append(r.Steps, Step{Kind: Send, Peer: peer, Tag: node}) })
	x.pickUp(c, r, node)
}

// exchange sends the data of a node to the leaders of the others.
func (x leaderExchange) exchange(c *Call, r *Round, inOrder bool) {
	c.otherNodes(1, func(node int) {
		r.sendAdvertised(c.leader(node), x.sent(c, node))
		if inOrder {
			r.Steps = append(r.Steps, Step{Kind: WaitStarted})
		}
	})
	if inOrder {
		r.wait()
		c.otherLocals(func(peer int) { r.send(peer, nothing) })
		x.pickUpAll(c, r)
	} else {
		x.announce(c, r, c.myNode())
	}
}

// allgatherNodes has all blocks in shared memory, by node.
var allgatherNodes = leaderExchange{
	deposit: func(c *Call, r *Round) {
		r.copy(Slice{Shared, c.Nodes.place[c.Rank] * c.Bytes, c.Bytes}, c.ownBlock())
	},
	sent:     func(c *Call, _ int) Slice { return c.blocksOf(c.myNode()) },
	received: (*Call).blocksOf,
	pickUp: func(c *Call, r *Round, node int) {
		c.toRanks(r, c.blocksOf(node), c.Nodes.start[node], c.Nodes.start[node+1])
	},
}

// blocksOf returns the memory for a block of each rank of a node.
func (c *Call) blocksOf(node int) Slice {
	return Slice{Shared, c.Nodes.start[node] * c.Bytes, len(c.Nodes.ranks(node)) * c.Bytes}
}

// alltoallNodes has two parts of shared memory: for the blocks to each node, and from it. The message between
// two nodes has the blocks of each sender to all receivers, sender by sender.
var alltoallNodes = leaderExchange{
	deposit: func(c *Call, r *Round) {
		_, me := c.local()
		for k := range c.Nodes.count() {
			first, n := c.Nodes.start[k], len(c.Nodes.ranks(k))*c.Bytes
			c.fromRanks(r, c.blocksTo(k).from(me*n, n), first, c.Nodes.start[k+1])
		}
	},
	sent:     (*Call).blocksTo,
	received: (*Call).blocksFrom,
	pickUp: func(c *Call, r *Round, node int) {
		locals, me := c.local()
		c.toRanksFrom(r, c.blocksFrom(node).from(me*c.Bytes, 0), len(locals)*c.Bytes, c.Nodes.start[node], c.Nodes.start[node+1])
	},
}

// blocksTo returns the memory for the blocks from the ranks of this node to those of another.
func (c *Call) blocksTo(node int) Slice {
	locals, _ := c.local()
	return Slice{Shared, c.Nodes.start[node] * len(locals) * c.Bytes, len(c.Nodes.ranks(node)) * len(locals) * c.Bytes}
}

// blocksFrom returns the memory for the blocks from the ranks of a node to those of this one.
func (c *Call) blocksFrom(node int) Slice {
	s := c.blocksTo(node)
	if node != c.myNode() {
		s.Off += c.Nodes.most() * c.Size * c.Bytes
	}
	return s
}

// allgatherShared and alltoallShared are the sizes of shared memory. Tags limit the number of nodes.
func allgatherShared(c *Call) int {
	if c.Nodes.count() > MaxTag {
		return math.MaxInt
	}
	return c.Size * c.Bytes
}

func alltoallShared(c *Call) int {
	if c.Nodes.count() > MaxTag {
		return math.MaxInt
	}
	return 2 * c.Nodes.most() * c.Size * c.Bytes
}
