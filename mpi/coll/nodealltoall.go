package coll

// An alltoall that knows the nodes: ranks copy their blocks to shared memory, ordered by the node of the
// receiver, and the leaders exchange one message with each other node: the blocks of a sender follow each
// other, those of its node's senders too. Received messages are behind all blocks that are sent.

// smpAlltoallBytes is the size of shared memory.
func smpAlltoallBytes(c *Call) int { return 2 * c.Nodes.most() * allBlocks(c) }

// alltoallMessage returns the shared memory of the message from this node to another or from there, of
// count blocks from one on.
func (c *Call) alltoallMessage(received bool, node, first, count int) Slice {
	ranks, _ := c.local()
	at := c.Nodes.start[node]*len(ranks) + first
	if received {
		at += c.Size * len(ranks)
	}
	return Slice{Shared, at * c.Bytes, count * c.Bytes}
}

// exchangeNodes copies the blocks of this rank to shared memory, and at the leader exchanges messages with
// a batch of other nodes.
var exchangeNodes = phase{
	func(c *Call) int {
		if !c.isLeader() {
			return 1
		}
		return max(1, batches(c.Nodes.count()-1, maxAtOnce))
	},
	func(c *Call, i int, r *Round) {
		n, mine := c.Nodes, c.myNode()
		first, end := batch(i, n.count()-1, maxAtOnce)
		ranks, me := c.local()
		all := func(node int) int { return len(ranks) * len(n.ranks(node)) }
		if c.isLeader() {
			for k := first; k < end; k++ {
				from := (mine - k + n.count()) % n.count()
				r.recvAdvertised(c.leader(from), c.alltoallMessage(true, from, 0, all(from)))
			}
		}
		if i == 0 {
			for node := range n.count() {
				count := len(n.ranks(node))
				c.fromRanks(r, c.alltoallMessage(false, node, me*count, count), n.start[node], n.start[node+1])
			}
			if !c.isLeader() {
				r.send(c.leader(mine), nothing)
				return
			}
			c.otherLocals(func(peer int) { r.recv(peer, nothing) })
			c.otherLocals(r.waitFor)
		}
		for k := first; k < end; k++ {
			to := (mine + k) % n.count()
			r.sendAdvertised(c.leader(to), c.alltoallMessage(false, to, 0, all(to)))
		}
	},
}

// takeBlocks copies the blocks for this rank from shared memory, after a notification of the leader.
func takeBlocks(c *Call, r *Round) {
	n, mine := c.Nodes, c.myNode()
	ranks, me := c.local()
	if c.isLeader() {
		c.otherLocals(func(peer int) { r.send(peer, nothing) })
	} else {
		r.recv(c.leader(mine), nothing)
		r.wait()
	}
	for node := range n.count() {
		for k, rank := range n.ranks(node) {
			r.copy(c.block(Out, rank), c.alltoallMessage(node != mine, node, k*len(ranks)+me, 1))
		}
	}
}

// fromRanks copies the blocks of In for the ranks at the places from first to end to dst, one after the
// other.
func (c *Call) fromRanks(r *Round, dst Slice, first, end int) {
	for k, rank := range c.Nodes.order[first:end] {
		r.copy(dst.from(k*c.Bytes, c.Bytes), c.block(In, rank))
	}
}
