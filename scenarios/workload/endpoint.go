package workload

import (
	"errors"
	"fmt"

	"github.com/fabrictest/fabrictest/traffic"
	"github.com/fabrictest/fabrictest/verbs"
)

// endpoint is a queue pair of reliable datagrams with its receives. The connections of a
// rail share it, and its messages are assigned by their source. Several edges between two
// ranks use different endpoints, because their sources would be the same.
type endpoint struct {
	rail     *rail
	qp       verbs.QP
	recv     *recvRing
	conns    []*conn
	bySource map[source]*conn
}

// source is the address of a datagram's sender.
type source struct {
	gid verbs.GID
	qpn verbs.QPN
}

// endpointIndex counts the earlier connections with the same peer and rail.
func (c *conn) endpointIndex() (n int) {
	for _, other := range c.n.conns[:c.index] {
		if other.peer == c.peer && other.edge.rail == c.edge.rail {
			n++
		}
	}
	return n
}

// openEndpoints creates the endpoints that the connections of the rail need. They can
// receive at once.
func (r *rail) openEndpoints(l *layout) error {
	var loads []int // connections of each endpoint
	for _, c := range r.n.conns {
		if c.railOf(0).num != r.num {
			continue
		}
		for len(loads) <= c.endpointIndex() {
			loads = append(loads, 0)
		}
		loads[c.endpointIndex()]++
	}
	for _, conns := range loads {
		e := &endpoint{rail: r, bySource: map[source]*conn{}}
		r.endpoints = append(r.endpoints, e)
		if err := e.open(conns, l); err != nil {
			return err
		}
	}
	return nil
}

func (e *endpoint) open(conns int, l *layout) (err error) {
	r, sends, receives := e.rail, conns*(l.depth+spareRequests), conns*l.receives
	e.qp, err = r.dev.CreateQP(verbs.QPInit{
		Type: verbs.QPTypeUD, PD: r.pd, SendCQ: r.cq, RecvCQ: r.cq,
		Caps: verbs.QPCaps{MaxSendWR: sends, MaxRecvWR: receives, MaxSendSGE: 1, MaxRecvSGE: 1},
	})
	if err != nil {
		return fmt.Errorf("create a queue pair for %d peers: %w", conns, err)
	}
	if err := traffic.Connect(e.qp, verbs.QPAttr{Port: 1, QKey: r.n.qkeyOf(r.n.rank.Rank)}); err != nil {
		return err
	}
	mem := &memory{buf: make([]byte, receives*l.recvLen)}
	e.recv = r.n.newRing(mem, receives, l.recvLen, true)
	e.recv.endpoint = e
	if err := mem.register(r, verbs.AccessLocalWrite); err != nil {
		return err
	}
	return e.recv.attach(e.qp)
}

func (e *endpoint) close() error {
	errs := []error{e.qp.Close()}
	if e.recv != nil {
		errs = append(errs, e.recv.mem.close())
	}
	return errors.Join(errs...)
}

// qkeyOf is the Q_Key of a rank's endpoints.
func (n *node) qkeyOf(rank int) uint32 {
	return uint32(traffic.Derive(n.rank.Seed, rank, 4) >> 33) // below 2^31: an unprivileged Q_Key
}

// peerQKey is the Q_Key of the peer's queue pair.
func (c *conn) peerQKey() uint32 {
	if c.endpoint != nil {
		return c.n.qkeyOf(c.peer)
	}
	return c.qkey(1 - c.side)
}

// addConn creates the address handle of a connection, and assigns datagrams from its peer
// to it.
func (e *endpoint) addConn(c *conn) (err error) {
	from := source{c.peerInfo.GID, c.peerInfo.QPN}
	switch other := e.bySource[from]; other {
	case c:
	case nil:
		e.bySource[from] = c
		e.conns = append(e.conns, c)
	default:
		return fmt.Errorf("queue pair %#x of %v is the peer of two connections", from.qpn, from.gid)
	}
	c.ah, err = e.rail.pd.CreateAH(c.address())
	return err
}

// connOf returns the connection of a completed receive; nil if there is none.
func (e *endpoint) connOf(wc *verbs.WC, slot int) *conn {
	if wc.Status != verbs.WCSuccess {
		e.receiveFailed(wc.Status)
		return nil
	}
	log, me := e.rail.n.log, hostOf(e.rail.n.rank.Rank)
	if wc.ByteLen < verbs.GRHLen {
		log.violation(traffic.Completion, "%s: a datagram of %d bytes is shorter than its GRH", me, wc.ByteLen)
		return nil
	}
	reply, err := verbs.InitAHFromWC(1, e.rail.gidIndex, wc, e.recv.bytes(slot, verbs.GRHLen))
	if err != nil {
		log.violation(traffic.Completion, "%s: the source of a datagram cannot be read: %v", me, err)
		return nil
	}
	c := e.bySource[source{reply.GRH.DGID, wc.SrcQP}]
	switch {
	case c == nil:
		log.violation(traffic.Delivery, "%s: a message of queue pair %#x of %v, which is not a peer", me, wc.SrcQP, reply.GRH.DGID)
		return nil
	case c.qp == nil:
		return nil // it ended early
	}
	return c
}

// receiveFailed handles a failed receive. An incomplete message matters to its sender only,
// but if the queue pair is in the error state, all its connections fail.
func (e *endpoint) receiveFailed(status verbs.WCStatus) {
	if attr, err := e.qp.Query(); err == nil && attr.State != verbs.QPStateErr {
		return
	}
	e.recv.closed = true
	for _, c := range e.conns {
		if c.qp != nil {
			c.fail(status)
		}
	}
}
