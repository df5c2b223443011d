package iwarp

import (
	"fmt"

	"github.com/fabrictest/fabrictest/emu/internal/nic"
	"github.com/fabrictest/fabrictest/verbs"
)

// QueueConfig are the parameters of the queues of a queue pair.
type QueueConfig struct {
	PD             nic.PD
	SendCQ, RecvCQ *nic.CQ
	SRQ            *nic.SRQ
	Caps           verbs.QPCaps
	SignalAll      bool
}

// Check returns an error if NIC n cannot create a queue pair with these parameters.
func (c *QueueConfig) Check(n *nic.Base) error {
	switch {
	case c.SendCQ == nil || c.RecvCQ == nil || c.SendCQ.Gone() || c.RecvCQ.Gone():
		return nic.OpError("create_qp", "", "%w: it needs a send and a receive CQ", verbs.ErrInvalid)
	case c.SRQ != nil && (c.SRQ.Type != verbs.SRQBasic || n.SRQ(c.SRQ.Num()) != c.SRQ):
		return nic.OpError("create_qp", "", "%w: not a shared receive queue of this device", verbs.ErrInvalid)
	}
	if err := n.CheckPD("create_qp", c.PD); err != nil {
		return err
	}
	return n.CheckCaps(&c.Caps)
}

// Queues are the part of a queue pair that all engines have in common: its endpoint and its queues.
type Queues struct {
	Endpoint
	SendCQ, RecvCQ *nic.CQ
	SRQ            *nic.SRQ
	RQ             nic.RecvQueue // empty if there is an SRQ
	Caps           verbs.QPCaps
	SignalAll      bool
	Slots          nic.Slots // memory of posted sends
}

// Init creates the queues of queue pair num, without access rights, and returns the number of
// Slots, the entries of the send queue. The CQs, the SRQ and the PD are in use until Release.
func (q *Queues) Init(l *Layer, num uint32, c *QueueConfig) (slots int) {
	*q = Queues{
		Endpoint: Endpoint{Layer: l, PD: c.PD, QPN: num},
		SendCQ:   c.SendCQ, RecvCQ: c.RecvCQ, SRQ: c.SRQ, Caps: c.Caps, SignalAll: c.SignalAll,
	}
	if c.SRQ == nil {
		q.RQ = nic.NewRecvQueue(c.Caps.MaxRecvWR, c.Caps.MaxRecvSGE)
	}
	q.use(1)
	q.Slots, slots = nic.NewSlots(c.Caps.MaxSendWR, c.Caps.MaxSendSGE, c.Caps.MaxInline)
	return slots
}

// Release ends the use of the queue pair's objects, unbinds its windows and drops the events of qp.
func (q *Queues) Release(qp any) {
	n := q.Layer.NIC
	q.use(-1)
	n.Mem.UnbindQP(q.QPN)
	n.DropEvents(func(e *nic.Event) bool { return e.QP == qp })
}

// use adds n to the number of users of the CQs, the SRQ and the PD.
func (q *Queues) use(n int) {
	q.SendCQ.Use(n)
	q.RecvCQ.Use(n)
	if q.SRQ != nil {
		q.SRQ.Use(n)
	}
	q.Layer.NIC.UsePD(q.PD, n)
}

// Name returns the name of the queue pair in errors.
func (q *Queues) Name() string { return fmt.Sprintf("qp %#x", q.QPN) }

// OpError returns an error of a verb about the queue pair, which wraps err and says why.
func (q *Queues) OpError(verb string, err error, why string, args ...any) error {
	return nic.OpError(verb, q.Name(), "%w: "+why, append([]any{err}, args...)...)
}

// PeekReceive returns the oldest posted receive, without removing it, and its protection domain;
// nil if there is none.
func (q *Queues) PeekReceive() (*nic.Receive, nic.PD) {
	if q.SRQ != nil {
		return q.SRQ.Peek(), q.SRQ.PD
	}
	return q.RQ.Peek(), q.PD
}

// TakeReceive removes the receive that PeekReceive returns.
func (q *Queues) TakeReceive() {
	if q.SRQ != nil {
		q.SRQ.Take()
	} else {
		q.RQ.Take()
	}
}

// CheckLengths returns an error if a send work request has more inline data or SGEs than the queue
// pair takes, or a message longer than maxMessage or wrong for the opcode. window is the window of
// a bind request, which needs one.
func (q *Queues) CheckLengths(wr *verbs.SendWR, maxMessage uint64, window *nic.Window) error {
	invalid := func(why string, args ...any) error { return q.OpError("post_send", verbs.ErrInvalid, why, args...) }
	inline := wr.Flags&verbs.SendInline != 0
	length := uint64(len(wr.Inline))
	if !inline {
		length = 0
		for i := range wr.SGL {
			length += uint64(wr.SGL[i].Length)
		}
	}
	atomic := wr.Opcode == verbs.OpAtomicCmpAndSwp || wr.Opcode == verbs.OpAtomicFetchAdd
	switch {
	case inline && hasResponse(wr.Opcode):
		return invalid("%v has no payload to send inline", wr.Opcode)
	case inline && len(wr.Inline) > q.Slots.MaxInline():
		return invalid("%d bytes inline, the QP takes %d", len(wr.Inline), q.Slots.MaxInline())
	case !inline && len(wr.SGL) > q.Slots.MaxSGE():
		return invalid("%d gather entries, the QP takes %d", len(wr.SGL), q.Slots.MaxSGE())
	case atomic && length != atomicLen:
		return invalid("%v with %d bytes of local memory, not 8", wr.Opcode, length)
	case length > maxMessage:
		return invalid("message of %d bytes, limit %d", length, maxMessage)
	case wr.Opcode == verbs.OpSendImm && length > 0:
		return q.OpError("post_send", verbs.ErrNotSupported, "%v with a payload: iWARP sends immediate data as a message of its own, "+
			"after a write or alone", wr.Opcode)
	case wr.Opcode == verbs.OpBindMW && window == nil:
		return invalid("bind without a window")
	}
	return nil
}
