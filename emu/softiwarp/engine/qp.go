package engine

import (
	"github.com/fabrictest/fabrictest/emu/iwarp"
	"github.com/fabrictest/fabrictest/verbs"
)

// QP is a queue pair.
type QP struct {
	iwarp.Queues
	nic *NIC

	state           verbs.QPState
	attr            verbs.QPAttr // attributes other than the state
	conn            *Conn        // nil if not connected
	end             iwarp.End    // why the last connection failed
	vendorErr       uint32       // end, encoded for completions
	lastWQEReported bool         // LAST_WQE_REACHED was reported

	stream  iwarp.Stream
	sq      sendQueue
	current iwarp.Receive // receive of the current message
	rtr     iwarp.Request // ready-to-receive message of an initiator (RFC 6581)

	// Owner is free for use by the driver.
	Owner any
}

// sendQueue is a ring of send work requests.
type sendQueue struct {
	ring       []iwarp.Request
	head, tail uint32
}

func (q *sendQueue) count() int { return int(q.tail - q.head) }

// CreateQP creates a queue pair of type RC in RESET.
func (n *NIC) CreateQP(c iwarp.QueueConfig) (*QP, error) {
	if err := c.Check(&n.Base); err != nil {
		return nil, err
	}
	num, err := n.qps.Next()
	if err != nil {
		return nil, err
	}
	q := &QP{nic: n}
	slots := q.Init(&n.layer, num, &c)
	q.sq.ring = make([]iwarp.Request, slots)
	maxSGE := c.Caps.MaxRecvSGE
	if c.SRQ != nil {
		maxSGE = c.SRQ.Query().MaxSGE
	}
	q.current.SGL = make([]verbs.SGE, 0, maxSGE) // current is the receive that is being filled
	q.reset()
	n.qps.Add(q)
	return q, nil
}

// DestroyQP destroys a QP. Its outstanding requests get no completions. It aborts the connection of
// the QP, unless the connection is already in a graceful close.
func (n *NIC) DestroyQP(q *QP) error {
	if n.qps.At(q.QPN) != q {
		return q.OpError("destroy_qp", verbs.ErrInvalid, "it is gone already")
	}
	q.dropConn()
	q.Release(q)
	n.qps.Remove(q.QPN)
	return nil
}

func (q *QP) gone() bool { return q.nic.qps.At(q.QPN) != q }

// idle reports whether the QP can be connected.
func (q *QP) idle() bool {
	return (q.state == verbs.QPStateReset || q.state == verbs.QPStateInit) && !q.gone()
}

// reset returns the QP to RESET and discards all posted requests.
func (q *QP) reset() {
	q.state = verbs.QPStateReset
	limit := q.nic.cfg.Limits.RdAtomic
	q.attr = verbs.QPAttr{Access: iwarp.RemoteAccess, Port: 1, MaxRdAtomic: limit, MaxDestRdAtomic: limit}
	q.Access = q.attr.Access
	q.end, q.vendorErr, q.lastWQEReported = iwarp.End{}, 0, false
	q.sq.head = q.sq.tail
	q.RQ.Clear()
	q.stream = iwarp.Stream{}
}

// dropConn aborts the connection and resets the QP. A connection that is closing and has nothing
// left to send but a Terminate continues without the QP, since a TCP reset could discard
// unacknowledged data.
func (q *QP) dropConn() {
	if c := q.conn; c != nil {
		graceful := c.closeWhenSent || c.state == Closing && !q.stream.Live()
		if graceful {
			c.fillMPA() // passes the Terminate, if there is one, to MPA
			c.closeAfterOutput()
		}
		c.detach()
		if !graceful {
			c.abort(ErrAborted)
		}
	}
	q.nic.Mem.UnbindQP(q.QPN)
	q.reset()
}
