package softroce

import (
	"cmp"
	"net/netip"
	"slices"

	"github.com/fabrictest/fabrictest/emu/internal/device"
	"github.com/fabrictest/fabrictest/emu/internal/drive"
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
	device.Object
	*qpState
}

// newHandle returns another handle of the queue pair; OpenQP gives an XRC target QP several.
func (p *qpState) newHandle() *queuePair {
	h := &queuePair{Object: device.Object{D: &p.dev.shared}, qpState: p}
	p.handles = append(p.handles, h)
	return h
}

// CreateQP implements verbs.Context.
func (d *Device) CreateQP(in verbs.QPInit) (verbs.QP, error) {
	const op = "create_qp"
	cfg := engine.QPConfig{Type: in.Type, Caps: in.Caps, SignalAll: in.SignalAll}
	var h *queuePair
	err := d.Control(op, func() error {
		if err := cmp.Or(
			device.CheckOptionalHandle(&d.shared, op, "PD", in.PD, func(p *device.PD) { cfg.PD = p.ID }),
			device.CheckOptionalHandle(&d.shared, op, "XRC domain", in.XRCD, func(x *device.XRCD) { cfg.XRCD = x.X }),
			device.CheckOptionalHandle(&d.shared, op, "send CQ", in.SendCQ, func(c *device.CQ) { cfg.SendCQ = c.Q }),
			device.CheckOptionalHandle(&d.shared, op, "receive CQ", in.RecvCQ, func(c *device.CQ) { cfg.RecvCQ = c.Q }),
			device.CheckOptionalHandle(&d.shared, op, "SRQ", in.SRQ, func(s *device.SRQ) { cfg.SRQ = s.S }),
		); err != nil {
			return err
		}
		q, err := d.nic.CreateQP(cfg)
		if err != nil {
			return err
		}
		p := &qpState{dev: d, q: q, srq: cfg.SRQ != nil}
		q.Owner = p
		h = p.newHandle()
		return nil
	})
	if err != nil {
		return nil, err
	}
	return h, nil
}

// OpenXRCD implements verbs.Context.
func (d *Device) OpenXRCD() (verbs.XRCD, error) { return device.OpenXRCD(&d.shared) }

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
	if err != nil {
		return nil, err
	}
	return h, nil
}

func (p *qpState) QPN() verbs.QPN     { return verbs.QPN(p.q.Num()) }
func (p *qpState) Type() verbs.QPType { return p.q.Type() }

func (q *queuePair) Modify(a verbs.QPAttr, mask verbs.QPAttrMask) error {
	return q.Control("modify_qp", func() error { return q.q.Modify(q.dev.Driver().Now(), a, mask) })
}

// Query implements verbs.QP.
func (q *queuePair) Query() (a verbs.QPAttr, err error) {
	err = q.Control("query_qp", func() error {
		a = q.q.Query()
		return nil
	})
	return a, err
}

// PostSend implements verbs.QP.
func (q *queuePair) PostSend(wrs []verbs.SendWR) (int, error) {
	if err := q.Enter("post_send", drive.CallPost); err != nil {
		return 0, err
	}
	defer q.D.Leave()
	return q.post(wrs)
}

// post passes send requests to the engine up to the first that fails, and returns how many it
// passed. The device is locked.
func (q *queuePair) post(wrs []verbs.SendWR) (int, error) {
	now := q.dev.Driver().Now()
	for i := range wrs {
		refs, err := q.resolveHandles(&wrs[i])
		if err == nil {
			err = q.q.PostSend(now, &wrs[i], refs)
		}
		if err != nil {
			return i, err
		}
	}
	return len(wrs), nil
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

// PostRecv implements verbs.QP. It sends no packets (Pump), unlike other calls: delayed
// acknowledgements wait for the send request that most likely follows. Enter locks the driver.
func (q *queuePair) PostRecv(wrs []verbs.RecvWR) (int, error) {
	if err := q.Enter("post_recv", drive.CallPost); err != nil {
		return 0, err
	}
	defer func() { // Settle delivers the completion event of a receive that was flushed at once
		if q.dev.nic.CompletionEvents() > 0 {
			q.dev.Settle(q.dev.Driver().Now())
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

// BindMW implements verbs.QP.
func (q *queuePair) BindMW(mw verbs.MW, wrID uint64, flags verbs.SendFlags, info verbs.BindInfo) (verbs.RKey, error) {
	return q.Object.BindMW(mw, wrID, flags, info, q.post)
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
