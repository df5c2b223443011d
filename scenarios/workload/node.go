package workload

import (
	"errors"
	"fmt"
	"time"

	"github.com/fabrictest/fabrictest/scenarios/random"
	"github.com/fabrictest/fabrictest/traffic"
	"github.com/fabrictest/fabrictest/verbs"
)

// node runs the connections of one rank, for all kinds of workload except random and calls.
// Kinds differ in their edges and in when messages may be sent.
type node struct {
	rank *Rank
	cfg  Config
	proc verbs.Proc
	log  *eventLog
	live liveState
	// traits are the traits of the transport.
	traits random.TransportTraits

	// Set by the kind of workload:
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
	rails           []*rail
	conns           []*conn
	byEdge          map[int]*conn
	peers           map[int]*peer
	peerList        []*peer // in the order of their first edge
	rings           []*recvRing
	scheduled       []*conn
	spareScheduled  []*conn
	pattern         []byte
	grace           time.Duration // time for packets under way to arrive

	now          time.Duration
	lastProgress time.Duration
	nextNotePoll time.Duration
	nextTimer    time.Duration // 0: none
	waitRail     int           // rail whose events waitCompletion waits for
	unfinished   int           // connections
	neverUp      int           // connections
}

// peer is a rank that this one is connected with.
type peer struct {
	rank int
	open int // connections that are not over
	gone bool
}

func newNode(cfg Config, r *Rank, traits random.TransportTraits) *node {
	cfg.CM = cfg.CM || traits.ConnectsByCM
	n := &node{
		rank: r, cfg: cfg, proc: r.Proc, traits: traits, flowControl: cfg.Pause == 0, thinkPerMessage: cfg.Think > 0,
		byEdge: map[int]*conn{}, peers: map[int]*peer{},
	}
	n.grace = simGrace
	if r.Concurrent {
		n.grace = realGrace
	}
	return n
}

const (
	simGrace  = 5 * time.Millisecond
	realGrace = 100 * time.Millisecond
)

// Run runs the connections and returns the report.
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

// open creates everything that needs no peer.
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
	l := n.plan()
	if err := n.openRails(l); err != nil {
		return err
	}
	expected := 0
	for _, c := range n.conns {
		c.layout = l
		c.rail = c.railOf(0)
		if err := c.prepare(); err != nil {
			return fmt.Errorf("connection with rank %d: %w", c.peer, err)
		}
		if c.in != nil {
			expected += c.in.total
		}
		c.schedule()
	}
	n.log.samples.expect(expected)
	n.unfinished, n.neverUp = len(n.conns), len(n.conns)
	if n.onReady != nil {
		n.onReady()
	}
	return nil
}

// addConn creates this rank's end of an edge.
func (n *node) addConn(e edge, me int) {
	c := &conn{n: n, index: len(n.conns), edge: e, side: me, peer: e.ends[1-me]}
	key := func(from int) traffic.Content {
		return traffic.Content{Pattern: n.pattern, Key: traffic.Derive(n.rank.Seed, e.id, e.ends[from], e.ends[1-from])}
	}
	if total := e.messages[me]; total > 0 {
		c.out = &producer{Content: key(me), c: c, total: total, size: n.cfg.Bytes, allowed: total}
	}
	if total := e.messages[1-me]; total > 0 {
		c.in = &consumer{Content: key(1 - me), c: c, total: total, size: n.cfg.Bytes}
	}
	if n.addsAtomics {
		c.add = &atomicAdder{c: c, total: e.messages[me], peerWords: make([]wordState, len(n.rank.NICs))}
	}
	n.conns = append(n.conns, c)
	n.byEdge[e.id] = c
	p := n.peers[c.peer]
	if p == nil {
		p = &peer{rank: c.peer}
		n.peers[c.peer] = p
		n.peerList = append(n.peerList, p)
	}
	p.open++
}

// messageBudget limits the memory for messages at one rank.
const messageBudget = 32 << 20

// plan sizes queues and memory such that the busiest rank keeps within its budget. All
// ranks compute the same sizes.
func (n *node) plan() (l layout) {
	load := make(map[int]int)
	busiest := 1
	for _, e := range n.edges {
		for _, r := range e.ends {
			load[r]++
			busiest = max(busiest, load[r])
		}
	}
	l.stride = (n.cfg.Bytes + 63) &^ 63
	fit := max(2, messageBudget/(busiest*l.stride))
	l.depth = max(1, min(n.cfg.Depth, fit))
	l.window = min(2*max(n.cfg.Depth, 1), fit)
	if n.recvSlots > 0 {
		l.window = n.recvSlots
	}
	l.receives = l.window + noticeReceives
	if n.cfg.Op == OpSend {
		l.recvLen = l.stride
	}
	if datagram(n.cfg.service()) {
		l.recvLen += guardLen // at least the GRH
	}
	l.staging = l.receives * l.recvLen
	if s := n.cfg.service(); s == ServiceSRQ || s == ServiceRD {
		l.staging = 0
	}
	l.results = l.staging + l.depth*l.stride
	return l
}

func (n *node) openRails(l layout) error {
	cqDepth := len(n.conns)*(l.depth+spareRequests+l.receives) + 16
	for num := range n.rank.NICs {
		r, err := n.openRail(num, cqDepth)
		if err != nil {
			return fmt.Errorf("rail %d: %w", num, err)
		}
		n.rails = append(n.rails, r)
		if n.cfg.service() == ServiceSRQ {
			if err := r.openShared(len(n.conns)*l.receives, l.recvLen); err != nil {
				return fmt.Errorf("rail %d: shared receives: %w", num, err)
			}
		}
		if n.cfg.service() == ServiceRD {
			if err := r.openEndpoints(&l); err != nil {
				return fmt.Errorf("rail %d: datagrams: %w", num, err)
			}
		}
		if n.addsAtomics {
			r.word = &memory{buf: make([]byte, wordLen)}
			if err := r.word.register(r, verbs.AccessLocalWrite|peerAccess); err != nil {
				return err
			}
		}
	}
	return nil
}

// noteConnected marks the time when all connections have been up.
func (n *node) noteConnected() {
	up := 0
	for _, c := range n.conns {
		if c.wasUp || c.state == connOver {
			up++
		}
	}
	if n.neverUp > 0 && up == len(n.conns) {
		n.neverUp = 0
		n.log.mark("connected")
	}
}

// close closes the shared resources. A resource in use would return an error.
func (n *node) close() error {
	var errs []error
	for _, c := range n.conns {
		errs = append(errs, c.mem.close(), c.public.close())
		if c.srq != nil {
			errs = append(errs, c.srq.Close(), c.xrcd.Close())
		}
	}
	for _, r := range n.rails {
		errs = append(errs, r.close())
	}
	return errors.Join(errs...)
}

// think computes for the configured time.
func (n *node) think() {
	n.proc.Compute(n.cfg.Think)
	n.now = n.proc.Now()
}
