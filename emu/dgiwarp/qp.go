package dgiwarp

import (
	"cmp"
	"fmt"
	"net/netip"

	"github.com/fabrictest/fabrictest/emu/dgiwarp/engine"
	"github.com/fabrictest/fabrictest/emu/internal/device"
	"github.com/fabrictest/fabrictest/emu/internal/drive"
	"github.com/fabrictest/fabrictest/verbs"
)

// QPOptions is what verbs have no words for in a datagram queue pair.
type QPOptions struct {
	// Reliable makes it one of RD: messages arrive exactly once and in order for
	// each source, and there are reads, atomics and invalidation. Else it is one of
	// UD. Packets of the one service are not taken by the other.
	Reliable bool
	// Isolate has what a peer does wrong stop the message (UD) or the flow (RD)
	// that it is in, and not the queue pair.
	Isolate bool
}

// ErrorReport is what a peer said was wrong with a message.
type ErrorReport = engine.ErrorReport

// queuePair is a verbs.QP.
type queuePair struct {
	device.Object
	dev    *Device
	q      *engine.QP
	refs   engine.Refs // of the request being posted
	groups device.McastGroups
}

// CreateQP makes a queue pair as Config.QP has them.
func (d *Device) CreateQP(in verbs.QPInit) (verbs.QP, error) { return d.CreateQPWith(in, d.cfg.QP) }

// CreateQPWith makes a queue pair of either service: both can share a device.
func (d *Device) CreateQPWith(in verbs.QPInit, opt QPOptions) (verbs.QP, error) {
	const op = "create_qp"
	if in.XRCD != nil {
		return nil, d.unsupported(op, "XRC")
	}
	if in.Type != verbs.QPTypeUD {
		return nil, d.unsupported(op, fmt.Sprintf("%v queue pairs, only %v: those of RD too are of that type", in.Type, verbs.QPTypeUD))
	}
	cfg := engine.QPConfig{Reliable: opt.Reliable, Isolate: opt.Isolate, Caps: in.Caps, SignalAll: in.SignalAll}
	h := &queuePair{Object: device.Object{D: &d.shared}, dev: d}
	err := d.Control(op, func() (err error) {
		if err := cmp.Or(
			device.CheckOptionalHandle(&d.shared, op, "PD", in.PD, func(p *device.PD) { cfg.PD = p.ID }),
			device.CheckOptionalHandle(&d.shared, op, "send CQ", in.SendCQ, func(c *device.CQ) { cfg.SendCQ = c.Q }),
			device.CheckOptionalHandle(&d.shared, op, "receive CQ", in.RecvCQ, func(c *device.CQ) { cfg.RecvCQ = c.Q }),
			device.CheckOptionalHandle(&d.shared, op, "SRQ", in.SRQ, func(s *device.SRQ) { cfg.SRQ = s.S }),
		); err != nil {
			return err
		}
		if h.q, err = d.nic.CreateQP(cfg); err == nil {
			h.q.Owner = h
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	return h, nil
}

// LastError returns what a peer last said was wrong with a message of the queue
// pair, and whether one has. verbs.EventQPReqErr announces it.
func LastError(qp verbs.QP) (r ErrorReport, ok bool) {
	q, ours := qp.(*queuePair)
	if !ours {
		return r, false
	}
	if err := q.Enter("query_error", drive.CallWait); err != nil {
		return r, false
	}
	defer q.dev.Driver().Unlock()
	return q.q.LastError()
}

func (q *queuePair) QPN() verbs.QPN     { return verbs.QPN(q.q.Num()) }
func (q *queuePair) Type() verbs.QPType { return verbs.QPTypeUD }

func (q *queuePair) Modify(a verbs.QPAttr, mask verbs.QPAttrMask) error {
	return q.Control("modify_qp", func() error { return q.q.Modify(a, mask) })
}

func (q *queuePair) Query() (a verbs.QPAttr, err error) {
	err = q.Control("query_qp", func() error {
		a = q.q.Query()
		return nil
	})
	return a, err
}

func (q *queuePair) PostSend(wrs []verbs.SendWR) (int, error) {
	if err := q.Enter("post_send", drive.CallPost); err != nil {
		return 0, err
	}
	defer q.D.Leave()
	return q.post(wrs)
}

// post queues send requests. The lock is held.
func (q *queuePair) post(wrs []verbs.SendWR) (posted int, err error) {
	now := q.dev.Driver().Now()
	for i := range wrs {
		if err = q.resolveHandles(&wrs[i]); err == nil {
			err = q.q.PostSend(now, &wrs[i], q.refs)
		}
		if err != nil {
			return i, err
		}
	}
	return len(wrs), nil
}

// resolve finds the engine's objects behind the handles in a work request.
func (q *queuePair) resolveHandles(wr *verbs.SendWR) (err error) {
	q.refs.AH = nil
	if wr.UD.AH != nil {
		h, ok := wr.UD.AH.(*addressHandle)
		if !ok || h.D != q.D {
			return device.ForeignHandleError("post_send", "address handle")
		}
		q.refs.AH = h.a
	}
	q.refs.Window, q.refs.Region, err = q.D.ResolveBind(wr)
	return err
}

func (q *queuePair) PostRecv(wrs []verbs.RecvWR) (int, error) {
	if err := q.Enter("post_recv", drive.CallPost); err != nil {
		return 0, err
	}
	// A receive sends nothing, but to peers that were told to wait for one. And one
	// that is flushed at once completes.
	defer func() {
		if q.dev.nic.Starving() {
			q.dev.Driver().Pump()
		} else if q.dev.nic.CompletionEvents() > 0 {
			q.dev.DeliverCompletionEvents()
		}
		q.dev.Driver().Unlock()
	}()
	for i := range wrs {
		if err := q.q.PostRecv(&wrs[i]); err != nil {
			return i, err
		}
	}
	return len(wrs), nil
}

// BindMW binds a type 1 window.
func (q *queuePair) BindMW(mw verbs.MW, wrID uint64, flags verbs.SendFlags, info verbs.BindInfo) (verbs.RKey, error) {
	return q.Object.BindMW(mw, wrID, flags, info, q.post)
}

// AttachMulticast makes the QP a member in the NIC, and the port in the network.
func (q *queuePair) AttachMulticast(group verbs.GID) error {
	return q.groups.Attach(&q.Object, q.dev.link, group, q.attach, q.detach)
}

// DetachMulticast undoes AttachMulticast, all or nothing.
func (q *queuePair) DetachMulticast(group verbs.GID) error {
	return q.groups.Detach(&q.Object, q.dev.link, group, q.detach)
}

func (q *queuePair) attach(group netip.Addr) error { return q.dev.nic.Attach(q.q, group) }
func (q *queuePair) detach(group netip.Addr) error { return q.dev.nic.Detach(q.q, group) }

// Close closes the queue pair. Peers of RD learn it when they send next.
func (q *queuePair) Close() error {
	return q.Destroy("destroy_qp", func() error { return q.dev.nic.DestroyQP(q.q) })
}
