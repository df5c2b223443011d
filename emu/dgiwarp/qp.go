package dgiwarp

import (
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
	device.QP
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
		return nil, d.Unsupported(op, "XRC")
	}
	if in.Type != verbs.QPTypeUD {
		return nil, d.Unsupported(op, fmt.Sprintf("%v queue pairs: the type must be %v, for the RD service too", in.Type, verbs.QPTypeUD))
	}
	cfg := engine.QPConfig{Reliable: opt.Reliable, Isolate: opt.Isolate}
	cfg.Caps, cfg.SignalAll = in.Caps, in.SignalAll
	h := &queuePair{QP: device.QP{Object: device.Object{D: &d.shared}}, dev: d}
	err := d.Control(op, func() error {
		objects, err := d.ResolveQPInit(op, &in)
		if err != nil {
			return err
		}
		cfg.PD, cfg.SendCQ, cfg.RecvCQ, cfg.SRQ = objects.PD, objects.SendCQ, objects.RecvCQ, objects.SRQ
		if h.q, err = d.nic.CreateQP(cfg); err == nil {
			h.Engine, h.Post, h.q.Owner = h.q, h.post, h
		}
		return err
	})
	return device.HandleOrNil[verbs.QP](h, err)
}

// LastError returns the last error that a peer reported for a message of qp; verbs.EventQPReqErr
// announces such an error. ok is false if there is none, or qp is closed or of another provider.
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

// post queues a send request. The caller holds the device's lock.
func (q *queuePair) post(wr *verbs.SendWR) error {
	if err := q.resolveHandles(wr); err != nil {
		return err
	}
	return q.q.PostSend(q.dev.Driver().Now(), wr, q.refs)
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
