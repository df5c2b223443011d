package engine

import (
	"fmt"

	"github.com/fabrictest/fabrictest/emu/internal/nic"
	"github.com/fabrictest/fabrictest/emu/iwarp"
	"github.com/fabrictest/fabrictest/verbs"
)

// QP is a queue pair.
type QP struct {
	nic  *NIC
	num  uint32
	caps verbs.QPCaps

	sendCQ, recvCQ *nic.CQ
	srq            *nic.SRQ
	signalAll      bool

	state           verbs.QPState
	attr            verbs.QPAttr // attributes other than the state
	conn            *Conn        // nil if not connected
	end             iwarp.End    // why the last connection failed
	vendorErr       uint32       // end, encoded for completions
	lastWQEReported bool         // LAST_WQE_REACHED was reported

	endpoint iwarp.Endpoint
	stream   iwarp.Stream

	sq      sendQueue
	rq      nic.RecvQueue
	current iwarp.Receive // receive of the current message
	rtr     iwarp.Request // ready-to-receive message of an initiator (RFC 6581)

	// Owner is free for use by the driver.
	Owner any
}

// sendQueue is a ring of send work requests.
type sendQueue struct {
	ring       []iwarp.Request
	slots      nic.Slots
	depth      uint32
	head, tail uint32
}

func (q *sendQueue) count() uint32 { return q.tail - q.head }

// QPConfig are the parameters of CreateQP.
type QPConfig struct {
	Type           verbs.QPType
	PD             nic.PD
	SendCQ, RecvCQ *nic.CQ
	SRQ            *nic.SRQ
	Caps           verbs.QPCaps
	SignalAll      bool
}

// CreateQP creates a queue pair in RESET.
func (n *NIC) CreateQP(c QPConfig) (*QP, error) {
	if err := n.checkQP(&c); err != nil {
		return nil, err
	}
	num, err := n.qps.Next()
	if err != nil {
		return nil, err
	}
	q := &QP{
		nic: n, num: num, caps: c.Caps, sendCQ: c.SendCQ, recvCQ: c.RecvCQ, srq: c.SRQ, signalAll: c.SignalAll,
		endpoint: iwarp.Endpoint{Layer: &n.layer, PD: c.PD, QPN: num},
	}
	slots, places := nic.NewSlots(c.Caps.MaxSendWR, c.Caps.MaxSendSGE, c.Caps.MaxInline)
	q.sq = sendQueue{ring: make([]iwarp.Request, places), slots: slots, depth: uint32(c.Caps.MaxSendWR)}
	if c.SRQ == nil {
		q.rq = nic.NewRecvQueue(c.Caps.MaxRecvWR, c.Caps.MaxRecvSGE)
		q.current.SGL = make([]verbs.SGE, 0, c.Caps.MaxRecvSGE)
	} else {
		c.SRQ.Use(1)
		q.current.SGL = make([]verbs.SGE, 0, c.SRQ.Query().MaxSGE)
	}
	c.SendCQ.Use(1)
	c.RecvCQ.Use(1)
	n.UsePD(c.PD, 1)
	q.reset()
	n.qps.Add(q)
	return q, nil
}

// checkQP returns an error if a QP with this configuration cannot be created.
func (n *NIC) checkQP(c *QPConfig) error {
	invalid := func(format string, args ...any) error {
		return nic.OpError("create_qp", "", "%w: "+format, append([]any{verbs.ErrInvalid}, args...)...)
	}
	switch {
	case c.Type != verbs.QPTypeRC:
		return nic.OpError("create_qp", "", "%w: type %v: iWARP has only %v", verbs.ErrNotSupported, c.Type, verbs.QPTypeRC)
	case c.SendCQ == nil || c.RecvCQ == nil || c.SendCQ.Gone() || c.RecvCQ.Gone():
		return invalid("it needs a send and a receive CQ")
	case c.SRQ != nil && (c.SRQ.Type != verbs.SRQBasic || n.SRQ(c.SRQ.Num()) != c.SRQ):
		return invalid("not a shared receive queue of this device")
	}
	if err := n.CheckPD("create_qp", c.PD); err != nil {
		return err
	}
	return n.CheckCaps(&c.Caps)
}

// DestroyQP destroys a QP without completions. Its connection is aborted, unless it is already
// closing gracefully.
func (n *NIC) DestroyQP(q *QP) error {
	if n.qps.At(q.num) != q {
		return nic.OpError("destroy_qp", q.name(), "%w: it is gone already", verbs.ErrInvalid)
	}
	q.dropConn()
	q.sendCQ.Use(-1)
	q.recvCQ.Use(-1)
	if q.srq != nil {
		q.srq.Use(-1)
	}
	n.UsePD(q.endpoint.PD, -1)
	n.Mem.UnbindQP(q.num)
	n.DropEvents(func(e *nic.Event) bool { return e.QP == any(q) })
	n.qps.Remove(q.num)
	return nil
}

// Num is the QP's number.
func (q *QP) Num() uint32 { return q.num }

// Type is the QP's type.
func (q *QP) Type() verbs.QPType { return verbs.QPTypeRC }

// State is the QP's state.
func (q *QP) State() verbs.QPState { return q.state }

// Conn is the QP's connection; nil if it has none.
func (q *QP) Conn() *Conn { return q.conn }

func (q *QP) name() string { return fmt.Sprintf("qp %#x", q.num) }

func (q *QP) gone() bool { return q.nic.qps.At(q.num) != q }

// idle reports whether the QP can be connected.
func (q *QP) idle() bool {
	return (q.state == verbs.QPStateReset || q.state == verbs.QPStateInit) && !q.gone()
}

// reset returns the QP to RESET and discards all posted requests.
func (q *QP) reset() {
	q.state = verbs.QPStateReset
	limit := q.nic.cfg.Limits.RdAtomic
	q.attr = verbs.QPAttr{Access: iwarp.RemoteAccess, Port: 1, MaxRdAtomic: limit, MaxDestRdAtomic: limit}
	q.endpoint.Access = q.attr.Access
	q.end, q.vendorErr, q.lastWQEReported = iwarp.End{}, 0, false
	q.sq.head = q.sq.tail
	q.rq.Clear()
	q.stream = iwarp.Stream{}
}

// dropConn aborts the connection and resets the QP. A connection that is closing and has
// nothing left to send but a Terminate continues without the QP, since a TCP reset could
// discard unacknowledged data.
func (q *QP) dropConn() {
	if c := q.conn; c != nil {
		ends := c.closeWhenSent || c.state == Closing && !q.stream.Live()
		if ends {
			c.fill()
			c.closeAfterOutput()
		}
		c.detach()
		if !ends {
			c.abort(ErrAborted)
		}
	}
	q.nic.Mem.UnbindQP(q.num)
	q.reset()
}
