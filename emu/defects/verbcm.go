package defects

import (
	"net/netip"
	"time"

	"github.com/fabrictest/fabrictest/verbs"
)

// manager implements verbs.CM: it unwraps QP handles of a defective device for the inner CM.
type manager struct{ verbs.CM }

// CM returns the device's connection manager in a wrapper that unwraps QP handles of a defective device
// before it passes them on.
func (d *device) CM() (verbs.CM, error) {
	m, err := d.Context.CM()
	if err != nil {
		return nil, err
	}
	return manager{m}, nil
}

// Connect connects the QP that qp wraps, and then posts the sends that qp kept (RefusedWRStays).
func (m manager) Connect(qp verbs.QP, addr netip.AddrPort, param verbs.ConnParam, timeout time.Duration) (verbs.Conn, error) {
	c, err := m.CM.Connect(innerOf(qp), addr, param, timeout)
	return postAfterConnect(qp, c, err)
}

// postAfterConnect posts the send requests that qp refused before it was connected and that the
// defect RefusedWRStays keeps. If connecting failed, it posts none. It returns c and err, the
// results of connecting.
func postAfterConnect(qp verbs.QP, c verbs.Conn, err error) (verbs.Conn, error) {
	if q, ok := qp.(*queuePair); ok && err == nil {
		q.postRefused()
	}
	return c, err
}

// Listen implements verbs.CM. The listener's requests can be accepted with QPs of this package.
func (m manager) Listen(addr netip.AddrPort, space verbs.PortSpace, backlog int) (verbs.Listener, error) {
	l, err := m.CM.Listen(addr, space, backlog)
	if err != nil {
		return nil, err
	}
	return listener{l}, nil
}

// listener implements verbs.Listener.
type listener struct{ verbs.Listener }

// GetRequest implements verbs.Listener. The request can be accepted with a QP of this package.
func (l listener) GetRequest(timeout time.Duration) (verbs.ConnRequest, error) {
	r, err := l.Listener.GetRequest(timeout)
	if err != nil {
		return nil, err
	}
	return request{r}, nil
}

// request implements verbs.ConnRequest.
type request struct{ verbs.ConnRequest }

// Accept accepts with the QP that qp wraps, and then posts the sends that qp kept (RefusedWRStays).
func (r request) Accept(qp verbs.QP, param verbs.ConnParam, timeout time.Duration) (verbs.Conn, error) {
	c, err := r.ConnRequest.Accept(innerOf(qp), param, timeout)
	return postAfterConnect(qp, c, err)
}
