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

// CreateQP implements verbs.Context. It tracks the queue pair, so that release closes it.
func (d *rankDevice) CreateQP(init verbs.QPInit) (verbs.QP, error) {
	qp, err := d.Context.CreateQP(init)
	if err == nil {
		d.qps = append(d.qps, qp)
	}
	return qp, err
}

// CM implements verbs.Context. The returned CM tracks its listeners, so that release closes them.
func (d *rankDevice) CM() (verbs.CM, error) {
	cm, err := d.Context.CM()
	if err != nil {
		return nil, err
	}
	return &rankCM{cm, d}, nil
}

// Close implements verbs.Context. It closes the rank's objects; the device belongs
// to the host.
func (d *rankDevice) Close() error {
	d.release()
	return nil
}

// release closes the open queue pairs and listeners. Closing one twice is harmless.
func (d *rankDevice) release() {
	for _, l := range d.listeners {
		_ = l.Close()
	}
	for _, qp := range d.qps {
		_ = qp.Close()
	}
	d.qps, d.listeners = nil, nil
}

type rankCM struct {
	verbs.CM
	device *rankDevice
}

// Listen implements verbs.CM. It tracks the listener, so that rankDevice.release closes it.
func (c *rankCM) Listen(addr netip.AddrPort, space verbs.PortSpace, backlog int) (verbs.Listener, error) {
	l, err := c.CM.Listen(addr, space, backlog)
	if err == nil {
		c.device.listeners = append(c.device.listeners, l)
	}
	return l, err
}
