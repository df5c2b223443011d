package agent

import (
	"net/netip"
	"time"

	"github.com/fabrictest/fabrictest/verbs"
)

// remoteCM is a connection manager.
type remoteCM struct{ ref }

func (m *remoteCM) Listen(addr netip.AddrPort, space verbs.PortSpace, backlog int) (verbs.Listener, error) {
	return create(&m.ref, callListen, func(r ref, bound netip.AddrPort) verbs.Listener { return &remoteListener{r, bound} }, addr, space, backlog)
}

func newRemoteConn(r ref, a peerAttributes) verbs.Conn { return &remoteConn{remotePeer{r, a}} }

func (m *remoteCM) Connect(qp verbs.QP, addr netip.AddrPort, param verbs.ConnParam, timeout time.Duration) (verbs.Conn, error) {
	return create(&m.ref, callConnect, newRemoteConn, qp, addr, param, timeout)
}

func (m *remoteCM) Resolve(addr netip.AddrPort, private []byte, timeout time.Duration) (peer verbs.DatagramPeer, err error) {
	err = m.call(callResolve, &peer, addr, private, timeout)
	return peer, err
}

// remoteListener receives connection requests.
type remoteListener struct {
	ref
	addr netip.AddrPort
}

func (l *remoteListener) Addr() netip.AddrPort { return l.addr }

func (l *remoteListener) GetRequest(timeout time.Duration) (verbs.ConnRequest, error) {
	return create(&l.ref, callGetRequest, func(r ref, a peerAttributes) verbs.ConnRequest { return &remoteRequest{remotePeer{r, a}} }, timeout)
}

// remotePeer has the methods that connections and connection requests share.
type remotePeer struct {
	ref
	attr peerAttributes
}

func (p *remotePeer) Remote() netip.AddrPort { return p.attr.Remote }
func (p *remotePeer) Param() verbs.ConnParam { return p.attr.Param }

// remoteRequest is a connection request that was not answered yet.
type remoteRequest struct{ remotePeer }

func (r *remoteRequest) Accept(qp verbs.QP, param verbs.ConnParam, timeout time.Duration) (verbs.Conn, error) {
	return create(&r.ref, callAccept, newRemoteConn, qp, param, timeout)
}

func (r *remoteRequest) Reject(private []byte) error { return r.call(callReject, nil, private) }

// remoteConn is a connection.
type remoteConn struct{ remotePeer }

func (c *remoteConn) Disconnect() error { return c.call(callDisconnect, nil) }

func (c *remoteConn) WaitDisconnect(timeout time.Duration) error {
	return c.call(callWaitDisconnect, nil, timeout)
}
