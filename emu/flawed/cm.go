package flawed

import (
	"net/netip"
	"time"

	"github.com/fabrictest/fabrictest/verbs"
)

// manager is a verbs.CM that knows our queue pairs.
type manager struct{ verbs.CM }

// CM returns the connection manager.
func (d *device) CM() (verbs.CM, error) {
	m, err := d.Context.CM()
	if err != nil {
		return nil, err
	}
	return manager{m}, nil
}

// Connect connects a queue pair.
func (m manager) Connect(qp verbs.QP, addr netip.AddrPort, param verbs.ConnParam, timeout time.Duration) (verbs.Conn, error) {
	c, err := m.CM.Connect(its(qp), addr, param, timeout)
	connected(qp, err)
	return c, err
}

// Listen waits for requests.
func (m manager) Listen(addr netip.AddrPort, space verbs.PortSpace, backlog int) (verbs.Listener, error) {
	l, err := m.CM.Listen(addr, space, backlog)
	if err != nil {
		return nil, err
	}
	return listener{l}, nil
}

type listener struct{ verbs.Listener }

// Next returns the next request.
func (l listener) Next(timeout time.Duration) (verbs.ConnRequest, error) {
	r, err := l.Listener.Next(timeout)
	if err != nil {
		return nil, err
	}
	return request{r}, nil
}

type request struct{ verbs.ConnRequest }

// Accept connects a queue pair.
func (r request) Accept(qp verbs.QP, param verbs.ConnParam, timeout time.Duration) (verbs.Conn, error) {
	c, err := r.ConnRequest.Accept(its(qp), param, timeout)
	connected(qp, err)
	return c, err
}

// connected tells a queue pair what the connection manager has set in it.
func connected(qp verbs.QP, err error) {
	if p, ok := qp.(*pair); ok && err == nil {
		p.learn()
	}
}
