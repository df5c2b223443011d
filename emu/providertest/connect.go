package providertest

import (
	"net/netip"
	"testing"

	"github.com/fabrictest/fabrictest/internal/must"
	"github.com/fabrictest/fabrictest/verbs"
)

// ConnParam are the parameters of connections.
var ConnParam = verbs.ConnParam{ResponderResources: 4, InitiatorDepth: 4, RetryCount: 7, RNRRetryCount: 7}

// CM returns the connection manager of a device.
func CM(t testing.TB, dev verbs.Context) verbs.CM {
	t.Helper()
	return must.Get(dev.CM())(t)
}

// Listen listens for connections.
func Listen(t testing.TB, dev verbs.Context, at netip.AddrPort, backlog int) verbs.Listener {
	t.Helper()
	return must.Get(CM(t, dev).Listen(at, verbs.PortSpaceTCP, backlog))(t)
}

// Accept listens and accepts one connection. It calls listening when a peer may connect.
func Accept(t testing.TB, dev verbs.Context, at netip.AddrPort, listening func()) (*End, verbs.Conn) {
	t.Helper()
	e := NewEnd(t, dev, verbs.QPTypeRC)
	l := Listen(t, dev, at, 0)
	listening()
	return e, e.AcceptFrom(l, ConnParam)
}

// AcceptFrom accepts the next request of a listener.
func (e *End) AcceptFrom(l verbs.Listener, param verbs.ConnParam) verbs.Conn {
	e.Helper()
	req := must.Get(l.GetRequest(verbs.Forever))(e)
	return must.Get(req.Accept(e.QP, param, verbs.Forever))(e)
}

// Connect connects a new end.
func Connect(t testing.TB, dev verbs.Context, to netip.AddrPort) (*End, verbs.Conn) {
	t.Helper()
	e := NewEnd(t, dev, verbs.QPTypeRC)
	return e, must.Get(e.TryConnect(to))(t)
}

// TryConnect connects the end, which may fail.
func (e *End) TryConnect(to netip.AddrPort) (verbs.Conn, error) {
	e.Helper()
	return CM(e, e.Dev).Connect(e.QP, to, ConnParam, verbs.Forever)
}
