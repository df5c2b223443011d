package random

import (
	"net/netip"
	"time"

	"github.com/fabrictest/fabrictest/traffic"
	"github.com/fabrictest/fabrictest/verbs"
)

const connectTimeout = 20 * time.Second

// listenCM starts the listener of side B, where connections need the connection manager.
// Side A requests the connections, lane by lane.
func (e *End) listenCM(c *connInfo) error {
	if !e.w.Traits.ConnectsByCM || e.side == A {
		return nil
	}
	var err error
	if e.cmListener, err = traffic.Listen(e.env.Device, e.gid.Addr(), verbs.PortSpaceTCP, 0); err != nil {
		return err
	}
	c.Port = e.cmListener.Addr().Port()
	return nil
}

// connectCM requests the connection of the lane, or accepts it.
func (l *lane) connectCM() error {
	e, s := l.end, l.spec
	if err := traffic.ToInit(l.qp, verbs.QPAttr{Port: 1, Access: remoteAccess}); err != nil {
		return err
	}
	param := verbs.ConnParam{
		ResponderResources: s.RdAtomic[e.side.Peer()], InitiatorDepth: s.RdAtomic[e.side],
		RetryCount: s.RetryCnt, RNRRetryCount: s.RNRRetry,
	}
	if e.side == A {
		_, err := traffic.Dial(e.env.Device, l.qp, netip.AddrPortFrom(e.peer.GID.Addr(), e.peer.Port), param, connectTimeout)
		return err
	}
	r, err := e.cmListener.GetRequest(connectTimeout)
	if err != nil {
		return err
	}
	_, err = r.Accept(l.qp, param, connectTimeout)
	return err
}
