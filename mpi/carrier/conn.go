package carrier

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/fabrictest/fabrictest/verbs"
)

// state is that of a connection.
type state uint8

const (
	asked    state = iota + 1 // we want it
	answered                  // the peer wants it; it has not spoken on it yet
	open
	closing // we have said bye, or goodbye
	failed
)

var stateNames = [...]string{"", "asked for", "answered", "open", "closing", "failed"}

func (s state) String() string { return stateNames[s] }

// conn is a connection to a peer on a rail.
type conn struct {
	c        *Carrier
	rail     *rail
	peer     *peer
	qp       verbs.QP
	state    state
	recv     *receives // its own; nil if they are shared
	limited  bool      // it may send as many packets as it has credits
	credits  int
	owed     int // credits that the peer does not know of
	free     int // requests that can be posted
	under    int // that the NIC has
	used     time.Duration
	moved    time.Duration // when something was completed last
	leaving  bool          // our last packet is under way, or the peer's has come
	lingers  bool          // until the peer has closed: what it was sent may still be under way
	heardBye bool
	ended    bool
	behind   []*move // whose words must go behind their data, on this way

	// Of those that the connection manager makes:
	number  uint32 // how many the two ranks had before it
	manager verbs.Conn
	waiting verbs.ConnRequest // a call of the peer's, which counts: ours will be refused
	wr      [1]verbs.SendWR
	sges    [3]verbs.SGE
}

const (
	// reserve are credits that are left to packets that give credits back: else two who
	// have none would wait for each other.
	reserve = 4
	// minReceives lets credits be given back in halves.
	minReceives = 4
	// sendDepth is how many requests a connection has under way, and spare how many of
	// those packets leave to data.
	sendDepth = 128
	spare     = 2
)

// newConn makes our end of a connection.
func (c *Carrier) newConn(p *peer, r *rail, s state) (*conn, error) {
	k := &conn{c: c, rail: r, peer: p, state: s, free: sendDepth, credits: c.cfg.Receives + reserve, used: c.Now()}
	k.limited = r.srq == nil || r.limited()
	k.number = p.had[r.num]
	init := verbs.QPInit{
		Type: verbs.QPTypeRC, PD: r.pd, SendCQ: r.cq, RecvCQ: r.cq,
		Caps: verbs.QPCaps{MaxSendWR: sendDepth, MaxSendSGE: 3},
	}
	count := c.cfg.Receives + reserve
	promised := sendDepth
	if r.srq != nil {
		if err := r.srq.fit(len(r.conns) + 1); err != nil {
			return nil, err
		}
		init.SRQ = r.srq.queue
	} else {
		init.Caps.MaxRecvWR, init.Caps.MaxRecvSGE = count, 1
		promised += count
	}
	if err := r.promise(promised); err != nil {
		return nil, err
	}
	var err error
	if k.qp, err = r.dev.CreateQP(init); err != nil {
		return nil, fmt.Errorf("a queue pair for rank %d: %w", p.rank, err)
	}
	if err := r.toInit(k.qp); err != nil {
		return nil, errors.Join(err, k.qp.Close())
	}
	if r.srq == nil {
		k.recv = &receives{c: c, rail: r, conn: k, post: k.qp.PostRecv, size: c.cfg.PacketSize}
		if c.ownPool == nil {
			c.ownPool = c.newPool(ConnReceiveBuffers, c.cfg.PacketSize, count)
		}
		if err := k.recv.fill(c.ownPool, count); err != nil {
			return nil, errors.Join(err, k.qp.Close())
		}
	}
	p.conns[r.num] = k
	r.conns[k.qp.QPN()] = k
	c.stats.Connections++
	c.stats.MaxConnections = max(c.stats.MaxConnections, c.stats.Connections)
	return k, nil
}

// connection returns an open connection to a peer with room for a packet, if there
// is one. If there is none at all it is made, where the design wants one.
func (c *Carrier) connection(p *peer, n int) *conn {
	if n > c.cfg.PacketSize {
		return nil
	}
	for i := range c.rails {
		k := p.conns[(p.turn+i)%len(c.rails)]
		if k != nil && k.state == open && k.free > spare && k.hasCredit() {
			return k
		}
	}
	c.wantConnections(p)
	return nil
}

// wantConnections makes those that the design wants and that are not there.
func (c *Carrier) wantConnections(p *peer) {
	if c.cfg.Design == Hybrid && p.conns[0] == nil && !c.favours(p) {
		return
	}
	for _, r := range c.rails {
		if p.conns[r.num] == nil && p.lost == nil && !p.cut[r.num] {
			if err := c.connect(p, r); err != nil && !(c.cutRail(p, r) && c.reachable(p)) {
				c.lose(p, err)
			}
		}
	}
}

// carry sends a packet. It is kept until the peer's NIC has it.
func (k *conn) carry(pkt *packet) error {
	c := k.c
	id := c.newWork(work{task: sending, conn: k, pkt: pkt})
	k.wr[0] = verbs.SendWR{WRID: id, Opcode: verbs.OpSend, Flags: verbs.SendSignaled, SGL: pkt.gather(k.sges[:0], k.rail.num)}
	if pkt.naked {
		k.wr[0].Opcode, k.wr[0].Imm = verbs.OpSendImm, pkt.imm
	}
	if err := k.post(); err != nil {
		c.endWork(id)
		return err
	}
	c.stats.Packets[OverConnection]++
	c.stats.ByRail[k.rail.num] += uint64(pkt.len)
	k.took(pkt)
	k.credits--
	if pkt.numbered {
		k.peer.turn = (k.rail.num + 1) % len(c.rails)
	}
	return nil
}

// post posts the request that has been written.
func (k *conn) post() error {
	if _, err := k.qp.PostSend(k.wr[:]); err != nil {
		return err
	}
	k.free--
	k.under++
	k.used = k.c.Now()
	return nil
}

// done takes a completion: the NIC has one request less.
func (k *conn) done(wc *verbs.WC) {
	k.free++
	k.under--
	if k.rail.forgets() {
		k.moved = k.c.Now()
	}
	if wc.Status != verbs.WCSuccess {
		k.broke(statusError{"a request", wc.Status})
	}
	switch {
	case k.under > 0:
	case k.state == failed || k.leaving && !k.lingers:
		k.c.end(k)
	case k.state == closing:
		k.depart()
	}
}

// sent takes the completion of a packet.
func (k *conn) sent(pkt *packet, wc *verbs.WC) {
	p := pkt.peer
	arrived := wc.Status == verbs.WCSuccess
	pkt.acked = pkt.acked || arrived && !k.rail.forgets() || p.lost != nil || !pkt.numbered
	k.done(wc)
	if p.lost != nil {
		pkt.acked = true
	}
	if pkt.acked {
		k.c.dispose(pkt)
	} else if (!arrived || k.state == failed) && pkt.conn == k && !slices.Contains(p.stranded, pkt) {
		k.c.strand(pkt)
	}
}

// fail has everything that is under way on a connection end.
func (k *conn) fail(error) {
	if k.state == failed {
		return
	}
	k.state = failed
	if err := k.qp.Modify(verbs.QPAttr{State: verbs.QPStateErr}, verbs.QPAttrState); err != nil && !errors.Is(err, verbs.ErrClosed) {
		k.c.fault(fmt.Errorf("rank %d: %w", k.peer.rank, err))
	}
}

// heard takes note that a packet came by the connection.
func (k *conn) heard(pre *prefix) {
	k.used = k.c.Now()
	if k.state == answered {
		k.state = open
		k.c.isBusy(k.peer)
	}
	k.credits += int(pre.credits)
}

// settle tells the peer of receives and slots that it can use again, if there are many
// and no packet has done so.
func (k *conn) settle() {
	p := k.peer
	if p.lost == nil && (k.limited && k.owed >= k.c.cfg.Receives/2 || p.rung != nil && p.rung.owed >= p.rung.count/2) {
		k.c.sendBare(p, k)
	}
}

// giveCredits posts what receives were used, and returns how many more the peer may
// use.
func (k *conn) giveCredits() uint16 {
	if !k.limited || k.owed == 0 {
		return 0
	}
	recv := k.recv
	if recv == nil {
		recv = &k.rail.srq.recv
	}
	if err := recv.flush(); err != nil {
		k.c.fault(err)
		return 0
	}
	n := k.owed
	k.owed = 0
	return uint16(n)
}

// end is the end of a connection that nobody uses any more. Its queue pair is closed
// when all completions that were taken have been looked at: some may be of it.
func (c *Carrier) end(k *conn) {
	if k.ended {
		return
	}
	k.ended = true
	if k.state != failed { // a failed one stays, lest another be made on its rail
		k.peer.conns[k.rail.num] = nil
		k.peer.had[k.rail.num] = k.number + 1
		c.stats.ConnectionsClosed++
	}
	c.stats.Connections--
	c.isBusy(k.peer)
	c.graves = append(c.graves, k)
	k.writeAgain()
}

// bury closes what has ended.
func (c *Carrier) bury() {
	graves := c.graves
	c.graves = nil
	for _, k := range graves {
		if err := k.close(); err != nil {
			c.fault(err)
		}
	}
}

// close closes the queue pair. What it had is free again.
func (k *conn) close() error {
	if k.qp == nil {
		return nil
	}
	delete(k.rail.conns, k.qp.QPN())
	var errs []error
	if k.manager != nil {
		errs = append(errs, ignoreClosed(k.manager.Disconnect()))
	}
	errs = append(errs, ignoreClosed(k.qp.Close()))
	k.qp = nil
	c := k.c
	for i := range c.works {
		w := c.works[i]
		if w.conn != k {
			continue
		}
		c.endWork(uint64(i)) // in whatever life it is
		switch w.task {
		case receiving:
			w.buf.giveBack()
		case sending:
			w.pkt.posted--
			w.pkt.acked = true
			c.dispose(w.pkt)
		}
	}
	k.rail.promised -= sendDepth
	return errors.Join(errs...)
}

func ignoreClosed(err error) error {
	if errors.Is(err, verbs.ErrClosed) || errors.Is(err, verbs.ErrInvalid) {
		return nil
	}
	return err
}

// hand is what the ends of a connection tell each other.
type hand struct {
	rail    int
	qpn     verbs.QPN
	psn     uint32
	credits int
}

const handLen = 1 + 4 + 4 + 2

func (h hand) bytes() []byte {
	le := binary.LittleEndian
	b := append(make([]byte, 0, handLen), byte(h.rail))
	b = le.AppendUint32(b, uint32(h.qpn))
	b = le.AppendUint32(b, h.psn)
	return le.AppendUint16(b, uint16(h.credits))
}

func (c *Carrier) parseHand(b []byte) (h hand, err error) {
	if len(b) != handLen || int(b[0]) >= len(c.rails) {
		return h, fmt.Errorf("%w: of a connection: % x", errMalformed, b)
	}
	le := binary.LittleEndian
	return hand{int(b[0]), verbs.QPN(le.Uint32(b[1:])), le.Uint32(b[5:]), int(le.Uint16(b[9:]))}, nil
}
