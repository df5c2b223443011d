package workload

import (
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
	bySource map[source]int // connection
}

// source is the address of a datagram's sender.
type source struct {
	gid verbs.GID
	qpn verbs.QPN
}

// openEndpoint creates an endpoint: a queue pair that some connections of the service rd (reliable
// datagrams) share. It posts the receives; num is the number of their ring in work request IDs.
func (r *rail) openEndpoint(num, conns int, l *layout) (err error) {
	e := &endpoint{rail: r, bySource: map[source]int{}}
	r.endpoints = append(r.endpoints, e)
	sends, receives := conns*(l.depth+spareRequests), conns*l.receives // spareRequests are for other requests than messages
	e.qp, err = r.dev.CreateQP(verbs.QPInit{
		Type: verbs.QPTypeUD, PD: r.PD, SendCQ: r.CQs[0], RecvCQ: r.CQs[0],
		Caps: verbs.QPCaps{MaxSendWR: sends, MaxRecvWR: receives, MaxSendSGE: 1, MaxRecvSGE: 1},
	})
	if err != nil {
		return fmt.Errorf("create a queue pair for %d peers: %w", conns, err)
	}
	if err := traffic.Connect(e.qp, verbs.QPAttr{Port: 1, QKey: r.endpointQKey(r.rank.Rank)}); err != nil {
		return err
	}
	mem := &memory{buf: make([]byte, receives*l.recvLen)}
	e.recv = newRing(r.env, traffic.NewRecvRing(num, receives, sharedQueue), mem, l.recvLen)
	e.recv.endpoint = e
	if err := mem.register(r, verbs.AccessLocalWrite); err != nil {
		return err
	}
	return e.recv.attach(e.qp)
}

// endpointQKey is the Q_Key of a rank's endpoints.
func (e *env) endpointQKey(rank int) uint32 {
	const salt = 4                                               // makes the keys differ from others of the seed
	return uint32(traffic.Derive(e.rank.Seed, rank, salt) >> 33) // below 2^31: an unprivileged Q_Key
}

// connOf returns the connection of a datagram's source. For an unknown source it records a violation
// and returns noConn.
func (e *endpoint) connOf(wc *verbs.WC, slot int) int {
	log, me := e.rail.log, e.rail.host()
	if wc.ByteLen < verbs.GRHLen {
		log.violation(traffic.Completion, "%s: a datagram of %d bytes is shorter than its GRH", me, wc.ByteLen)
		return noConn
	}
	reply, err := verbs.InitAHFromWC(1, e.rail.gidIndex, wc, e.recv.bytes(slot, verbs.GRHLen))
	if err != nil {
		log.violation(traffic.Completion, "%s: the source of a datagram cannot be read: %v", me, err)
		return noConn
	}
	c, ok := e.bySource[source{reply.GRH.DGID, wc.SrcQP}]
	if !ok {
		log.violation(traffic.Delivery, "%s: a message of queue pair %#x of %v, which is not a peer", me, wc.SrcQP, reply.GRH.DGID)
		return noConn
	}
	return c
}

// broken reports, after a receive has failed, whether the queue pair is in the error state, and if
// so stops posting receives. If not, only one message is lost, which concerns its sender alone.
func (e *endpoint) broken() bool {
	attr, err := e.qp.Query()
	e.recv.closed = e.recv.closed || err != nil || attr.State == verbs.QPStateErr
	return e.recv.closed
}
