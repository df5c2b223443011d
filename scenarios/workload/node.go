package workload

import (
	"errors"
	"fmt"
	"time"

	"github.com/fabrictest/fabrictest/scenarios/traffic"
	"github.com/fabrictest/fabrictest/verbs"
)

// node runs the connections of one rank: all kinds of workload but random and
// calls. What differs between kinds is which edges there are and when messages
// may go.
type node struct {
	rank *Rank
	cfg  Config
	proc verbs.Proc
	log  *journal
	live live
	// manners are those of the transport.
	manners traffic.Manners

	// What the kind of workload chooses.
	edges     []edge                 // of the whole workload
	credits   bool                   // receivers say what they have taken, and senders wait for it
	thinks    bool                   // after every message
	timed     bool                   // every message's time is taken
	most      int                    // messages a receiver has room for; 0: as many as fit
	adds      bool                   // atomics on a word of the peer's
	onArrival func(c *conn, seq int) // a message has come
	onOver    func(c *conn)          // a connection has ended
	onReady   func()                 // all connections have been made, nothing has been sent
	summarise func(r *Report)        // adds to the report
	rails     []*rail
	conns     []*conn
	byEdge    map[int]*conn
	peers     map[int]*peer
	peerList  []*peer // in the order of their first edge
	rings     []*ring
	dirty     []*conn
	spare     []*conn
	pattern   []byte
	grace     time.Duration // in which what is under way arrives

	now        time.Duration
	lastMove   time.Duration
	nextLook   time.Duration // at Control
	nextTimer  time.Duration // 0: none
	favourite  int           // the rail whose events are waited for
	unfinished int           // connections
	unmade     int           // connections that have never been up
}

// peer is a rank that this one has connections with.
type peer struct {
	rank int
	open int // connections that are not over
	gone bool
}

func newNode(cfg Config, r *Rank, manners traffic.Manners) *node {
	cfg.CM = cfg.CM || manners.ByCM
	n := &node{
		rank: r, cfg: cfg, proc: r.Proc, manners: manners, credits: cfg.Pause == 0, thinks: cfg.Think > 0,
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

// Run does the work.
func (n *node) Run() (*Report, error) {
	n.log = newJournal(n.rank)
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
		// The launcher closes the devices, and with them what is left here.
		err = fmt.Errorf("rank %d: %w", n.rank.Rank, err)
	} else {
		n.log.mark("done")
		err = n.close()
	}
	n.log.tell(n.proc.Now())
	r := n.log.report()
	for _, c := range n.conns {
		r.Flows = append(r.Flows, c.flow())
	}
	if n.summarise != nil {
		n.summarise(r)
	}
	return r, err
}

// open makes everything that needs no peer.
func (n *node) open() error {
	n.now = n.proc.Now()
	n.lastMove = n.now
	n.pattern = newPattern(n.rank.Seed, n.cfg.Bytes)
	for _, e := range n.edges {
		for me, r := range e.ends {
			if r == n.rank.Rank {
				n.addConn(e, me)
			}
		}
	}
	if len(n.conns) == 0 {
		return nil // an odd one out
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
		c.wake()
	}
	n.log.samples.expect(expected)
	n.unfinished, n.unmade = len(n.conns), len(n.conns)
	if n.onReady != nil {
		n.onReady()
	}
	return nil
}

// addConn makes this rank's end of an edge.
func (n *node) addConn(e edge, me int) {
	c := &conn{n: n, num: len(n.conns), edge: e, me: me, peer: e.ends[1-me]}
	key := func(from int) content {
		return content{pattern: n.pattern, key: derive(n.rank.Seed, e.id, e.ends[from], e.ends[1-from])}
	}
	if total := e.messages[me]; total > 0 {
		c.out = &producer{content: key(me), c: c, total: total, size: n.cfg.Bytes, allowed: total}
	}
	if total := e.messages[1-me]; total > 0 {
		c.in = &consumer{content: key(1 - me), c: c, total: total, size: n.cfg.Bytes}
	}
	if n.adds {
		c.add = &adder{c: c, total: e.messages[me], words: make([]seenWord, len(n.rank.NICs))}
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

// Memory that messages may take at one rank, for receiving and for sending.
const messageBudget = 32 << 20

// plan sizes queues and memory so that the busiest rank of the workload keeps
// within its budget: the sizes must be the same everywhere.
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
	if n.most > 0 {
		l.window = n.most
	}
	l.recvs = l.window + noticeRecvs
	if n.cfg.Op == OpSend {
		l.room = l.stride
	}
	if datagram(n.cfg.service()) {
		l.room += guardLen // at least the header area
	}
	l.staging = l.recvs * l.room
	if s := n.cfg.service(); s == ServiceSRQ || s == ServiceRD {
		l.staging = 0
	}
	l.results = l.staging + l.depth*l.stride
	return l
}

func (n *node) openRails(l layout) error {
	cqDepth := len(n.conns)*(l.depth+spareRequests+l.recvs) + 16
	for num := range n.rank.NICs {
		r, err := n.openRail(num, cqDepth)
		if err != nil {
			return fmt.Errorf("rail %d: %w", num, err)
		}
		n.rails = append(n.rails, r)
		if n.cfg.service() == ServiceSRQ {
			if err := r.openShared(len(n.conns)*l.recvs, l.room); err != nil {
				return fmt.Errorf("rail %d: shared receives: %w", num, err)
			}
		}
		if n.cfg.service() == ServiceRD {
			if err := r.openEndpoints(&l); err != nil {
				return fmt.Errorf("rail %d: datagrams: %w", num, err)
			}
		}
		if n.adds {
			r.word = &memory{buf: make([]byte, wordLen)}
			if err := r.word.register(r, verbs.AccessLocalWrite|peerAccess); err != nil {
				return err
			}
		}
	}
	return nil
}

// connected notes that one more connection is up.
func (n *node) connected() {
	up := 0
	for _, c := range n.conns {
		if c.wasUp || c.state == connOver {
			up++
		}
	}
	if n.unmade > 0 && up == len(n.conns) {
		n.unmade = 0
		n.log.mark("connected")
	}
}

// close takes down what the connections shared. Whatever is still in use would
// say so.
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

// think keeps the processor busy as the scenario says.
func (n *node) think() {
	n.proc.Compute(n.cfg.Think)
	n.now = n.proc.Now()
}
