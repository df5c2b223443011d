package carrier

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/fabrictest/fabrictest/mpi/memory"
	"github.com/fabrictest/fabrictest/verbs"
)

// state is the state of a connection.
type state uint8

const (
	requested state = iota + 1 // this rank has sent a REQ
	accepted                   // this rank has sent a REP, and nothing has arrived on the connection yet
	open
	closing // a DREQ was sent or received
	failed
)

var stateNames = [...]string{"", "requested", "accepted", "open", "closing", "failed"}

func (s state) String() string { return stateNames[s] }

// conn is a connection to a peer on a rail.
type conn struct {
	c               *Carrier
	rail            *rail
	peer            *peer
	qp              verbs.QP
	state           state
	recv            *recvQueue // nil with SRQ
	usesCredits     bool       // each packet to the peer takes a credit
	credits         int
	creditsToReturn int // receives posted again since credits were last returned
	freeWRs         int // send requests that can be posted
	outstanding     int // send requests that the NIC has
	lastUsed        time.Duration
	lastCompletion  time.Duration // only on rails that complete before delivery
	disconnecting   bool          // our last packet was sent, or the peer's has arrived
	awaitsPeerClose bool          // the peer may still have to receive our last packet
	receivedDREQ    bool
	ended           bool
	pendingNotices  []*transfer // writes whose notice must follow on this connection

	// Only for connections of the connection manager:
	generation     uint32 // number of earlier connections between the two ranks
	cmConn         verbs.Conn
	pendingRequest verbs.ConnRequest // request of the peer that wins over ours
	wr             [1]verbs.SendWR
	sges           [3]verbs.SGE
}

const (
	// reservedCredits are left to packets that return credits, which avoids a deadlock of
	// two ranks without credits.
	reservedCredits = 4
	// minReceives lets credits be returned after half of them are used.
	minReceives = 4
	// sendDepth is the depth of the send queue. Packets leave reservedWRs of it to RDMA
	// transfers.
	sendDepth   = 128
	reservedWRs = 2
)

// newConn creates the local end of a connection.
func (c *Carrier) newConn(p *peer, r *rail, s state) (*conn, error) {
	k := &conn{c: c, rail: r, peer: p, state: s, freeWRs: sendDepth, credits: c.cfg.Receives + reservedCredits, lastUsed: c.Now()}
	k.usesCredits = r.srq == nil || r.lacksRNR()
	k.generation = p.connGeneration[r.num]
	init := verbs.QPInit{
		Type: verbs.QPTypeRC, PD: r.pd, SendCQ: r.cq, RecvCQ: r.cq,
		Caps: verbs.QPCaps{MaxSendWR: sendDepth, MaxSendSGE: 3},
	}
	count := c.cfg.Receives + reservedCredits
	promised := sendDepth
	if r.srq != nil {
		if err := r.srq.growFor(len(r.conns) + 1); err != nil {
			return nil, err
		}
		init.SRQ = r.srq.queue
	} else {
		init.Caps.MaxRecvWR, init.Caps.MaxRecvSGE = count, 1
		promised += count
	}
	if err := r.reserveCQEs(promised); err != nil {
		return nil, err
	}
	var err error
	if k.qp, err = r.dev.CreateQP(init); err != nil {
		return nil, fmt.Errorf("create a queue pair for rank %d: %w", p.rank, err)
	}
	if err := r.toInit(k.qp); err != nil {
		return nil, errors.Join(err, k.qp.Close())
	}
	if r.srq == nil {
		k.recv = &recvQueue{c: c, rail: r, conn: k, post: k.qp.PostRecv, size: c.cfg.PacketSize}
		if c.connRecvPool == nil {
			c.connRecvPool = c.mem.NewPool(memory.ConnReceiveBuffers, c.cfg.PacketSize, count)
		}
		if err := k.recv.fill(c.connRecvPool, count); err != nil {
			return nil, errors.Join(err, k.qp.Close())
		}
	}
	p.conns[r.num] = k
	r.conns[k.qp.QPN()] = k
	c.stats.Connections++
	c.stats.MaxConnections = max(c.stats.MaxConnections, c.stats.Connections)
	return k, nil
}

// connection returns an open connection with room for a packet of n bytes. Without one it
// returns nil, and connects if the design has connections to the peer.
func (c *Carrier) connection(p *peer, n int) *conn {
	if n > c.cfg.PacketSize {
		return nil
	}
	for i := range c.rails {
		k := p.conns[(p.nextRail+i)%len(c.rails)]
		if k != nil && k.state == open && k.freeWRs > reservedWRs && k.hasCredit() {
			return k
		}
	}
	c.wantConnections(p)
	return nil
}

// wantConnections starts the connections to a peer that the design has and that are
// missing.
func (c *Carrier) wantConnections(p *peer) {
	if c.cfg.Design == Hybrid && p.conns[0] == nil && !c.wantsConnection(p) {
		return
	}
	for _, r := range c.rails {
		if p.conns[r.num] == nil && p.lost == nil && !p.railFailed[r.num] {
			if err := c.connect(p, r); err != nil && !(c.failRail(p, r) && c.reachable(p)) {
				c.losePeer(p, err)
			}
		}
	}
}

// transmit posts a packet. The carrier keeps it until the peer's NIC has acknowledged it.
func (k *conn) transmit(pkt *packet) error {
	c := k.c
	id := c.newWork(work{task: sending, conn: k, pkt: pkt})
	k.wr[0] = verbs.SendWR{WRID: id, Opcode: verbs.OpSend, Flags: verbs.SendSignaled, SGL: pkt.gather(k.sges[:0], k.rail.num)}
	if pkt.headerless {
		k.wr[0].Opcode, k.wr[0].Imm = verbs.OpSendImm, pkt.imm
	}
	if err := k.post(); err != nil {
		c.endWork(id)
		return err
	}
	c.stats.Packets[OverConnection]++
	c.stats.ByRail[k.rail.num] += uint64(pkt.len)
	k.packetPosted(pkt)
	k.credits--
	if pkt.numbered {
		k.peer.nextRail = (k.rail.num + 1) % len(c.rails)
	}
	return nil
}

// post posts the send request in k.wr.
func (k *conn) post() error {
	if _, err := k.qp.PostSend(k.wr[:]); err != nil {
		return err
	}
	k.freeWRs--
	k.outstanding++
	k.lastUsed = k.c.Now()
	return nil
}

// requestCompleted handles the completion of any send request.
func (k *conn) requestCompleted(wc *verbs.WC) {
	k.freeWRs++
	k.outstanding--
	if k.rail.completesBeforeDelivery() {
		k.lastCompletion = k.c.Now()
	}
	if wc.Status != verbs.WCSuccess {
		k.connFailed(statusError{"send request", wc.Status})
	}
	switch {
	case k.outstanding > 0:
	case k.state == failed || k.disconnecting && !k.awaitsPeerClose:
		k.c.endConn(k)
	case k.state == closing:
		k.sendDREP()
	}
}

// sendCompleted handles the completion of a packet.
func (k *conn) sendCompleted(pkt *packet, wc *verbs.WC) {
	p := pkt.peer
	arrived := wc.Status == verbs.WCSuccess
	pkt.acked = pkt.acked || arrived && !k.rail.completesBeforeDelivery() || p.lost != nil || !pkt.numbered
	k.requestCompleted(wc)
	if p.lost != nil {
		pkt.acked = true
	}
	if pkt.acked {
		k.c.freePacket(pkt)
	} else if (!arrived || k.state == failed) && pkt.sentOn == k && !slices.Contains(p.toReroute, pkt) {
		k.c.queueReroute(pkt)
	}
}

// fail moves the queue pair to the error state, which flushes its requests.
func (k *conn) fail(error) {
	if k.state == failed {
		return
	}
	k.state = failed
	if err := k.qp.Modify(verbs.QPAttr{State: verbs.QPStateErr}, verbs.QPAttrState); err != nil && !errors.Is(err, verbs.ErrClosed) {
		k.c.failAll(fmt.Errorf("rank %d: %w", k.peer.rank, err))
	}
}

// packetReceived notes that a packet has arrived on the connection.
func (k *conn) packetReceived(pre *prefix) {
	k.lastUsed = k.c.Now()
	if k.state == accepted {
		k.state = open
		k.c.markBusy(k.peer)
	}
	k.credits += int(pre.credits)
}

// returnManyCredits sends an ack-only packet when half of the credits or slots are to be
// returned.
func (k *conn) returnManyCredits() {
	p := k.peer
	if p.lost == nil && (k.usesCredits && k.creditsToReturn >= k.c.cfg.Receives/2 || p.ringIn != nil && p.ringIn.slotsToReturn >= p.ringIn.count/2) {
		k.c.sendAckOnly(p, k)
	}
}

// takeCreditsToReturn posts the staged receives and returns their number, for the prefix of
// the next packet.
func (k *conn) takeCreditsToReturn() uint16 {
	if !k.usesCredits || k.creditsToReturn == 0 {
		return 0
	}
	recv := k.recv
	if recv == nil {
		recv = &k.rail.srq.recv
	}
	if err := recv.flush(); err != nil {
		k.c.failAll(err)
		return 0
	}
	n := k.creditsToReturn
	k.creditsToReturn = 0
	return uint16(n)
}

// endConn marks a connection for closing. Its queue pair stays until the polled completions
// have been handled, because some may belong to it.
func (c *Carrier) endConn(k *conn) {
	if k.ended {
		return
	}
	k.ended = true
	if k.state != failed { // a failed connection stays, or its rail would be tried again
		k.peer.conns[k.rail.num] = nil
		k.peer.connGeneration[k.rail.num] = k.generation + 1
		c.stats.ConnectionsClosed++
	}
	c.stats.Connections--
	c.markBusy(k.peer)
	c.endedConns = append(c.endedConns, k)
	k.rewriteUnnoticed()
}

// closeEndedConns closes the connections that endConn marked.
func (c *Carrier) closeEndedConns() {
	ended := c.endedConns
	c.endedConns = nil
	for _, k := range ended {
		if err := k.close(); err != nil {
			c.failAll(err)
		}
	}
}

// close closes the queue pair and releases the buffers of its requests.
func (k *conn) close() error {
	if k.qp == nil {
		return nil
	}
	delete(k.rail.conns, k.qp.QPN())
	var errs []error
	if k.cmConn != nil {
		errs = append(errs, ignoreClosed(k.cmConn.Disconnect()))
	}
	errs = append(errs, ignoreClosed(k.qp.Close()))
	k.qp = nil
	c := k.c
	for i := range c.works {
		w := c.works[i]
		if w.conn != k {
			continue
		}
		c.endWork(uint64(i))
		switch w.task {
		case receiving:
			w.buf.Release()
		case sending:
			w.pkt.posted--
			w.pkt.acked = true
			c.freePacket(w.pkt)
		}
	}
	k.rail.reservedCQEs -= sendDepth
	return errors.Join(errs...)
}

func ignoreClosed(err error) error {
	if errors.Is(err, verbs.ErrClosed) || errors.Is(err, verbs.ErrInvalid) {
		return nil
	}
	return err
}

// connInfo is the information that two ranks exchange to connect.
type connInfo struct {
	rail    int
	qpn     verbs.QPN
	psn     uint32
	credits int
}

const connInfoLen = 1 + 4 + 4 + 2

func (h connInfo) bytes() []byte {
	le := binary.LittleEndian
	b := append(make([]byte, 0, connInfoLen), byte(h.rail))
	b = le.AppendUint32(b, uint32(h.qpn))
	b = le.AppendUint32(b, h.psn)
	return le.AppendUint16(b, uint16(h.credits))
}

func (c *Carrier) parseConnInfo(b []byte) (h connInfo, err error) {
	if len(b) != connInfoLen || int(b[0]) >= len(c.rails) {
		return h, fmt.Errorf("%w: of a connection: % x", errMalformed, b)
	}
	le := binary.LittleEndian
	return connInfo{int(b[0]), verbs.QPN(le.Uint32(b[1:])), le.Uint32(b[5:]), int(le.Uint16(b[9:]))}, nil
}
