package engine

import (
	"fmt"

	"github.com/fabrictest/fabrictest/emu/internal/iwarp"
	"github.com/fabrictest/fabrictest/emu/internal/nic"
	"github.com/fabrictest/fabrictest/emu/mono"
	"github.com/fabrictest/fabrictest/emu/softiwarp/mpa"
	"github.com/fabrictest/fabrictest/emu/softiwarp/wire"
	"github.com/fabrictest/fabrictest/verbs"
)

// ConnParam is what one side brings to a connection.
type ConnParam struct {
	// IRD and ORD are how many reads and atomics this side takes and wants to have
	// under way. wire.DepthNotNegotiated leaves one to the applications.
	IRD, ORD    uint16
	PrivateData []byte
	// Revision 1 keeps an initiator from the enhanced start-up; 0 is Config's.
	Revision uint8
}

// revision is what an initiator speaks, and whether in the peer-to-peer model.
func (p *ConnParam) revision(cfg *mpa.Config) (revision uint8, peerToPeer bool) {
	if p.Revision == wire.RevisionRFC5044 {
		return p.Revision, false
	}
	return cfg.MaxRevision, cfg.PeerToPeer
}

// Connect makes the initiator's end of a connection for q, which must be idle.
// The caller has it dialed.
func (n *NIC) Connect(q *QP, p ConnParam) (*Conn, error) {
	if err := n.checkIdle("connect", q); err != nil {
		return nil, err
	}
	cfg := n.cfg.MPA
	cfg.IRD, cfg.ORD, cfg.PrivateData = p.IRD, p.ORD, p.PrivateData
	cfg.MaxRevision, cfg.PeerToPeer = p.revision(&cfg)
	if err := cfg.Validate(); err != nil {
		return nil, nic.OpError("connect", q.name(), "%w: %w", verbs.ErrInvalid, err)
	}
	if err := n.checkDepths("connect", q.name(), &p); err != nil {
		return nil, err
	}
	p.PrivateData = append([]byte(nil), p.PrivateData...)
	c := n.newConn()
	c.initiator, c.param, c.qp = true, p, q
	if n.cfg.Nudge > 0 {
		c.nudge.wait, c.nudge.left = n.cfg.Nudge, maxNudges
	}
	q.conn = c
	return c, nil
}

// Incoming makes the responder's end of a connection, for a stream that was
// accepted.
func (n *NIC) Incoming() *Conn { return n.newConn() }

func (n *NIC) newConn() *Conn {
	n.Count.Conns++
	c := &Conn{nic: n, closeBy: mono.Never, nudge: nudge{at: mono.Never}}
	c.timer.Owner, c.timer.TieBreak = c, uint32(n.Count.Conns) // what is due together goes by age
	return c
}

func (n *NIC) checkIdle(op string, q *QP) error {
	switch {
	case q.conn != nil:
		return nic.OpError(op, q.name(), "%w: it has a connection", verbs.ErrBusy)
	case !q.idle():
		return nic.OpError(op, q.name(), "%w: state is %v, not RESET or INIT", verbs.ErrInvalid, q.state)
	}
	return nil
}

// checkDepths refuses more reads than the device has room for.
func (n *NIC) checkDepths(op, obj string, p *ConnParam) error {
	limit := uint16(n.cfg.Limits.RdAtomic)
	for _, d := range [...]uint16{p.IRD, p.ORD} {
		if d > limit && d != wire.DepthNotNegotiated {
			return nic.OpError(op, obj, "%w: %d reads, limit %d", verbs.ErrInvalid, d, limit)
		}
	}
	return nil
}

// Accept answers a Request: q, which must be idle, is connected.
func (c *Conn) Accept(now mono.Time, q *QP, p ConnParam) error {
	c.nic.clock = now
	if c.state != Requested {
		return nic.OpError("accept", "", "%w: the connection is %v", verbs.ErrInvalid, c.state)
	}
	if err := c.nic.checkIdle("accept", q); err != nil {
		return err
	}
	if err := c.nic.checkDepths("accept", q.name(), &p); err != nil {
		return err
	}
	if err := c.mpa.Accept(now, mpa.AcceptParam{IRD: p.IRD, ORD: p.ORD, PrivateData: p.PrivateData}); err != nil {
		return nic.OpError("accept", q.name(), "%w: %w", verbs.ErrInvalid, err)
	}
	c.qp, q.conn = q, c
	c.openStream()
	q.state = verbs.QPStateRTS
	c.setState(Accepted)
	if !c.mpa.Params().PeerToPeer {
		c.setState(Established) // nothing says that the initiator knows
	}
	c.queueOutput()
	return nil
}

// Reject answers a Request: the connection is refused.
func (c *Conn) Reject(now mono.Time, private []byte) error {
	c.nic.clock = now
	if c.state != Requested {
		return nic.OpError("reject", "", "%w: the connection is %v", verbs.ErrInvalid, c.state)
	}
	if err := c.mpa.Reject(now, private); err != nil {
		return nic.OpError("reject", "", "%w: %w", verbs.ErrInvalid, err)
	}
	c.closeAfterOutput()
	return nil
}

// openStream starts DDP on what the start-up has settled.
func (c *Conn) openStream() {
	p, limit := c.mpa.Params(), uint16(c.nic.cfg.Limits.RdAtomic)
	c.depths.ird, c.depths.ord = negotiatedDepth(p.IRD, limit), negotiatedDepth(p.ORD, limit)
	c.qp.stream.Open(&c.qp.endpoint, (*streamOwner)(c.qp), iwarp.Options{
		IRD: c.depths.ird, ORD: c.depths.ord, Responder: !c.initiator, PeerToPeer: p.PeerToPeer,
		Consortium: p.Revision == wire.RevisionConsortium && c.nic.cfg.MPA.Consortium,
	})
}

// settled is a depth that was agreed on, or if it was left to the applications
// the most that the device has.
func negotiatedDepth(depth, limit uint16) uint16 {
	if depth == wire.DepthNotNegotiated {
		return limit
	}
	return depth
}

// accepted is an initiator that has the Reply.
func (c *Conn) receiveReply(p *mpa.Params) {
	q := c.qp
	if q == nil {
		c.abort(ErrCutOff)
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
	c.setState(Accepted)
	c.setState(Established)
	c.queueOutput()
}

// unusable ends a connection whose queue pair failed while it was being made.
// RFC 6581 has the peer told so.
func (c *Conn) failUnusableQP() {
	c.err = fmt.Errorf("%w: the queue pair is in %v", ErrCutOff, c.qp.state)
	if c.nic.defects.NoStartupTerminate {
		c.abort(c.err)
		return
	}
	c.openStream()
	c.qp.stream.Fail(wire.TermMPALocal, true)
	c.closeAfterOutput()
}

// sayReady has the initiator say, before anything else, that it is ready to
// receive: by a message of no octets, which is one like any other.
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
	r.Remote.RKey = verbs.RKey(iwarp.AnySTag)
	c.qp.stream.Post(r)
}
