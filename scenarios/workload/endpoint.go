package workload

import (
	"errors"
	"fmt"

	"github.com/fabrictest/fabrictest/verbs"
)

// endpoint is a queue pair of reliable datagrams and its receives. All connections
// of a rail share it, which here are no more than flows between two such queue
// pairs: what comes in belongs to the one whose peer it is from. Where two ranks
// have several edges, each is in an endpoint of its own, since nothing else would
// tell their messages apart.
type endpoint struct {
	rail   *rail
	qp     verbs.QP
	recv   *ring
	conns  []*conn
	source map[source]*conn
}

// source is where a datagram comes from.
type source struct {
	gid verbs.GID
	qpn verbs.QPN
}

// twin is how many connections with the same peer on the same rail come before
// this one.
func (c *conn) twin() (n int) {
	for _, other := range c.n.conns[:c.num] {
		if other.peer == c.peer && other.edge.lane == c.edge.lane {
			n++
		}
	}
	return n
}

// openEndpoints makes as many queue pairs as the connections of the rail need, with
// their receives. They can be sent to at once.
func (r *rail) openEndpoints(l *layout) error {
	var loads []int // connections of each
	for _, c := range r.n.conns {
		if c.railOf(0).num != r.num {
			continue
		}
		for len(loads) <= c.twin() {
			loads = append(loads, 0)
		}
		loads[c.twin()]++
	}
	for _, conns := range loads {
		e := &endpoint{rail: r, source: map[source]*conn{}}
		r.ends = append(r.ends, e)
		if err := e.open(conns, l); err != nil {
			return err
		}
	}
	return nil
}

func (e *endpoint) open(conns int, l *layout) (err error) {
	r, sends, receives := e.rail, conns*(l.depth+spareRequests), conns*l.recvs
	e.qp, err = r.dev.CreateQP(verbs.QPInit{
		Type: verbs.QPTypeUD, PD: r.pd, SendCQ: r.cq, RecvCQ: r.cq,
		Caps: verbs.QPCaps{MaxSendWR: sends, MaxRecvWR: receives, MaxSendSGE: 1, MaxRecvSGE: 1},
	})
	if err != nil {
		return fmt.Errorf("a queue pair for %d peers: %w", conns, err)
	}
	for _, to := range []struct {
		attr verbs.QPAttr
		mask verbs.QPAttrMask
	}{
		{verbs.QPAttr{State: verbs.QPStateInit, Port: 1, QKey: r.n.keyOf(r.n.rank.Rank)}, verbs.QPAttrPKeyIndex | verbs.QPAttrPort | verbs.QPAttrQKey},
		{verbs.QPAttr{State: verbs.QPStateRTR}, 0},
		{verbs.QPAttr{State: verbs.QPStateRTS}, verbs.QPAttrSQPSN},
	} {
		if err := e.qp.Modify(to.attr, verbs.QPAttrState|to.mask); err != nil {
			return err
		}
	}
	mem := &memory{buf: make([]byte, receives*l.room)}
	e.recv = r.n.newRing(mem, receives, l.room)
	e.recv.shared, e.recv.via = true, e
	if err := mem.register(r, verbs.AccessLocalWrite); err != nil {
		return err
	}
	return e.recv.attach(r, e.qp)
}

func (e *endpoint) close() error {
	errs := []error{e.qp.Close()}
	if e.recv != nil {
		errs = append(errs, e.recv.mem.close())
	}
	return errors.Join(errs...)
}

// keyOf is the Q_Key of a rank's endpoints.
func (n *node) keyOf(rank int) uint32 {
	return uint32(derive(n.rank.Seed, rank, 4) >> 33) // below 2^31: no privilege asked for
}

// peerKey is the Q_Key of the queue pair that datagrams go to.
func (c *conn) peerKey() uint32 {
	if c.via != nil {
		return c.n.keyOf(c.peer)
	}
	return c.qkey(1 - c.me)
}

// join makes a connection one of the endpoint's: there is an address to send to, and
// what comes from there is its.
func (e *endpoint) join(c *conn) (err error) {
	from := source{c.peerCard.GID, c.peerCard.QPN}
	switch other := e.source[from]; other {
	case c:
	case nil:
		e.source[from] = c
		e.conns = append(e.conns, c)
	default:
		return fmt.Errorf("queue pair %#x of %v is the peer of two connections", from.qpn, from.gid)
	}
	c.ah, err = e.rail.pd.CreateAH(c.address())
	return err
}

// whose is the connection that a completed receive is for; nil if nobody waits for
// it any more.
func (e *endpoint) whose(wc *verbs.WC, slot int) *conn {
	if wc.Status != verbs.WCSuccess {
		e.unsuccessful(wc.Status)
		return nil
	}
	log, me := e.rail.n.log, hostOf(e.rail.n.rank.Rank)
	if wc.ByteLen < verbs.GRHLen {
		log.violation(Completion, "%s: a datagram of %d bytes has no room for its header area", me, wc.ByteLen)
		return nil
	}
	reply, err := verbs.InitAHFromWC(1, e.rail.index, wc, e.recv.bytes(slot, verbs.GRHLen))
	if err != nil {
		log.violation(Completion, "%s: a datagram that does not say where it came from: %v", me, err)
		return nil
	}
	c := e.source[source{reply.GRH.DGID, wc.SrcQP}]
	switch {
	case c == nil:
		log.violation(Delivery, "%s: a message of queue pair %#x of %v, which is nobody's peer", me, wc.SrcQP, reply.GRH.DGID)
		return nil
	case c.qp == nil:
		return nil // it has ended early
	}
	return c
}

// unsuccessful takes a receive that completed in error. Of a message that will not
// end nobody has to know: its sender does. But if the queue pair is in Error, all
// that use it must end.
func (e *endpoint) unsuccessful(status verbs.WCStatus) {
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
