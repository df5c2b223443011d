package verbcalls

import (
	"errors"
	"net/netip"
	"time"

	"github.com/fabrictest/fabrictest/verbs"
)

// manager is a verbs.CM that knows our queue pairs.
type manager struct {
	verbs.CM
	d *device
}

// CM returns the connection manager.
func (d *device) CM() (verbs.CM, error) {
	if d.q.ClaimsAndRefuses {
		return nil, notTheDevices("cm")
	}
	m, err := d.Context.CM()
	if err != nil {
		return nil, err
	}
	return &manager{m, d}, nil
}

// Connect connects a queue pair.
func (m *manager) Connect(qp verbs.QP, addr netip.AddrPort, param verbs.ConnParam, timeout time.Duration) (verbs.Conn, error) {
	m.d.makeFit(qp)
	var c verbs.Conn
	err := m.d.withPrivate(param.PrivateData, func(private []byte) (err error) {
		param.PrivateData = private
		c, err = m.CM.Connect(its(qp), addr, param, m.d.cmTime(timeout))
		return err
	})
	if err != nil {
		return nil, m.d.failed("connect", err)
	}
	return m.d.connected(qp, c), nil
}

// Resolve asks for the queue pair of a service, and may lose some of the answer.
func (m *manager) Resolve(addr netip.AddrPort, private []byte, timeout time.Duration) (peer verbs.DatagramPeer, err error) {
	err = m.d.withPrivate(private, func(private []byte) (err error) {
		peer, err = m.CM.Resolve(addr, private, m.d.cmTime(timeout))
		return err
	})
	if m.d.q.ResolvedKeyLost {
		peer.QKey = 0
	}
	if m.d.q.PrivateDataLost {
		peer.PrivateData = nil
	}
	return peer, m.d.failed("resolve", err)
}

// makeFit takes a queue pair to RESET that is in no state to be connected, by
// CMTakesAnyQP.
func (d *device) makeFit(qp verbs.QP) {
	p := mine[*pair](d, qp)
	if p == nil || !d.q.CMTakesAnyQP {
		return
	}
	if s := p.state(); s != verbs.QPStateReset && s != verbs.QPStateInit {
		_ = p.to(verbs.QPStateReset) // if not, the device says so when it is to connect
	}
}

// cmTime is how long a call of the connection manager waits.
func (d *device) cmTime(timeout time.Duration) time.Duration {
	if d.q.CMTimeoutsTenfold && timeout > 0 {
		return 10 * timeout
	}
	return timeout
}

// cutTo is how much of private data is left that was too long.
const cutTo = 16

// withPrivate makes a call with private data, and by PrivateDataUnchecked another
// with less of it.
func (d *device) withPrivate(private []byte, call func([]byte) error) error {
	err := call(private)
	if d.q.PrivateDataUnchecked && errors.Is(err, verbs.ErrInvalid) && len(private) > cutTo {
		return call(private[:cutTo])
	}
	return err
}

// failed is what a program hears of a call that failed.
func (d *device) failed(op string, err error) error {
	var rejected *verbs.RejectError
	if !errors.As(err, &rejected) {
		return err
	}
	switch {
	case d.q.RejectIsTimeout:
		return refused(op, verbs.ErrTimeout, "no answer")
	case d.q.PrivateDataLost:
		return &verbs.OpError{Op: op, Err: &verbs.RejectError{Reason: rejected.Reason, Text: rejected.Text}}
	}
	return err
}

// told is what a program hears of what the peer asked for or granted.
func (d *device) told(p verbs.ConnParam) verbs.ConnParam {
	if d.q.ConnParamLost {
		p = verbs.ConnParam{PrivateData: p.PrivateData}
	}
	if d.q.PrivateDataLost {
		p.PrivateData = nil
	}
	return p
}

// peer is what a program hears of the peer's address.
func (d *device) peer(a netip.AddrPort) netip.AddrPort {
	if d.q.RemoteUnknown {
		return netip.AddrPort{}
	}
	return a
}

// connection is a verbs.Conn.
type connection struct {
	verbs.Conn
	handle
}

// connected is the connection that was made of a queue pair, which learns what the
// connection manager has set in it. There is none for a service of datagrams.
func (d *device) connected(qp verbs.QP, c verbs.Conn) verbs.Conn {
	if c == nil {
		return nil
	}
	if p := mine[*pair](d, qp); p != nil {
		p.learn()
		p.postRefused()
	}
	return &connection{Conn: c, handle: handle{d: d}}
}

// Param is what the peer granted or asked for.
func (c *connection) Param() verbs.ConnParam { return c.d.told(c.Conn.Param()) }

// Remote is the peer's address.
func (c *connection) Remote() netip.AddrPort { return c.d.peer(c.Conn.Remote()) }

// Disconnect ends the connection, unless DisconnectSilent says to have done so.
func (c *connection) Disconnect() error {
	if c.d.q.DisconnectSilent {
		return nil
	}
	return c.answers(c.Conn.Disconnect())
}

// WaitDisconnect waits for the end of the connection. By EndUnnoticed it is still
// waited for when it has come.
func (c *connection) WaitDisconnect(timeout time.Duration) error {
	left := c.d.timeLeft(c.d.cmTime(timeout))
	err := c.Conn.WaitDisconnect(left())
	if err == nil && c.d.q.EndUnnoticed {
		err = c.d.sleep(left())
	}
	return c.answers(err)
}
