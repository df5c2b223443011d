package random

import (
	"net/netip"
	"time"

	"github.com/fabrictest/fabrictest/verbs"
)

const connectTimeout = 20 * time.Second

// listenCM starts the listener of side B, where connections need the connection manager.
// Side A requests the connections, lane by lane.
func (e *End) listenCM(c *connInfo) error {
	if !e.w.Traits.ConnectsByCM || e.side == A {
		return nil
	}
	cm, err := e.env.Device.CM()
	if err != nil {
		return err
	}
	e.cmListener, err = cm.Listen(netip.AddrPortFrom(e.gid.Addr(), 0), verbs.PortSpaceTCP, 0)
	if err != nil {
		return err
	}
	c.Port = e.cmListener.Addr().Port()
	return nil
}

// connectCM requests the connection of the lane, or accepts it.
func (l *lane) connectCM() error {
	e, s := l.end, l.spec
	attr := verbs.QPAttr{State: verbs.QPStateInit, Port: 1, Access: remoteAccess}
	if err := l.qp.Modify(attr, verbs.QPAttrState|verbs.QPAttrPKeyIndex|verbs.QPAttrPort|verbs.QPAttrAccessFlags); err != nil {
		return err
	}
	param := verbs.ConnParam{
		ResponderResources: s.RdAtomic[e.side.Peer()], InitiatorDepth: s.RdAtomic[e.side],
		RetryCount: s.RetryCnt, RNRRetryCount: s.RNRRetry,
	}
	if e.side == A {
		cm, err := e.env.Device.CM()
		if err != nil {
			return err
		}
		_, err = cm.Connect(l.qp, netip.AddrPortFrom(e.peer.GID.Addr(), e.peer.Port), param, connectTimeout)
		return err
	}
	r, err := e.cmListener.GetRequest(connectTimeout)
	if err != nil {
		return err
	}
	_, err = r.Accept(l.qp, param, connectTimeout)
	return err
}
