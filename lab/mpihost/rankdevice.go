package mpihost

import (
	"net/netip"

	"github.com/fabrictest/fabrictest/verbs"
)

// rankDevice is the device of a host as one of its ranks uses it. It tracks queue
// pairs and listeners, to close them when the rank ends, as the end of a process
// would.
type rankDevice struct {
	verbs.Context
	qps       []verbs.QP
	listeners []verbs.Listener
}

// CreateQP implements verbs.Context.
func (o *rankDevice) CreateQP(init verbs.QPInit) (verbs.QP, error) {
	qp, err := o.Context.CreateQP(init)
	if err == nil {
		o.qps = append(o.qps, qp)
	}
	return qp, err
}

// CM implements verbs.Context. The listeners of the returned CM are tracked.
func (o *rankDevice) CM() (verbs.CM, error) {
	cm, err := o.Context.CM()
	if err != nil {
		return nil, err
	}
	return &rankCM{cm, o}, nil
}

// Close implements verbs.Context. It closes the rank's objects; the device belongs
// to the host.
func (o *rankDevice) Close() error {
	o.release()
	return nil
}

// release closes the open queue pairs and listeners. Closing one twice is harmless.
func (o *rankDevice) release() {
	for _, l := range o.listeners {
		_ = l.Close()
	}
	for _, qp := range o.qps {
		_ = qp.Close()
	}
	o.qps, o.listeners = nil, nil
}

type rankCM struct {
	verbs.CM
	o *rankDevice
}

// Listen implements verbs.CM.
func (c *rankCM) Listen(addr netip.AddrPort, space verbs.PortSpace, backlog int) (verbs.Listener, error) {
	l, err := c.CM.Listen(addr, space, backlog)
	if err == nil {
		c.o.listeners = append(c.o.listeners, l)
	}
	return l, err
}
