package softiwarp

import (
	"cmp"
	"fmt"
	"net"
	"net/netip"

	"github.com/fabrictest/fabrictest/emu/internal/device"
	"github.com/fabrictest/fabrictest/emu/internal/drive"
	"github.com/fabrictest/fabrictest/emu/iwarp"
	"github.com/fabrictest/fabrictest/emu/softiwarp/engine"
	"github.com/fabrictest/fabrictest/verbs"
)

// queuePair implements verbs.QP.
type queuePair struct {
	device.Object
	dev  *Device
	q    *engine.QP
	refs engine.Refs // handles of the request being posted
	gone bool        // Close was called
}

// CreateQP implements verbs.Context.
func (d *Device) CreateQP(in verbs.QPInit) (verbs.QP, error) {
	const op = "create_qp"
	if in.XRCD != nil {
		return nil, d.unsupported(op, "XRC")
	}
	if in.Type != verbs.QPTypeRC {
		return nil, d.unsupported(op, fmt.Sprintf("%v queue pairs, only %v", in.Type, verbs.QPTypeRC))
	}
	cfg := iwarp.QueueConfig{Caps: in.Caps, SignalAll: in.SignalAll}
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

func (q *queuePair) QPN() verbs.QPN     { return verbs.QPN(q.q.QPN) }
func (q *queuePair) Type() verbs.QPType { return verbs.QPTypeRC }

func (q *queuePair) Modify(a verbs.QPAttr, mask verbs.QPAttrMask) error {
	return q.Control("modify_qp", func() error { return q.q.Modify(q.dev.streams.Now(), a, mask) })
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

// post queues send requests, and returns how many were queued before an error. q.refs are the
// engine's memory window and region of a bind request. The caller holds the device's lock.
func (q *queuePair) post(wrs []verbs.SendWR) (posted int, err error) {
	for i := range wrs {
		q.refs.Window, q.refs.Region, err = q.D.ResolveBind(&wrs[i])
		if err == nil {
			err = q.q.PostSend(&wrs[i], q.refs)
		}
		if err != nil {
			return i, err
		}
	}
	return len(wrs), nil
}

func (q *queuePair) PostRecv(wrs []verbs.RecvWR) (int, error) {
	if err := q.Enter("post_recv", drive.CallPost); err != nil {
		return 0, err
	}
	// Unlock without Leave, which would also send: a receive causes no output. But if the queue
	// pair is in the error state, the receive is flushed at once, and its completion event must be
	// delivered.
	defer func() {
		if q.dev.nic.CompletionEvents() > 0 {
			q.dev.DeliverCompletionEvents()
		}
		q.dev.streams.Unlock()
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

func (q *queuePair) AttachMulticast(verbs.GID) error {
	return q.dev.unsupported("attach_mcast", "multicast")
}

func (q *queuePair) DetachMulticast(verbs.GID) error {
	return q.dev.unsupported("detach_mcast", "multicast")
}

// Close destroys the queue pair. Its connection is reset.
func (q *queuePair) Close() error {
	return q.Destroy("destroy_qp", func() error {
		err := q.dev.nic.DestroyQP(q.q)
		q.gone = err == nil
		return err
	})
}

// defaultMTU is the MTU if the interface is not found: that of Ethernet.
const defaultMTU = 1500

// interfaceMTU returns the MTU of the interface that owns the address, in the network namespace
// of the calling thread; defaultMTU if there is none.
func interfaceMTU(a netip.Addr) int {
	ip := net.IP(a.Unmap().AsSlice())
	all, err := net.Interfaces()
	if err != nil {
		return defaultMTU // not fatal: QueryPort reports the MTU, and nothing else uses it
	}
	for _, i := range all {
		addrs, err := i.Addrs()
		if err != nil {
			continue
		}
		for _, p := range addrs {
			// A loopback interface owns all addresses of its networks.
			if n, ok := p.(*net.IPNet); ok && (n.IP.Equal(ip) || i.Flags&net.FlagLoopback != 0 && n.Contains(ip)) {
				return i.MTU
			}
		}
	}
	return defaultMTU
}
