package softroce

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"

	"github.com/fabrictest/fabrictest/emu/internal/core"
	"github.com/fabrictest/fabrictest/emu/internal/drive"
	"github.com/fabrictest/fabrictest/emu/link"
	"github.com/fabrictest/fabrictest/emu/softroce/engine"
	"github.com/fabrictest/fabrictest/verbs"
)

// pair is a queue pair. Only an XRC target has more than one handle.
type pair struct {
	q       *engine.QP
	srq     bool
	conn    *connection         // made by the connection manager, nil if none
	groups  map[netip.Addr]bool // multicast groups it is attached to
	handles []*queuePair        // open ones, oldest first; the last to be closed stays
}

// queuePair is a verbs.QP: one handle to a queue pair.
type queuePair struct {
	object
	*pair
}

// handle returns one more handle.
func (p *pair) handle(d *Device) *queuePair {
	h := &queuePair{object: object{d: d}, pair: p}
	p.handles = append(p.handles, h)
	return h
}

// CreateQP makes a queue pair.
func (d *Device) CreateQP(in verbs.QPInit) (verbs.QP, error) {
	const op = "create_qp"
	cfg := engine.QPConfig{Type: in.Type, Caps: in.Caps, SignalAll: in.SignalAll}
	var h *queuePair
	err := d.control(op, func() error {
		if err := cmp.Or(
			ownIfGiven(d, op, "PD", in.PD, func(p *protectionDomain) { cfg.PD = p.id }),
			ownIfGiven(d, op, "XRC domain", in.XRCD, func(x *xrcDomain) { cfg.XRCD = x.x }),
			ownIfGiven(d, op, "send CQ", in.SendCQ, func(c *completionQueue) { cfg.SendCQ = c.q }),
			ownIfGiven(d, op, "receive CQ", in.RecvCQ, func(c *completionQueue) { cfg.RecvCQ = c.q }),
			ownIfGiven(d, op, "SRQ", in.SRQ, func(s *sharedQueue) { cfg.SRQ = s.s }),
		); err != nil {
			return err
		}
		q, err := d.nic.CreateQP(cfg)
		if err != nil {
			return err
		}
		p := &pair{q: q, srq: cfg.SRQ != nil, groups: map[netip.Addr]bool{}}
		q.Owner = p
		h = p.handle(d)
		return nil
	})
	if err != nil {
		return nil, err
	}
	return h, nil
}

// OpenQP opens a further handle to an XRC target.
func (d *Device) OpenQP(x verbs.XRCD, qpn verbs.QPN) (verbs.QP, error) {
	const op = "open_qp"
	var h *queuePair
	err := d.control(op, func() error {
		dom, err := own[*xrcDomain](d, op, "XRC domain", x)
		if err != nil {
			return err
		}
		q, err := d.nic.OpenQP(dom.x, uint32(qpn))
		if err != nil {
			return err
		}
		h = q.Owner.(*pair).handle(d)
		return nil
	})
	if err != nil {
		return nil, err
	}
	return h, nil
}

func (p *pair) QPN() verbs.QPN     { return verbs.QPN(p.q.Num()) }
func (p *pair) Type() verbs.QPType { return p.q.Type() }

func (q *queuePair) Modify(a verbs.QPAttr, mask verbs.QPAttrMask) error {
	return q.control("modify_qp", func() error { return q.q.Modify(q.d.drv.Now(), a, mask) })
}

func (q *queuePair) Query() (a verbs.QPAttr, err error) {
	err = q.control("query_qp", func() error {
		a = q.q.Query()
		return nil
	})
	return a, err
}

func (q *queuePair) PostSend(wrs []verbs.SendWR) (int, error) {
	if err := q.enter("post_send", drive.CallPost); err != nil {
		return 0, err
	}
	defer q.d.leave()
	return q.post(wrs)
}

// post queues send requests. The lock is held.
func (q *queuePair) post(wrs []verbs.SendWR) (int, error) {
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
	if err := q.enter("post_recv", drive.CallPost); err != nil {
		return 0, err
	}
	// A receive sends nothing by itself: what is owed to the peer leaves with the
	// packet that most likely follows. But one that is flushed at once completes.
	defer func() {
		if q.d.nic.CompletionEvents() > 0 {
			q.d.Settle(q.d.drv.Now())
		}
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
	const op = "bind_mw"
	w, ok := mw.(*memoryWindow)
	if !ok || w.d != q.d {
		return 0, foreign(op, "memory window")
	}
	if w.w.Type != verbs.MWType1 {
		return 0, &verbs.OpError{Op: op, Err: fmt.Errorf("%w: a type 2 window is bound by posting OpBindMW", verbs.ErrInvalid)}
	}
	if err := q.enter(op, drive.CallPost); err != nil {
		return 0, err
	}
	defer q.d.leave()
	key := verbs.NextRKey(w.next)
	wr := [1]verbs.SendWR{{WRID: wrID, Opcode: verbs.OpBindMW, Flags: flags, Bind: verbs.Bind{MW: mw, RKey: key, Info: info}}}
	if _, err := q.post(wr[:]); err != nil {
		return 0, err
	}
	w.next = key
	return key, nil
}

// AttachMulticast makes the QP a member in the NIC, and the port in the network.
func (q *queuePair) AttachMulticast(group verbs.GID) error {
	const op = "attach_mcast"
	addr := group.Addr()
	return q.control(op, func() error {
		l, err := q.groupLink(op)
		if err != nil || q.groups[addr] {
			return err
		}
		if err := q.d.nic.Attach(q.q, addr); err != nil {
			return err
		}
		if err := l.Join(addr); err != nil {
			_ = q.d.nic.Detach(q.q, addr) // attached just now
			return &verbs.OpError{Op: op, Obj: q.d.cfg.Name, Err: err}
		}
		q.groups[addr] = true
		return nil
	})
}

// DetachMulticast undoes AttachMulticast, all or nothing.
func (q *queuePair) DetachMulticast(group verbs.GID) error {
	const op = "detach_mcast"
	addr := group.Addr()
	return q.control(op, func() error {
		l, err := q.groupLink(op)
		if err != nil {
			return err
		}
		if q.groups[addr] {
			if err := l.Leave(addr); err != nil {
				return &verbs.OpError{Op: op, Obj: q.d.cfg.Name, Err: err}
			}
			delete(q.groups, addr)
		}
		return q.d.nic.Detach(q.q, addr)
	})
}

func (q *queuePair) groupLink(op string) (link.GroupLink, error) {
	l, ok := q.d.link.(link.GroupLink)
	if !ok {
		return nil, &verbs.OpError{Op: op, Obj: q.d.cfg.Name, Err: fmt.Errorf("%w: the device's link has no multicast groups", verbs.ErrNotSupported)}
	}
	return l, nil
}

// Close closes the handle, and with the last one the queue pair.
func (q *queuePair) Close() error {
	return q.close("destroy_qp", func() error {
		if err := q.d.nic.DestroyQP(q.q); err != nil {
			return err
		}
		if len(q.handles) > 1 {
			q.handles = slices.DeleteFunc(q.handles, func(h *queuePair) bool { return h == q })
			return nil
		}
		if q.conn != nil {
			q.d.cm.drop(q.conn)
		}
		return nil
	})
}
