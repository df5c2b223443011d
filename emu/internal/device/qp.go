package device

import (
	"cmp"

	"github.com/fabrictest/fabrictest/emu/internal/drive"
	"github.com/fabrictest/fabrictest/emu/internal/nic"
	"github.com/fabrictest/fabrictest/verbs"
)

// EngineQP is a queue pair of a provider's engine.
type EngineQP interface {
	Query() verbs.QPAttr
	PostRecv(*verbs.RecvWR) error
}

// QP is the part of a queue pair's handle that all providers share.
type QP struct {
	Object
	// Engine is the engine's queue pair.
	Engine EngineQP
	// Post passes a send request to the engine, with the objects for its handles. PostSend calls it
	// with the lock held.
	Post func(*verbs.SendWR) error
}

// QPObjects are the engine's objects for the handles in a verbs.QPInit.
type QPObjects struct {
	PD             nic.PD
	XRCD           *nic.XRCD
	SendCQ, RecvCQ *nic.CQ
	SRQ            *nic.SRQ
}

// ResolveQPInit returns the engine's objects for the handles of a new queue pair. It fails if one
// is closed or belongs to another device. The caller holds the device's lock.
func (d *Device) ResolveQPInit(op string, in *verbs.QPInit) (o QPObjects, err error) {
	err = cmp.Or(
		CheckOptionalHandle(d, op, "PD", in.PD, func(p *PD) { o.PD = p.ID }),
		CheckOptionalHandle(d, op, "XRC domain", in.XRCD, func(x *XRCD) { o.XRCD = x.X }),
		CheckOptionalHandle(d, op, "send CQ", in.SendCQ, func(c *CQ) { o.SendCQ = c.Q }),
		CheckOptionalHandle(d, op, "receive CQ", in.RecvCQ, func(c *CQ) { o.RecvCQ = c.Q }),
		CheckOptionalHandle(d, op, "SRQ", in.SRQ, func(s *SRQ) { o.SRQ = s.S }),
	)
	return o, err
}

// Query implements verbs.QP.
func (q *QP) Query() (a verbs.QPAttr, err error) {
	err = q.Control("query_qp", func() error {
		a = q.Engine.Query()
		return nil
	})
	return a, err
}

// PostSend implements verbs.QP. In a simulation, it first takes the time in which the host writes
// the data to the NIC. Then it posts the requests one by one, and stops at the first error.
func (q *QP) PostSend(wrs []verbs.SendWR) (int, error) {
	q.spendInline(wrs)
	if err := q.Enter("post_send", drive.CallPost); err != nil {
		return 0, err
	}
	defer q.D.Leave()
	for i := range wrs {
		if err := q.Post(&wrs[i]); err != nil {
			return i, err
		}
	}
	return len(wrs), nil
}

// spendInline spends the time in which the host writes the data of short requests to the NIC, with
// SendInline or without. The driver ignores longer data, which the NIC reads from memory.
func (q *QP) spendInline(wrs []verbs.SendWR) {
	if q.D.costs == nil {
		return
	}
	for i := range wrs {
		if n := sentBytes(&wrs[i]); n > 0 {
			q.D.costs.SpendBytes(drive.Inline, n)
		}
	}
}

// sentBytes returns the length of the data of a work request that sends or writes, inline or in its
// scatter/gather list; 0 for a READ or an atomic, whose list is a destination.
func sentBytes(wr *verbs.SendWR) (n int) {
	switch wr.Opcode {
	case verbs.OpRDMARead, verbs.OpAtomicCmpAndSwp, verbs.OpAtomicFetchAdd:
		return 0
	}
	if wr.Flags&verbs.SendInline != 0 {
		return len(wr.Inline)
	}
	for i := range wr.SGL {
		n += int(wr.SGL[i].Length)
	}
	return n
}

// PostRecv implements verbs.QP. Other verbs send all pending packets when they return. PostRecv
// does so only if peers wait for the receives, because a send request most likely follows, and
// delayed acknowledgements can be sent with it.
func (q *QP) PostRecv(wrs []verbs.RecvWR) (int, error) {
	if err := q.Enter("post_recv", drive.CallPost); err != nil {
		return 0, err
	}
	defer q.D.leaveRecv()
	for i := range wrs {
		if err := q.Engine.PostRecv(&wrs[i]); err != nil {
			return i, err
		}
	}
	return len(wrs), nil
}

// leaveRecv ends PostRecv. It sends packets if peers wait for the receives, else it only delivers
// the completion events of receives that were flushed at once.
func (d *Device) leaveRecv() {
	switch {
	case d.hooks.PumpAfterRecv != nil && d.hooks.PumpAfterRecv():
		d.drv.Pump()
	case d.base.CompletionEvents() > 0:
		d.DeliverCompletionEvents()
	}
	d.drv.Unlock()
}
