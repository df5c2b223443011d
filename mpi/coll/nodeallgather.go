package coll

import "math"

// Allgathers that know the nodes (Qian 2010, chapters 4 and 5) have three phases. The ranks of a node are
// divided into groups; the first rank of a group is its master, and collects the blocks of the group in
// memory that the node shares. Masters exchange them with those of other nodes. Each master gives what it
// has to all ranks of its node, again through shared memory. Masters advertise their receives when they
// arrive, so that the others can write data at once.

// nodeAllgather describes such an algorithm.
type nodeAllgather struct {
	groups int // of each node
	// rotating says that each node has one group, but another rank of it exchanges messages with each other
	// node.
	rotating bool
	exchange nodeExchange
	// memory is the buffer that messages are sent from and received in: Scratch, Out, or Shared.
	memory Buffer
	// overlaps says that ranks copy the blocks of their own node while the messages between nodes are on
	// their way. There is one group.
	overlaps bool
}

// nodeExchange is how masters exchange the blocks of nodes.
type nodeExchange uint8

const (
	toAll     nodeExchange = iota // each master sends to all others at once
	byPorts                       // to as many others at a time as it has ports
	alongRing                     // one after the other
	bruck                         // with so many ports; the first node in Shared is this one
)

// nodeAllgathers are the algorithms. The versions that receive in shared memory, and those that do so in
// the buffers of masters, copy less than those with a buffer between.
var nodeAllgathers = []*Algorithm{
	nodeAllgather{groups: 1, exchange: byPorts, memory: Shared, overlaps: true}.algorithm("smp-direct"),
	nodeAllgather{groups: 1, exchange: bruck, memory: Shared, overlaps: true}.algorithm("smp-bruck"),
	{
		Op: Allgather, Name: "smp-gather-bcast", Needs: EqualBlocks | KnownNodes,
		phases:  []phase{sharedGather, binomialBcast.amongLeaders().ofAllBlocks(), sharedBcast.withinNode().ofAllBlocks()},
		scratch: landingScratch, shared: allBlocks,
	},
	{
		Op: Allgather, Name: "smp-gather-multicast", Needs: EqualBlocks | KnownNodes | Multicasts,
		phases: []phase{sharedGather, multicastBlocks}, scratch: landingScratch, shared: slotBytes,
	},
	groupsAllgather("groups-1-ring"), groupsAllgather("groups-1-ring-direct"),
	groupsAllgather("groups-1"), groupsAllgather("groups-1-direct"),
	nodeAllgather{groups: 1, rotating: true}.algorithm("gather-groups"),
	nodeAllgather{groups: 1, rotating: true, memory: Shared}.algorithm("gather-groups-shared"),
	nodeAllgather{groups: 1, rotating: true, memory: Out}.algorithm("gather-groups-direct"),
	groupsAllgather("groups-2"), groupsAllgather("groups-2-shared"), groupsAllgather("groups-2-direct"),
	groupsAllgather("groups-4"), groupsAllgather("groups-4-shared"), groupsAllgather("groups-4-direct"),
}

// algorithm returns the algorithm with a name.
func (a nodeAllgather) algorithm(name string) *Algorithm {
	if a.memory == In {
		a.memory = Scratch
	}
	ring := a.exchange == alongRing
	x := &Algorithm{
		Op: Allgather, Name: name, Needs: EqualBlocks | KnownNodes, perNode: a.groups,
		Unbuffered: a.exchange == byPorts || a.exchange == bruck,
		phases:     []phase{{a.rounds, a.round}, once(a.share)},
		shared: func(c *Call) int {
			if ring && c.Nodes.count() > MaxTag {
				return math.MaxInt
			}
			return allBlocks(c) + slotBytes(c)
		},
	}
	switch a.memory {
	case Scratch:
		x.scratch = allBlocks
	case Out:
		x.Needs |= ConsecutiveRanks
	}
	return x
}

// group returns the group of this rank, and the indices on its node of the group's first rank and of the
// end.
func (a nodeAllgather) group(c *Call) (group, first, end int) {
	_, me := c.local()
	for ; ; group++ {
		if first, end = a.members(c, c.myNode(), group); me < end {
			return group, first, end
		}
	}
}

// members returns the indices on a node of the first rank of a group and of the end.
func (a nodeAllgather) members(c *Call, node, group int) (first, end int) {
	n := len(c.Nodes.ranks(node))
	return n * group / a.groups, n * (group + 1) / a.groups
}

// blocks returns the memory of the blocks of a group of a node.
func (a nodeAllgather) blocks(c *Call, b Buffer, node, group int) Slice {
	first, end := a.members(c, node, group)
	return a.at(c, b, c.Nodes.start[node]+first, end-first)
}

// at returns the memory of the n blocks from a place on.
func (a nodeAllgather) at(c *Call, b Buffer, place, n int) Slice {
	if a.exchange == bruck {
		if place -= c.Nodes.start[c.myNode()]; place < 0 {
			place += c.Size
		}
	}
	return Slice{b, place * c.Bytes, n * c.Bytes}
}

// deposit returns the shared memory for the block of a rank of this node. It is the last place of the block
// if messages are sent from there, else behind the blocks of all ranks.
func (a nodeAllgather) deposit(c *Call, index, n int) Slice {
	if a.memory == Shared {
		return a.at(c, Shared, c.Nodes.start[c.myNode()]+index, n)
	}
	return Slice{Shared, allBlocks(c) + index*c.Bytes, n * c.Bytes}
}

// collect collects the blocks of a group at its master. A group of one rank copies its block to the memory
// for messages at once.
func (a nodeAllgather) collect(c *Call, r *Round) {
	ranks, me := c.local()
	_, first, end := a.group(c)
	place := c.Nodes.place[c.Rank]
	if end-first == 1 {
		if to := a.at(c, a.memory, place, 1); to != c.ownBlock() {
			r.copy(to, c.ownBlock())
		}
		return
	}
	r.copy(a.deposit(c, me, 1), c.ownBlock())
	peers := ranks[first+1 : end]
	switch {
	case a.rotating:
		c.otherLocals(func(peer int) { r.exchange(peer, nothing, peer, nothing) })
		peers = ranks
	case me != first:
		r.send(ranks[first], nothing)
		return
	default:
		for _, peer := range peers {
			r.recv(peer, nothing)
		}
	}
	for _, peer := range peers {
		r.waitFor(peer)
	}
	if sends := me < c.Nodes.count() || !a.rotating; sends && a.memory != Shared {
		r.copy(a.at(c, a.memory, place-me+first, end-first), a.deposit(c, first, end-first))
	}
}

// pair returns the ranks that send and receive a message from one node to another in a group.
func (a nodeAllgather) pair(c *Call, from, to, group int) (sender, receiver int) {
	sent, received := c.Nodes.ranks(from), c.Nodes.ranks(to)
	if a.rotating {
		return sent[to%len(sent)], received[to%len(received)]
	}
	first, _ := a.members(c, from, group)
	firstReceiver, _ := a.members(c, to, group)
	return sent[first], received[firstReceiver]
}

// isMaster reports whether this rank is one of those that exchange data with other nodes: the first of its
// group, or with rotating the one at the place of the number of its node.
func (a nodeAllgather) isMaster(c *Call) bool {
	ranks, me := c.local()
	if a.rotating {
		return me == c.myNode()%len(ranks)
	}
	_, first, _ := a.group(c)
	return me == first
}

func (a nodeAllgather) rounds(c *Call) int {
	others := c.Nodes.count() - 1
	if isMaster := a.isMaster(c) || a.rotating; !isMaster || a.exchange != toAll {
		return 1
	}
	return max(1, batches(others, maxAtOnce))
}

// round is round i of the messages between nodes: receives are advertised, the blocks of the node are
// collected in round 0, and messages are sent. In a ring, each message that is received is passed on.
func (a nodeAllgather) round(c *Call, i int, r *Round) {
	mine := c.myNode()
	group, _, _ := a.group(c)
	hops := a.hops(c, i, group)
	for k, h := range hops {
		if from, to := a.pair(c, h.from, mine, group); to == c.Rank {
			r.recvAdvertised(from, h.received)
			if a.exchange == alongRing {
				_, next := a.pair(c, mine, h.to, group)
				r.passOn(next, k, k+1 == len(hops))
			}
		}
	}
	if i == 0 {
		a.collect(c, r)
	}
	for k, h := range hops {
		if from, to := a.pair(c, mine, h.to, group); from == c.Rank && (k == 0 || a.exchange != alongRing) {
			r.sendAdvertised(to, h.sent)
		}
		if k+1 < len(hops) && hops[k+1].step == h.step {
			continue
		}
		if a.overlaps && i == 0 && h.step == 0 {
			a.notify(c, r)
			a.copyOut(c, r, mine, mine+1)
		}
		a.endStep(c, r, hops[:k+1])
	}
}

// endStep waits, after the messages of the last step of hops, until the next step can begin.
func (a nodeAllgather) endStep(c *Call, r *Round, hops []hop) {
	switch {
	case !a.isMaster(c):
	case a.exchange == byPorts:
		r.Steps = append(r.Steps, Step{Kind: WaitSent})
	case a.exchange == bruck:
		group, _, _ := a.group(c)
		for _, h := range hops {
			if h.step == hops[len(hops)-1].step {
				from, _ := a.pair(c, h.from, c.myNode(), group)
				r.waitFor(from)
			}
		}
	}
}

// passOn gives the last step, a receive, the tag k, and unless it is the last one of a ring, lets its data be
// sent to the next rank as soon as it is complete.
func (r *Round) passOn(next, k int, isLast bool) {
	s := &r.Steps[len(r.Steps)-1]
	s.Tag = k
	if !isLast {
		s.Then = 1
		r.sendAdvertised(next, s.Dst)
		r.Steps[len(r.Steps)-1].Tag = k + 1
	}
}

// hop is a message to a node and one from a node. Those of a step are sent at once.
type hop struct {
	from, to       int // nodes
	received, sent Slice
	step           int
}

// hops returns the messages of a group in a round. Those of Bruck's algorithm and in a ring follow each
// other in one.
func (a nodeAllgather) hops(c *Call, i, group int) (all []hop) {
	n, mine := c.Nodes.count(), c.myNode()
	node := func(distance int) int { return (mine + distance + n) % n }
	blocks := func(node int) Slice { return a.blocks(c, a.memory, node, group) }
	switch a.exchange {
	case alongRing:
		for k := range n - 1 {
			all = append(all, hop{node(-1), node(1), blocks(node(-k - 1)), blocks(node(-k)), k})
		}
	case bruck:
		q := portRadix(c)
		for has, step := 1, 0; has < n; has, step = has*q, step+1 {
			for distance := has; distance < min(has*q, n); distance += has {
				count := min(has, n-distance)
				first, end := c.Nodes.places(mine, distance), c.Nodes.places(mine, distance+count)
				received := Slice{a.memory, first * c.Bytes, (end - first) * c.Bytes}
				all = append(all, hop{node(distance), node(-distance), received, Slice{a.memory, 0, c.Nodes.places(mine, count) * c.Bytes}, step})
			}
		}
	case byPorts:
		for k := 1; k < n; k++ {
			all = append(all, hop{node(-k), node(k), blocks(node(-k)), blocks(mine), (k - 1) / ports(c)})
		}
	default:
		for k, end := batch(i, n-1, maxAtOnce); k < end; k++ {
			all = append(all, hop{node(-k), node(k), blocks(node(-k)), blocks(mine), 0})
		}
	}
	return all
}

// notify notifies all ranks of the node from its masters, and waits for these notifications. Messages to
// other nodes go on if this rank is the only master.
func (a nodeAllgather) notify(c *Call, r *Round) {
	if a.isMaster(c) {
		c.otherLocals(func(peer int) { r.send(peer, nothing) })
	}
	ranks, me := c.local()
	waits := false
	for group := range a.groups {
		first, _ := a.members(c, c.myNode(), group)
		if a.rotating {
			first = c.myNode() % len(ranks)
		}
		if first != me {
			r.recv(ranks[first], nothing)
			waits = true
		}
	}
	if waits {
		r.wait()
	}
}

// share copies the blocks of this rank's group to shared memory if they are not there, and all blocks from
// there to Out. The only rank of a node copies them directly.
func (a nodeAllgather) share(c *Call, r *Round) {
	ranks, _ := c.local()
	n, mine := c.Nodes.count(), c.myNode()
	if len(ranks) > 1 && a.memory != Shared && a.isMaster(c) {
		group, _, _ := a.group(c)
		for node := 0; node < n; node++ {
			r.copy(a.blocks(c, Shared, node, group), a.blocks(c, a.memory, node, group))
		}
	}
	a.notify(c, r)
	if n == 1 || !a.overlaps {
		a.copyOut(c, r, mine, mine+1)
	}
	a.copyOut(c, r, mine+1, n)
	a.copyOut(c, r, 0, mine)
}

// copyOut copies blocks of nodes to Out, from shared memory unless this rank has them.
func (a nodeAllgather) copyOut(c *Call, r *Round, firstNode, endNode int) {
	ranks, _ := c.local()
	first, end := c.Nodes.start[firstNode], c.Nodes.start[endNode]
	switch {
	case a.memory == Out && a.isMaster(c):
		mine, _, _ := a.group(c)
		for i := range a.groups * (endNode - firstNode) {
			if node, group := firstNode+i/a.groups, i%a.groups; group != mine {
				r.copy(a.blocks(c, Out, node, group), a.blocks(c, Shared, node, group))
			}
		}
	case len(ranks) > 1:
		c.toRanks(r, a.at(c, Shared, first, end-first), first, end)
	default:
		c.toRanks(r, a.at(c, a.memory, first, end-first), first, end)
	}
}
