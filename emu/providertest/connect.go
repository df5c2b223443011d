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

// JoinRC connects two RC ends without the connection manager. The first PSNs are 0, and
// requests are retried for 4 s.
func JoinRC(a, b *End) {
	a.Helper()
	for _, s := range []struct{ from, to *End }{{a, b}, {b, a}} {
		gid := must.Get(s.to.Dev.QueryGID(1, 0))(a)
		port := must.Get(s.from.Dev.QueryPort(1))(a)
		attr := verbs.QPAttr{
			Port: 1, Access: FullAccess &^ verbs.AccessMWBind, PathMTU: port.ActiveMTU, DestQPN: s.to.QP.QPN(),
			AH:              verbs.AHAttr{Port: 1, GRH: verbs.GRH{DGID: gid.GID, HopLimit: 64}},
			MaxDestRdAtomic: 16, MaxRdAtomic: 16, MinRNRTimer: 1, Timeout: 17, RetryCnt: 7, RNRRetry: 7,
		}
		for _, step := range []struct {
			state verbs.QPState
			mask  verbs.QPAttrMask
		}{
			{verbs.QPStateInit, verbs.QPAttrPKeyIndex | verbs.QPAttrPort | verbs.QPAttrAccessFlags},
			{verbs.QPStateRTR, verbs.QPAttrAV | verbs.QPAttrPathMTU | verbs.QPAttrDestQPN | verbs.QPAttrRQPSN | verbs.QPAttrMaxDestRdAtomic | verbs.QPAttrMinRNRTimer},
			{verbs.QPStateRTS, verbs.QPAttrSQPSN | verbs.QPAttrTimeout | verbs.QPAttrRetryCnt | verbs.QPAttrRNRRetry | verbs.QPAttrMaxQPRdAtomic},
		} {
			attr.State = step.state
			must.Do(a, s.from.QP.Modify(attr, step.mask|verbs.QPAttrState))
		}
	}
}
