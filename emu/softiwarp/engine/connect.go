package engine

import (
	"fmt"

	"github.com/fabrictest/fabrictest/emu/internal/nic"
	"github.com/fabrictest/fabrictest/emu/iwarp"
	"github.com/fabrictest/fabrictest/emu/iwarp/wire"
	"github.com/fabrictest/fabrictest/emu/mono"
	"github.com/fabrictest/fabrictest/emu/softiwarp/mpa"
	"github.com/fabrictest/fabrictest/verbs"
)

// ConnParam are the parameters of one side of a connection.
type ConnParam struct {
	// IRD and ORD are the read depths that this side offers and requests.
	// wire.DepthNotNegotiated leaves them to the applications.
	IRD, ORD    uint16
	PrivateData []byte
	// Revision 1 makes an initiator use MPA without the enhanced connection setup; 0 means the
	// revision of Config.
	Revision uint8
}

// apply sets an initiator's parameters in cfg. Revision 1 (RFC 5044) has no peer-to-peer model.
func (p *ConnParam) apply(cfg *mpa.Config) {
	cfg.IRD, cfg.ORD, cfg.PrivateData = p.IRD, p.ORD, p.PrivateData
	if p.Revision == wire.RevisionRFC5044 {
		cfg.MaxRevision, cfg.PeerToPeer = p.Revision, false
	}
}

// Connect returns the initiator side of a new connection for q, which must be in RESET or INIT. The
// caller opens the TCP stream and then calls Connected.
func (n *NIC) Connect(q *QP, p ConnParam) (*Conn, error) {
	if err := q.checkConnect("connect", &p); err != nil {
		return nil, err
	}
	cfg := n.cfg.MPA
	p.apply(&cfg)
	if err := cfg.Validate(); err != nil {
		return nil, q.OpError("connect", verbs.ErrInvalid, "%w", err)
	}
	p.PrivateData = append([]byte(nil), p.PrivateData...)
	c := n.newConn()
	c.initiator, c.param, c.qp = true, p, q
	if n.cfg.EmptyWriteAfter > 0 { // see sendEmptyWrite
		c.emptyWrites.wait, c.emptyWrites.left = n.cfg.EmptyWriteAfter, maxEmptyWrites
	}
	q.conn = c
	return c, nil
}

// Incoming returns the responder side of a new connection, for an accepted TCP stream.
func (n *NIC) Incoming() *Conn { return n.newConn() }

// newConn returns a new connection. It is the responder unless initiator is set.
func (n *NIC) newConn() *Conn {
	n.Count.Conns++
	c := &Conn{nic: n, deadlines: deadlines{closeDeadline: mono.Never, emptyWrites: emptyWrites{at: mono.Never}}}
	c.timer.Owner, c.timer.TieBreak = c, uint32(n.Count.Conns) // equal deadlines expire in the order of creation
	return c
}

// checkConnect returns an error unless the QP has no connection and is in RESET or INIT, and the
// depths of p are within the limit of the device.
func (q *QP) checkConnect(op string, p *ConnParam) error {
	limit := uint16(q.nic.cfg.Limits.RdAtomic)
	switch {
	case q.conn != nil:
		return q.OpError(op, verbs.ErrBusy, "it has a connection")
	case !q.idle():
		return q.OpError(op, verbs.ErrInvalid, "state is %v, not RESET or INIT", q.state)
	}
	for _, d := range [...]uint16{p.IRD, p.ORD} {
		if d > limit && d != wire.DepthNotNegotiated {
			return q.OpError(op, verbs.ErrInvalid, "a depth of %d reads (IRD or ORD), the limit is %d", d, limit)
		}
	}
	return nil
}

// unnamed is the object of verbs on a connection, which has no number.
const unnamed = ""

// Accept accepts the peer's MPA Request and connects q, which must be in RESET or INIT.
func (c *Conn) Accept(now mono.Time, q *QP, p ConnParam) error {
	c.nic.clock = now
	if c.state != Requested {
		return nic.OpError("accept", unnamed, "%w: the connection is %v", verbs.ErrInvalid, c.state)
	}
	if err := q.checkConnect("accept", &p); err != nil {
		return err
	}
	if err := c.mpa.Accept(mpa.AcceptParam{IRD: p.IRD, ORD: p.ORD, PrivateData: p.PrivateData}); err != nil {
		return q.OpError("accept", verbs.ErrInvalid, "%w", err)
	}
	c.qp, q.conn = q, c
	c.openStream()
	q.state = verbs.QPStateRTS
	c.setState(Accepted)
	if !c.mpa.Params().PeerToPeer {
		c.setState(Established) // the initiator sends no ready-to-receive message
	}
	c.queueOutput()
	return nil
}

// Reject rejects the peer's MPA Request and closes the connection.
func (c *Conn) Reject(now mono.Time, private []byte) error {
	c.nic.clock = now
	if c.state != Requested {
		return nic.OpError("reject", unnamed, "%w: the connection is %v", verbs.ErrInvalid, c.state)
	}
	if err := c.mpa.Reject(mpa.AcceptParam{PrivateData: private}); err != nil {
		return nic.OpError("reject", unnamed, "%w: %w", verbs.ErrInvalid, err)
	}
	c.closeAfterOutput()
	return nil
}

// openStream opens the stream of the queue pair with the negotiated parameters. Consortium selects
// version 0 of DDP and RDMAP, which the RDMA Consortium defined.
func (c *Conn) openStream() {
	p, limit := c.mpa.Params(), uint16(c.nic.cfg.Limits.RdAtomic)
	c.depths.ird, c.depths.ord = negotiatedDepth(p.IRD, limit), negotiatedDepth(p.ORD, limit)
	c.qp.stream.Open(&c.qp.Endpoint, (*streamOwner)(c.qp), iwarp.Options{
		IRD: c.depths.ird, ORD: c.depths.ord, Responder: !c.initiator, PeerToPeer: p.PeerToPeer,
		Consortium: p.Revision == wire.RevisionConsortium && c.nic.cfg.MPA.Consortium,
	})
}

// negotiatedDepth returns an IRD or ORD of an MPA frame. If the peer leaves it to the applications
// (RFC 6581: 0x3fff), it returns the device's limit.
func negotiatedDepth(depth, limit uint16) uint16 {
	if depth == wire.DepthNotNegotiated {
		return limit
	}
	return depth
}

// receiveReply connects the initiator's queue pair after the MPA Reply was received. If the queue
// pair was destroyed or failed meanwhile, it ends the connection.
func (c *Conn) receiveReply(p *mpa.Params) {
	q := c.qp
	if q == nil {
		c.abort(ErrAborted)
		return
	}
	if !q.idle() {
		c.failUnusableQP()
		return
	}
	c.openStream()
	q.state = verbs.QPStateRTS
	if p.PeerToPeer {
		c.postRTR(p.RTR)
	}
	c.setState(Established)
	c.queueOutput()
}

// failUnusableQP ends a connection whose queue pair failed during connection setup: with a
// Terminate, as RFC 6581 requires, or with the policy ResetUnusable by a TCP reset.
func (c *Conn) failUnusableQP() {
	c.err = fmt.Errorf("%w: the queue pair is in %v", ErrAborted, c.qp.state)
	if c.nic.policy.ResetUnusable {
		c.abort(c.err)
		return
	}
	c.openStream()
	c.qp.stream.Fail(wire.TermMPALocal, sendTerminate)
	c.closeAfterOutput()
}

// postRTR posts the initiator's ready-to-receive message of RFC 6581: a message of no octets.
func (c *Conn) postRTR(rtr mpa.RTR) {
	r := &c.qp.rtr
	*r = iwarp.Request{RTR: true}
	switch rtr {
	case mpa.RTRRead:
		r.Op = verbs.OpRDMARead
	case mpa.RTRWrite:
		r.Op = verbs.OpRDMAWrite
	default:
		r.Op = verbs.OpSend
	}
	r.Remote.RKey = verbs.RKey(iwarp.AnySTag) // not checked, since no octet is read or written
	c.qp.stream.Post(r)
}
