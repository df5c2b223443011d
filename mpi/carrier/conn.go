package carrier

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/fabrictest/fabrictest/mpi/memory"
	"github.com/fabrictest/fabrictest/mpi/transport"
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
	c    *Carrier
	rail *rail
	peer *peer
	transport.SendQueue
	credits
	recv           *recvQueue // nil with SRQ
	state          state
	disconnection  disconnection
	ended          bool
	cm             cmState
	lastUsed       time.Duration
	lastCompletion time.Duration // only on rails that complete before delivery
	pendingNotices []*transfer   // writes whose notice must follow on this connection
}

// cmState is the state of a connection of the connection manager.
type cmState struct {
	generation     uint32 // number of earlier connections between the two ranks
	conn           verbs.Conn
	pendingRequest verbs.ConnRequest // request of the peer that wins over ours
}

// sendDepth is the depth of the send queue; reservedWRs of it are for ack-only packets.
const (
	sendDepth   = 128
	reservedWRs = 2
)

// connections is the state that the connections of a rank share.
type connections struct {
	recvPool      *memory.Pool  // receive buffers of connections without SRQ
	ended         []*conn       // whose queue pairs must be closed
	callbacks     callbackQueue // from connection manager tasks
	lastIdleCheck time.Duration // when idle connections were last looked for
}

// newConn creates the local end of a connection to p on rail r, with the initial state s. Unless
// the rail has an SRQ, it posts the receives of the connection. Without an SRQ, and on iWARP, the
// peer needs a credit for each packet.
func (c *Carrier) newConn(p *peer, r *rail, s state) (*conn, error) {
	receives := c.cfg.Receives + reservedCredits
	k := &conn{c: c, rail: r, peer: p, state: s, credits: credits{enabled: r.srq == nil || r.IsIWARP(), available: receives}, lastUsed: c.Now()}
	k.cm.generation = p.connGeneration[r.Num]
	k.Depth = sendDepth
	const ringPacketParts = 3 // see Packet.AppendSGLWithTrailer
	caps := verbs.QPCaps{MaxSendWR: sendDepth, MaxSendSGE: ringPacketParts}
	var srq verbs.SRQ
	if r.srq != nil {
		if err := r.srq.growFor(len(r.conns) + 1); err != nil {
			return nil, err
		}
		srq = r.srq.queue
	} else {
		caps.MaxRecvWR, caps.MaxRecvSGE = receives, 1
	}
	if err := r.ReserveCQEs(k.cqes()); err != nil {
		return nil, err
	}
	var err error
	if k.QP, err = r.NewRC(caps, srq); err != nil {
		return nil, errors.Join(fmt.Errorf("create a queue pair for rank %d: %w", p.rank, err), r.ReserveCQEs(-k.cqes()))
	}
	if r.srq == nil {
		recv := r.newRecvQueue(k.QP.PostRecv)
		recv.conn, k.recv = k, &recv
		if c.conns.recvPool == nil {
			c.conns.recvPool = c.mem.NewPool(memory.ConnReceiveBuffers, c.cfg.PacketSize, receives)
		}
		if err := k.recv.fill(c.conns.recvPool, receives); err != nil {
			return nil, errors.Join(err, k.QP.Close(), r.ReserveCQEs(-k.cqes()))
		}
	}
	p.conns[r.Num] = k
	r.conns[k.QP.QPN()] = k
	c.stats.Connections++
	c.stats.MaxConnections = max(c.stats.MaxConnections, c.stats.Connections)
	return k, nil
}

// cqes returns how many entries of the CQ the connection reserves: for its sends, and its receives
// unless the rail has an SRQ.
func (k *conn) cqes() int {
	if k.rail.srq != nil {
		return sendDepth
	}
	return sendDepth + k.c.cfg.Receives + reservedCredits
}

// connection returns an open connection with room for a packet of n bytes; successive packets, also to
// different peers, use successive rails. If none has room it returns nil, and starts the connections that are missing.
func (c *Carrier) connection(p *peer, n int) *conn {
	if n > c.cfg.PacketSize {
		return nil
	}
	for i := range c.rails {
		k := p.conns[(c.nextRail+i)%len(c.rails)]
		if k != nil && k.hasRoom() {
			return k
		}
	}
	c.startMissingConns(p)
	return nil
}

func (k *conn) isOpen() bool { return k.state == open }

// hasRoom reports whether a packet can be sent now.
func (k *conn) hasRoom() bool { return k.canWrite() && k.hasCredit() }

// canProbe reports whether a probe can be sent now: it may use reserved credits.
func (k *conn) canProbe() bool { return k.canWrite() && k.canSendAck() }

// canWrite reports whether a write to the peer's ring can be posted, which takes no credit.
func (k *conn) canWrite() bool { return k.state == open && k.Free() > reservedWRs }

// usedConn implements sender.
func (k *conn) usedConn() *conn { return k }

// maxPacket implements sender.
func (k *conn) maxPacket() int { return k.c.cfg.PacketSize }

// startMissingConns starts a connection to a peer on each rail that has none and has not failed;
// with the design Hybrid only to a peer to which many packets were sent (see shouldConnect). If no
// rail is left, the peer is lost.
func (c *Carrier) startMissingConns(p *peer) {
	if c.cfg.Design == Hybrid && p.conns[0] == nil && !c.shouldConnect(p) {
		return
	}
	for _, r := range c.rails {
		if p.conns[r.Num] == nil && p.lost == nil && !p.railFailed[r.Num] {
			err := c.connect(p, r)
			if err == nil {
				continue
			}
			if otherWorks := c.failRail(p, r); !otherWorks || !c.reachable(p) {
				c.losePeer(p, err)
			}
		}
	}
}

// transmit implements sender: it posts a packet. The carrier keeps the packet until the peer's NIC
// or, where a completion does not mean delivery, the peer has acknowledged it.
func (k *conn) transmit(pkt *packet) error {
	c := k.c
	id := c.requests.Add(work{task: sending, conn: k, pkt: pkt})
	wr := k.Request()
	*wr = verbs.SendWR{WRID: id, Opcode: verbs.OpSend, Flags: verbs.SendSignaled, SGL: pkt.AppendSGL(k.SGL(), k.rail.Num)}
	if pkt.HasImm {
		wr.Opcode, wr.Imm = verbs.OpSendImm, pkt.Imm
	}
	if err := k.post(); err != nil {
		c.requests.Remove(id)
		return err
	}
	c.stats.Packets[OverConnection]++
	c.stats.ByRail[k.rail.Num] += uint64(pkt.Len)
	k.packetPosted(pkt)
	k.credits.available--
	if pkt.numbered {
		c.nextRail = (k.rail.Num + 1) % len(c.rails)
	}
	return nil
}

// post posts the work request that the caller has filled in at Request.
func (k *conn) post() error {
	if err := k.Post(); err != nil {
		return err
	}
	k.lastUsed = k.c.Now()
	return nil
}

// requestCompleted handles the completion of any send request; an error fails the connection. When
// no request is outstanding any more, it ends a connection that has failed, or that has sent its
// last packet and need not wait for the peer to close it. It answers a DREQ on one that is closing.
func (k *conn) requestCompleted(wc *verbs.WC) {
	k.CountCompletion()
	if k.rail.needsPeerAcks() {
		k.lastCompletion = k.c.Now()
	}
	if wc.Status != verbs.WCSuccess {
		k.connFailed(statusError{"send request", wc.Status})
	}
	switch {
	case k.Outstanding() > 0 && (k.state != closing || k.AwaitsCompletion()):
	case k.state == failed || k.disconnection.noMorePackets && !k.disconnection.awaitsPeerClose:
		k.c.endConn(k)
	case k.state == closing:
		k.sendDREP()
	}
}

// sendCompleted handles the completion of a packet. It frees a packet that was delivered or need
// not be, and queues a failed one to be sent on another rail.
func (k *conn) sendCompleted(pkt *packet, wc *verbs.WC) {
	p := pkt.peer
	succeeded := wc.Status == verbs.WCSuccess
	delivered := succeeded && !k.rail.needsPeerAcks()
	pkt.acked = pkt.acked || delivered || p.lost != nil || !pkt.numbered
	k.requestCompleted(wc)
	if p.lost != nil { // requestCompleted may have lost it
		pkt.acked = true
	}
	if pkt.acked {
		k.c.freePacket(pkt)
	} else if (!succeeded || k.state == failed) && pkt.sentOn == k && !slices.Contains(p.toReroute, pkt) {
		k.c.queueReroute(pkt)
	}
}

// packetReceived takes the credits that a packet on the connection returns. The first packet opens
// an accepted connection.
func (k *conn) packetReceived(pre *prefix) {
	k.lastUsed = k.c.Now()
	if k.state == accepted {
		k.state = open
		k.c.markBusy(k.peer)
	}
	k.credits.available += int(pre.credits)
}

// returnManyCredits sends a packet without data that returns credits, if the peer lacks credits for
// half of the connection's receives or more, or for half of the slots of its ring.
func (k *conn) returnManyCredits() {
	p := k.peer
	if p.lost == nil && (k.credits.enabled && k.credits.toReturn >= k.c.cfg.Receives/2 || p.ringIn != nil && p.ringIn.slotsToReturn >= p.ringIn.Slots()/2) {
		k.c.sendAckOnly(p, k)
	}
}

// takeCreditsToReturn posts the used receives again, and returns the credits for them, for the
// prefix of the next packet.
func (k *conn) takeCreditsToReturn() uint16 {
	if !k.credits.enabled || k.credits.toReturn == 0 {
		return 0
	}
	recv := k.recv
	if recv == nil {
		recv = &k.rail.srq.recv
	}
	if err := recv.Flush(); err != nil {
		k.c.failAll(err)
		return 0
	}
	n := k.credits.toReturn
	k.credits.toReturn = 0
	return uint16(n)
}

const (
	// reservedCredits are left to packets that return credits, which avoids a deadlock of
	// two ranks without credits.
	reservedCredits = 4
	// minReceives lets credits be returned after half of them are used.
	minReceives = 4
)

// credits counts the receives that the peer has posted for a connection. Each packet takes one.
type credits struct {
	enabled   bool // without them the peer's NIC makes ours wait for receives
	available int
	toReturn  int // receives posted again since credits were last returned
}

// hasCredit reports whether a packet may be sent without using reserved credits.
func (c *credits) hasCredit() bool { return c.available > reservedCredits || !c.enabled }

// canSendAck reports whether an ack-only packet may be sent: it may use reserved credits.
func (c *credits) canSendAck() bool { return c.available > 0 || !c.enabled }
