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

// QPOptions are options of queue pairs that verbs do not have.
type QPOptions struct {
	// Reliable selects RD instead of UD: messages of a source arrive exactly once and in
	// order, and there are reads, atomics and invalidation. The two services do not
	// interoperate.
	Reliable bool
	// Isolate makes an error of a peer end its message (UD) or flow (RD), and not the
	// queue pair.
	Isolate bool
}

// ErrorReport is an error that a peer reported for a message.
type ErrorReport = engine.ErrorReport

// queuePair implements verbs.QP.
type queuePair struct {
	device.Object
	dev    *Device
	q      *engine.QP  // the engine's queue pair
	refs   engine.Refs // handles of the request being posted
	groups device.McastGroups
}

// CreateQP creates a queue pair with the options of Config.QP.
func (d *Device) CreateQP(in verbs.QPInit) (verbs.QP, error) { return d.CreateQPWith(in, d.cfg.QP) }

// CreateQPWith creates a queue pair with the given options. in.Type is UD for both services, UD and
// RD: opt.Reliable selects RD. With opt.Isolate, the queue pair survives errors of a peer.
func (d *Device) CreateQPWith(in verbs.QPInit, opt QPOptions) (verbs.QP, error) {
	const op = "create_qp"
	if in.XRCD != nil {
		return nil, d.unsupported(op, "XRC")
	}
	if in.Type != verbs.QPTypeUD {
		return nil, d.unsupported(op, fmt.Sprintf("%v queue pairs: the type must be %v, for the RD service too", in.Type, verbs.QPTypeUD))
	}
	cfg := engine.QPConfig{Reliable: opt.Reliable, Isolate: opt.Isolate}
	cfg.Caps, cfg.SignalAll = in.Caps, in.SignalAll
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

// LastError returns the last error that a peer reported for a message of a queue pair of this
// provider, which verbs.EventQPReqErr announces. ok is false if there is none.
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

// QPN and Type implement verbs.QP. Queue pairs of the service RD have the type UD, too.
func (q *queuePair) QPN() verbs.QPN     { return verbs.QPN(q.q.QPN) }
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

// post queues send requests, and returns how many were queued before an error. The caller holds the
// lock.
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

// resolveHandles sets q.refs to the engine's objects for the address handle, window and region in
// a work request. Handles of other devices are errors.
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
	// A posted receive causes packets only if RD peers wait for receives. In the error state the
	// receive is flushed, that is completed, at once.
	defer func() {
		if q.dev.nic.PeersAwaitReceives() {
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

func (q *queuePair) BindMW(mw verbs.MW, wrID uint64, flags verbs.SendFlags, info verbs.BindInfo) (verbs.RKey, error) {
	return q.Object.BindMW(mw, wrID, flags, info, q.post)
}

func (q *queuePair) AttachMulticast(group verbs.GID) error {
	return q.groups.Attach(&q.Object, q.dev.link, group, q.attach, q.detach)
}

func (q *queuePair) DetachMulticast(group verbs.GID) error {
	return q.groups.Detach(&q.Object, q.dev.link, group, q.detach)
}

// attach and detach add the queue pair to a multicast group of the engine, and remove it.
func (q *queuePair) attach(group netip.Addr) error { return q.dev.nic.Attach(q.q, group) }
func (q *queuePair) detach(group netip.Addr) error { return q.dev.nic.Detach(q.q, group) }

// Close destroys the queue pair. RD peers learn of it when they send next.
func (q *queuePair) Close() error {
	return q.Destroy("destroy_qp", func() error { return q.dev.nic.DestroyQP(q.q) })
}
