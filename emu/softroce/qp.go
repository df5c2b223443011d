package softroce

import (
	"net/netip"

	"github.com/fabrictest/fabrictest/emu/internal/core"
	"github.com/fabrictest/fabrictest/emu/internal/drive"
	"github.com/fabrictest/fabrictest/emu/link"
	"github.com/fabrictest/fabrictest/emu/softroce/engine"
	"github.com/fabrictest/fabrictest/verbs"
)

// queuePair is a verbs.QP.
type queuePair struct {
	d    *Device
	q    *engine.QP
	srq  bool
	conn *connection // made by the connection manager, nil if none

	groups map[netip.Addr]bool // multicast groups it is attached to
}

// CreateQP makes a queue pair.
func (d *Device) CreateQP(in verbs.QPInit) (verbs.QP, error) {
	cfg := engine.QPConfig{Type: in.Type, Caps: in.Caps, SignalAll: in.SignalAll}
	// An object of another device stays nil, which the engine refuses where it
	// is needed; an SRQ is optional and must not vanish.
	if pd, ok := in.PD.(*protectionDomain); ok && pd.d == d {
		cfg.PD = pd.id
	}
	if x, ok := in.XRCD.(*xrcDomain); ok && x.d == d {
		cfg.XRCD = x.x
	}
	if cq, ok := in.SendCQ.(*completionQueue); ok && cq.d == d {
		cfg.SendCQ = cq.q
	}
	if cq, ok := in.RecvCQ.(*completionQueue); ok && cq.d == d {
		cfg.RecvCQ = cq.q
	}
	if in.SRQ != nil {
		s, ok := in.SRQ.(*sharedQueue)
		if !ok || s.d != d {
			return nil, foreign("create_qp", "SRQ")
		}
		cfg.SRQ = s.s
	}
	q := &queuePair{d: d, srq: cfg.SRQ != nil}
	err := d.control("create_qp", func() (err error) {
		if q.q, err = d.nic.CreateQP(cfg); err == nil {
			q.q.Owner = q
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	return q, nil
}

// OpenQP opens a further handle to an XRC target.
func (d *Device) OpenQP(x verbs.XRCD, qpn verbs.QPN) (verbs.QP, error) {
	dom, ok := x.(*xrcDomain)
	if !ok || dom.d != d {
		return nil, foreign("open_qp", "XRC domain")
	}
	var q *queuePair
	err := d.control("open_qp", func() error {
		e, err := d.nic.OpenQP(dom.x, uint32(qpn))
		if err == nil {
			q = e.Owner.(*queuePair)
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	return q, nil
}

func (q *queuePair) QPN() verbs.QPN     { return verbs.QPN(q.q.Num()) }
func (q *queuePair) Type() verbs.QPType { return q.q.Type() }

func (q *queuePair) Modify(a verbs.QPAttr, mask verbs.QPAttrMask) error {
	return q.d.control("modify_qp", func() error { return q.q.Modify(q.d.drv.Now(), a, mask) })
}

func (q *queuePair) Query() (a verbs.QPAttr, err error) {
	err = q.d.control("query_qp", func() error {
		a = q.q.Query()
		return nil
	})
	return a, err
}

func (q *queuePair) PostSend(wrs []verbs.SendWR) (int, error) {
	if err := q.d.enter(drive.CallPost); err != nil {
		return 0, &verbs.OpError{Op: "post_send", Obj: q.d.cfg.Name, Err: err}
	}
	defer q.d.leave()
	now := q.d.drv.Now()
	for i := range wrs {
		refs, err := q.refs(&wrs[i])
		if err == nil {
			err = q.q.PostSend(now, &wrs[i], refs)
		}
		if err != nil {
			return i, err
		}
	}
	return len(wrs), nil
}

// refs finds the engine's objects behind the handles in a work request.
func (q *queuePair) refs(wr *verbs.SendWR) (r engine.Refs, err error) {
	if wr.UD.AH != nil {
		h, ok := wr.UD.AH.(*addressHandle)
		if !ok || h.d != q.d {
			return r, foreign("post_send", "address handle")
		}
		r.AH = h.a
	}
	if wr.Opcode != verbs.OpBindMW {
		return r, nil
	}
	w, ok := wr.Bind.MW.(*memoryWindow)
	if !ok || w.d != q.d {
		return r, foreign("post_send", "memory window")
	}
	r.Window = w.w
	if wr.Bind.Info.MR != nil {
		if r.Region, err = q.region(wr.Bind.Info.MR); err != nil {
			return r, err
		}
	}
	return r, nil
}

func (q *queuePair) region(mr verbs.MR) (*core.Region, error) {
	m, ok := mr.(*memoryRegion)
	if !ok || m.d != q.d {
		return nil, foreign("bind_mw", "memory region")
	}
	return m.r, nil
}

func (q *queuePair) PostRecv(wrs []verbs.RecvWR) (int, error) {
	if err := q.d.enter(drive.CallPost); err != nil {
		return 0, &verbs.OpError{Op: "post_recv", Obj: q.d.cfg.Name, Err: err}
	}
	// A receive sends nothing by itself: what is owed to the peer leaves with the
	// packet that most likely follows.
	defer func() {
		q.d.Settle(q.d.drv.Now())
		q.d.drv.Unlock()
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
	w, ok := mw.(*memoryWindow)
	if !ok || w.d != q.d {
		return 0, foreign("bind_mw", "memory window")
	}
	if w.w.Type != verbs.MWType1 {
		return 0, &verbs.OpError{Op: "bind_mw", Err: verbs.ErrInvalid}
	}
	key := verbs.NextRKey(w.next)
	wr := [1]verbs.SendWR{{WRID: wrID, Opcode: verbs.OpBindMW, Flags: flags, Bind: verbs.Bind{MW: mw, RKey: key, Info: info}}}
	if _, err := q.PostSend(wr[:]); err != nil {
		return 0, err
	}
	w.next = key
	return key, nil
}

func (q *queuePair) AttachMulticast(group verbs.GID) error {
	if q.groups[group.Addr()] {
		return nil
	}
	err := q.multicast("attach_mcast", group, q.d.nic.Attach, link.GroupLink.Join)
	if err == nil {
		if q.groups == nil {
			q.groups = map[netip.Addr]bool{}
		}
		q.groups[group.Addr()] = true
	}
	return err
}

func (q *queuePair) DetachMulticast(group verbs.GID) error {
	err := q.multicast("detach_mcast", group, q.d.nic.Detach, link.GroupLink.Leave)
	delete(q.groups, group.Addr())
	return err
}

// multicast changes the membership of the QP in the NIC, and that of the port
// in the network.
func (q *queuePair) multicast(op string, group verbs.GID, inNIC func(*engine.QP, netip.Addr) error, onLink func(link.GroupLink, netip.Addr) error) error {
	l, ok := q.d.link.(link.GroupLink)
	if !ok {
		return &verbs.OpError{Op: op, Obj: q.d.cfg.Name, Err: verbs.ErrNotSupported}
	}
	return q.d.control(op, func() error {
		if err := inNIC(q.q, group.Addr()); err != nil {
			return err
		}
		if err := onLink(l, group.Addr()); err != nil {
			return &verbs.OpError{Op: op, Obj: q.d.cfg.Name, Err: err}
		}
		return nil
	})
}

func (q *queuePair) Close() error {
	return q.d.control("destroy_qp", func() error {
		if err := q.d.nic.DestroyQP(q.q); err != nil {
			return err
		}
		if q.conn != nil {
			q.d.cm.drop(q.conn)
		}
		return nil
	})
}
