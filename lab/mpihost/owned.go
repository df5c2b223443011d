package mpihost

import (
	"net/netip"

	"github.com/fabrictest/fabrictest/verbs"
)

// owned is a host's device as one of its ranks has it. It keeps in mind what reaches
// other hosts, queue pairs and listeners, so that they end with the rank as they would
// with a process: a peer must not find the queue pair of a dead rank alive. The
// objects themselves are the device's own, and cost nothing more to use.
type owned struct {
	verbs.Context
	qps       []verbs.QP
	listeners []verbs.Listener
}

// CreateQP implements verbs.Context.
func (o *owned) CreateQP(init verbs.QPInit) (verbs.QP, error) {
	qp, err := o.Context.CreateQP(init)
	if err == nil {
		o.qps = append(o.qps, qp)
	}
	return qp, err
}

// CM implements verbs.Context.
func (o *owned) CM() (verbs.CM, error) {
	cm, err := o.Context.CM()
	if err != nil {
		return nil, err
	}
	return &ownedCM{cm, o}, nil
}

// Close implements verbs.Context. The device is the host's, and stays.
func (o *owned) Close() error {
	o.release()
	return nil
}

// release closes what the rank has left open. What it has closed itself says so, and
// nobody needs to know.
func (o *owned) release() {
	for _, l := range o.listeners {
		_ = l.Close()
	}
	for _, qp := range o.qps {
		_ = qp.Close()
	}
	o.qps, o.listeners = nil, nil
}

type ownedCM struct {
	verbs.CM
	o *owned
}

// Listen implements verbs.CM.
func (c *ownedCM) Listen(addr netip.AddrPort, space verbs.PortSpace, backlog int) (verbs.Listener, error) {
	l, err := c.CM.Listen(addr, space, backlog)
	if err == nil {
		c.o.listeners = append(c.o.listeners, l)
	}
	return l, err
}
