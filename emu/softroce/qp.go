package softroce

import (
	"net/netip"
	"slices"

	"github.com/fabrictest/fabrictest/emu/internal/device"
	"github.com/fabrictest/fabrictest/emu/softroce/engine"
	"github.com/fabrictest/fabrictest/verbs"
)

// qpState is a queue pair. Only an XRC target QP has more than one handle.
type qpState struct {
	dev     *Device
	q       *engine.QP
	srq     bool
	conn    *connection // of the connection manager; nil if there is none
	groups  device.McastGroups
	handles []*queuePair // open handles, oldest first; the last one stays after its Close
}

// queuePair implements verbs.QP: a handle of a queue pair.
type queuePair struct {
	device.QP
	*qpState
}

// newHandle returns another handle of the queue pair; OpenQP gives an XRC target QP several.
func (p *qpState) newHandle() *queuePair {
	h := &queuePair{QP: device.QP{Object: device.Object{D: &p.dev.shared}, Engine: p.q}, qpState: p}
	h.Post = h.post
	p.handles = append(p.handles, h)
	return h
}

// CreateQP implements verbs.Context. It returns the first handle of the queue pair; an XRC target
// queue pair may have several.
func (d *Device) CreateQP(in verbs.QPInit) (verbs.QP, error) {
	const op = "create_qp"
	cfg := engine.QPConfig{Type: in.Type, Caps: in.Caps, SignalAll: in.SignalAll}
	var h *queuePair
	err := d.Control(op, func() error {
		objs, err := d.ResolveQPInit(op, &in)
		if err != nil {
			return err
		}
		cfg.PD, cfg.XRCD, cfg.SendCQ, cfg.RecvCQ, cfg.SRQ = objs.PD, objs.XRCD, objs.SendCQ, objs.RecvCQ, objs.SRQ
		q, err := d.nic.CreateQP(cfg)
		if err != nil {
			return err
		}
		p := &qpState{dev: d, q: q, srq: cfg.SRQ != nil}
		q.Owner = p
		h = p.newHandle()
		return nil
	})
	return device.HandleOrNil[verbs.QP](h, err)
}

// OpenQP implements verbs.Context. It adds a handle to an XRC target QP.
func (d *Device) OpenQP(x verbs.XRCD, qpn verbs.QPN) (verbs.QP, error) {
	const op = "open_qp"
	var h *queuePair
	err := d.Control(op, func() error {
		dom, err := device.CheckHandle[*device.XRCD](&d.shared, op, "XRC domain", x)
		if err != nil {
			return err
		}
		q, err := d.nic.OpenQP(dom.X, uint32(qpn))
		if err != nil {
			return err
		}
		h = q.Owner.(*qpState).newHandle()
		return nil
	})
	return device.HandleOrNil[verbs.QP](h, err)
}

func (p *qpState) QPN() verbs.QPN     { return verbs.QPN(p.q.Num()) }
func (p *qpState) Type() verbs.QPType { return p.q.Type() }

func (q *queuePair) Modify(a verbs.QPAttr, mask verbs.QPAttrMask) error {
	return q.Control("modify_qp", func() error { return q.q.Modify(q.dev.Driver().Now(), a, mask) })
}

// post queues a send request. The caller holds the device's lock.
func (q *queuePair) post(wr *verbs.SendWR) error {
	refs, err := q.resolveHandles(wr)
	if err != nil {
		return err
	}
	return q.q.PostSend(q.dev.Driver().Now(), wr, refs)
}

// resolveHandles returns the engine's objects for the handles in a work request.
func (q *queuePair) resolveHandles(wr *verbs.SendWR) (r engine.Refs, err error) {
	if wr.UD.AH != nil {
		h, ok := wr.UD.AH.(*addressHandle)
		if !ok || h.D != q.D {
			return r, device.ForeignHandleError("post_send", "address handle")
		}
		r.AH = h.a
	}
	r.Window, r.Region, err = q.D.ResolveBind(wr)
	return r, err
}

// AttachMulticast implements verbs.QP.
func (q *queuePair) AttachMulticast(group verbs.GID) error {
	return q.groups.Attach(&q.Object, q.dev.link, group, q.attach, q.detach)
}

// DetachMulticast implements verbs.QP.
func (q *queuePair) DetachMulticast(group verbs.GID) error {
	return q.groups.Detach(&q.Object, q.dev.link, group, q.detach)
}

func (q *queuePair) attach(group netip.Addr) error { return q.dev.nic.Attach(q.q, group) }
func (q *queuePair) detach(group netip.Addr) error { return q.dev.nic.Detach(q.q, group) }

// Close closes the handle. The last Close destroys the queue pair and closes its connection; for
// the other handles DestroyQP only decrements the number of open handles.
func (q *queuePair) Close() error {
	return q.Destroy("destroy_qp", func() error {
		if err := q.dev.nic.DestroyQP(q.q); err != nil {
			return err
		}
		if len(q.handles) > 1 {
			q.handles = slices.DeleteFunc(q.handles, func(h *queuePair) bool { return h == q })
			return nil
		}
		if q.conn != nil {
			q.dev.cm.closeConn(q.conn)
		}
		return nil
	})
}
