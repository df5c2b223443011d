package softiwarp

import (
	"fmt"
	"net"
	"net/netip"

	"github.com/fabrictest/fabrictest/emu/internal/device"
	"github.com/fabrictest/fabrictest/emu/iwarp"
	"github.com/fabrictest/fabrictest/emu/softiwarp/engine"
	"github.com/fabrictest/fabrictest/verbs"
)

// queuePair implements verbs.QP.
type queuePair struct {
	device.QP
	dev      *Device
	engineQP *engine.QP
	refs     engine.Refs // handles of the request being posted
	gone     bool        // Close was called
}

// CreateQP implements verbs.Context, for RC queue pairs only.
func (d *Device) CreateQP(in verbs.QPInit) (verbs.QP, error) {
	const op = "create_qp"
	if in.XRCD != nil {
		return nil, d.Unsupported(op, "XRC")
	}
	if in.Type != verbs.QPTypeRC {
		return nil, d.Unsupported(op, fmt.Sprintf("%v queue pairs, only %v", in.Type, verbs.QPTypeRC))
	}
	cfg := iwarp.QueueConfig{Caps: in.Caps, SignalAll: in.SignalAll}
	h := &queuePair{QP: device.QP{Object: device.Object{D: &d.shared}}, dev: d}
	return device.HandleOrNil[verbs.QP](h, d.Control(op, func() error {
		objects, err := d.ResolveQPInit(op, &in)
		if err != nil {
			return err
		}
		cfg.PD, cfg.SendCQ, cfg.RecvCQ, cfg.SRQ = objects.PD, objects.SendCQ, objects.RecvCQ, objects.SRQ
		if h.engineQP, err = d.nic.CreateQP(cfg); err == nil {
			h.Engine, h.Post, h.engineQP.Owner = h.engineQP, h.post, h
		}
		return err
	}))
}

func (q *queuePair) QPN() verbs.QPN     { return verbs.QPN(q.engineQP.QPN) }
func (q *queuePair) Type() verbs.QPType { return verbs.QPTypeRC }

func (q *queuePair) Modify(a verbs.QPAttr, mask verbs.QPAttrMask) error {
	return q.Control("modify_qp", func() error { return q.engineQP.Modify(q.dev.streams.Now(), a, mask) })
}

// post queues a send request. q.refs are the engine's memory window and region of a bind request.
// The caller holds the device's lock.
func (q *queuePair) post(wr *verbs.SendWR) (err error) {
	if q.refs.Window, q.refs.Region, err = q.D.ResolveBind(wr); err != nil {
		return err
	}
	return q.engineQP.PostSend(wr, q.refs)
}

func (q *queuePair) AttachMulticast(verbs.GID) error {
	return q.dev.Unsupported("attach_mcast", "multicast")
}

func (q *queuePair) DetachMulticast(verbs.GID) error {
	return q.dev.Unsupported("detach_mcast", "multicast")
}

// Close destroys the queue pair. Its connection is reset.
func (q *queuePair) Close() error {
	return q.Destroy("destroy_qp", func() error {
		err := q.dev.nic.DestroyQP(q.engineQP)
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
