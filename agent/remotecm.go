package agent

import (
	"net/netip"
	"time"

	"github.com/fabrictest/fabrictest/verbs"
)

// remoteCM is a connection manager.
type remoteCM struct{ ref }

func (m *remoteCM) Listen(addr netip.AddrPort, space verbs.PortSpace, backlog int) (l verbs.Listener, err error) {
	_, err = callListen.callThen(m.c, newListener{m, addr, space, backlog}, func(out *madeWith[netip.AddrPort]) {
		l = &remoteListener{ref{m.c, out.Handle}, out.Attr}
	})
	return l, err
}

func (m *remoteCM) Connect(qp verbs.QP, addr netip.AddrPort, param verbs.ConnParam, timeout time.Duration) (conn verbs.Conn, err error) {
	_, err = callConnect.callThen(m.c, connectTo{m, qp, addr, param, timeout}, m.ref.conn(&conn))
	return conn, err
}

func (m *remoteCM) Resolve(addr netip.AddrPort, private []byte, timeout time.Duration) (verbs.DatagramPeer, error) {
	return callResolve.call(m.c, resolveAt{m, addr, private, timeout})
}

// conn returns the connection of a call's result, if there is one.
func (r *ref) conn(conn *verbs.Conn) func(*peered) {
	return func(out *peered) {
		if out.Handle != 0 {
			*conn = &remoteConn{ref{r.c, out.Handle}, *out}
		}
	}
}

// remoteListener receives connection requests.
type remoteListener struct {
	ref
	addr netip.AddrPort
}

func (l *remoteListener) Addr() netip.AddrPort { return l.addr }

func (l *remoteListener) GetRequest(timeout time.Duration) (req verbs.ConnRequest, err error) {
	_, err = callNext.callThen(l.c, onWith[verbs.Listener, time.Duration]{l, timeout}, func(out *peered) {
		req = &remoteRequest{ref{l.c, out.Handle}, *out}
	})
	return req, err
}

// remoteRequest is a connection request that was not answered yet.
type remoteRequest struct {
	ref
	from peered
}

func (r *remoteRequest) Remote() netip.AddrPort { return r.from.Remote }
func (r *remoteRequest) Param() verbs.ConnParam { return r.from.Param }

func (r *remoteRequest) Accept(qp verbs.QP, param verbs.ConnParam, timeout time.Duration) (conn verbs.Conn, err error) {
	_, err = callAccept.callThen(r.c, acceptWith{r, qp, param, timeout}, r.ref.conn(&conn))
	return conn, err
}

func (r *remoteRequest) Reject(private []byte) error {
	_, err := callReject.call(r.c, onWith[verbs.ConnRequest, []byte]{r, private})
	return err
}

// remoteConn is a connection.
type remoteConn struct {
	ref
	peer peered
}

func (c *remoteConn) Param() verbs.ConnParam { return c.peer.Param }
func (c *remoteConn) Remote() netip.AddrPort { return c.peer.Remote }

func (c *remoteConn) Disconnect() error {
	_, err := callDisconnect.call(c.c, on[verbs.Conn]{c})
	return err
}

func (c *remoteConn) WaitDisconnect(timeout time.Duration) error {
	_, err := callWaitDisconnect.call(c.c, onWith[verbs.Conn, time.Duration]{c, timeout})
	return err
}
