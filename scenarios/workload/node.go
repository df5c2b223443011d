package workload

import (
	"errors"
	"fmt"
	"time"

	"github.com/fabrictest/fabrictest/traffic"
	"github.com/fabrictest/fabrictest/verbs"
)

// node runs the connections of one rank, for all kinds of workload except random and calls.
// Kinds differ in their edges and in when messages may be sent.
type node struct {
	*env
	kind

	rails     []*rail
	conns     []*conn
	byEdge    map[int]*conn
	peers     map[int]*peer
	peerList  []*peer // in the order of their first edge
	recvRings []*recvRing
	pattern   []byte

	scheduled       []*conn
	spareScheduled  []*conn
	nextControlPoll time.Duration
	waitRail        int // rail whose events waitCompletion waits for
	unfinished      int // connections
	connectedMarked bool
}

// kind is what one kind of workload does differently.
type kind struct {
	edges           []edge                 // of the whole workload
	flowControl     bool                   // receivers send credits, and senders wait for them
	thinkPerMessage bool                   // compute after every message
	timePerMessage  bool                   // record the time of every message
	recvSlots       int                    // messages a receiver has room for; 0: as many as fit
	addsAtomics     bool                   // atomics on a word of the peer
	onArrival       func(c *conn, seq int) // a message has arrived
	onOver          func(c *conn)          // a connection has ended
	onReady         func()                 // before anything is sent
	summarise       func(r *Report)        // adds to the report
}

// peer is a rank that this one is connected with.
type peer struct {
	rank int
	open int // connections that are not over
	gone bool
}

// Run opens and runs the connections of the rank, verifies the memory that peers accessed, and
// returns the report, also after an error.
func (n *node) Run() (*Report, error) {
	n.log = newEventLog(n.rank)
	n.live.publish(n.proc.Now(), fmt.Sprintf("%s: registers memory and opens connections", n.cfg.Kind))
	err := n.open()
	if err == nil {
		err = n.loop()
	}
	n.now = n.proc.Now()
	if err == nil {
		n.verify()
	}
	n.publish()
	if err != nil {
		n.log.mark("failed")
		// The launcher closes the devices, with all remaining resources.
		err = fmt.Errorf("rank %d: %w", n.rank.Rank, err)
	} else {
		n.log.mark("done")
		err = n.close()
	}
	n.log.sendSample(n.proc.Now())
	r := n.log.report()
	for _, c := range n.conns {
		r.Flows = append(r.Flows, c.flow())
	}
	if n.summarise != nil {
		n.summarise(r)
	}
	return r, err
}

// open prepares all connections of the rank, before the exchange with peers: it plans the memory,
// opens the NICs (rails) and the receives, and schedules the connections.
func (n *node) open() error {
	n.now = n.proc.Now()
	n.lastProgress = n.now
	n.pattern = traffic.NewPattern(n.rank.Seed, n.cfg.Bytes)
	for _, e := range n.edges {
		for me, r := range e.ends {
			if r == n.rank.Rank {
				n.addConn(e, me)
			}
		}
	}
	if len(n.conns) == 0 {
		return nil // the last rank of an odd number
	}
	l := n.planLayout()
	if err := n.openRails(l); err != nil {
		return err
	}
	expected := 0
	for _, c := range n.conns {
		c.layout = l
		first := c.railOf(0)
		if len(first.endpoints) > 0 {
			c.endpoint = first.endpoints[n.endpointIndex(c)]
		}
		if err := c.prepare(first, len(n.recvRings)); err != nil {
			return fmt.Errorf("connection with rank %d: %w", c.peer.rank, err)
		}
		if c.recv.mem == c.mem { // the connection does not share the receives of its rail or endpoint
			n.recvRings = append(n.recvRings, c.recv)
		}
		if c.in != nil {
			expected += c.in.total
		}
		c.schedule()
	}
	n.log.samples.expect(expected)
	n.unfinished = len(n.conns)
	if n.onReady != nil {
		n.onReady()
	}
	return nil
}

// addConn creates the conn of this rank, which is e.ends[me], with the other rank of the edge.
func (n *node) addConn(e edge, me int) {
	rank := e.ends[1-me]
	p := n.peers[rank]
	if p == nil {
		p = &peer{rank: rank}
		n.peers[rank] = p
		n.peerList = append(n.peerList, p)
	}
	p.open++
	c := &conn{n: n, remoteEnd: remoteEnd{peerIncarnation: -1, peerReady: -1}}
	c.link = link{env: n.env, kind: &n.kind, connID: connID{len(n.conns), e, me, p}, schedule: c.scheduleStep}
	content := func(from int) traffic.Content {
		return traffic.Content{Pattern: n.pattern, Key: traffic.Derive(n.rank.Seed, e.id, e.ends[from], e.ends[1-from])}
	}
	if total := e.messages[me]; total > 0 {
		c.out = &producer{Content: content(me), link: &c.link, total: total, size: n.cfg.Bytes, allowed: total}
	}
	if total := e.messages[1-me]; total > 0 {
		c.in = &consumer{Content: content(1 - me), link: &c.link, total: total, size: n.cfg.Bytes, onArrival: func(int) {}}
		if n.onArrival != nil {
			c.in.onArrival = func(seq int) { n.onArrival(c, seq) }
		}
	}
	if n.addsAtomics {
		c.add = &atomicAdder{link: &c.link, total: e.messages[me], peerWords: make([]wordState, len(n.rank.NICs))}
	}
	n.conns = append(n.conns, c)
	n.byEdge[e.id] = c
}

// openRails opens every NIC of the rank, with the receives that connections share.
func (n *node) openRails(l layout) error {
	const spareEntries = 16
	cqDepth := len(n.conns)*(l.depth+spareRequests+l.receives) + spareEntries
	for num := range n.rank.NICs {
		r, err := openRail(n.env, num, cqDepth)
		if err != nil {
			return fmt.Errorf("rail %d: %w", num, err)
		}
		n.rails = append(n.rails, r)
		if err := n.openReceives(r, &l); err != nil {
			return fmt.Errorf("rail %d: %w", num, err)
		}
	}
	return nil
}

// openReceives opens what the connections of a rail share: an SRQ or endpoints with their receives,
// and the word for atomics.
func (n *node) openReceives(r *rail, l *layout) error {
	switch n.cfg.service() {
	case ServiceSRQ:
		if err := r.openSRQ(len(n.recvRings), len(n.conns)*l.receives, l.recvLen); err != nil {
			return fmt.Errorf("shared receives: %w", err)
		}
		n.recvRings = append(n.recvRings, r.shared)
	case ServiceRD:
		for _, conns := range n.endpointLoads(r) {
			if err := r.openEndpoint(len(n.recvRings), conns, l); err != nil {
				return fmt.Errorf("datagrams: %w", err)
			}
			n.recvRings = append(n.recvRings, r.endpoints[len(r.endpoints)-1].recv)
		}
	}
	if !n.addsAtomics {
		return nil
	}
	r.word = &memory{buf: make([]byte, wordLen)}
	return r.word.register(r, verbs.AccessLocalWrite|peerAccess)
}

// endpointIndex is the index of a connection's endpoint on its rail. Connections with the same peer
// have different endpoints, because datagrams are assigned to connections by their source.
func (n *node) endpointIndex(c *conn) (index int) {
	for _, other := range n.conns[:c.index] {
		if other.peer == c.peer && other.edge.rail == c.edge.rail {
			index++
		}
	}
	return index
}

// endpointLoads returns the number of connections that share each endpoint (queue pair) of a rail.
func (n *node) endpointLoads(r *rail) (loads []int) {
	for _, c := range n.conns {
		if c.edge.rail != r.num {
			continue
		}
		for len(loads) <= n.endpointIndex(c) {
			loads = append(loads, 0)
		}
		loads[n.endpointIndex(c)]++
	}
	return loads
}

// noteConnected sends the mark "connected", once, when every connection has been up or is over.
func (n *node) noteConnected() {
	up := 0
	for _, c := range n.conns {
		if c.wasUp || c.state == connOver {
			up++
		}
	}
	if !n.connectedMarked && up == len(n.conns) {
		n.connectedMarked = true
		n.log.mark("connected")
	}
}

// close closes what connections and rails have kept until the end. Objects in use cause an error.
func (n *node) close() error {
	errs := make([]error, 0, 3*len(n.conns)+len(n.rails))
	for _, c := range n.conns {
		errs = append(errs, c.mem.close(), c.public.close(), traffic.Close(c.srq, c.xrcd))
	}
	for _, r := range n.rails {
		errs = append(errs, r.close())
	}
	return errors.Join(errs...)
}
