package traffic

import (
	"net/netip"
	"time"

	"github.com/fabrictest/fabrictest/verbs"
)

// connectWait is how long one connection may take.
const connectWait = 20 * time.Second

// listen has the connection manager take requests, where it is needed: side A asks
// for connections, side B accepts them, lane by lane in their order.
func (e *End) listen(c *card) error {
	if !e.w.Traits.ConnectsByCM || e.side == A {
		return nil
	}
	cm, err := e.env.Device.CM()
	if err != nil {
		return err
	}
	e.requests, err = cm.Listen(netip.AddrPortFrom(e.gid.Addr(), 0), verbs.PortSpaceTCP, 0)
	if err != nil {
		return err
	}
	c.Port = e.requests.Addr().Port()
	return nil
}

// connectByCM asks the peer for the lane's connection, or accepts it.
func (l *lane) connectByCM() error {
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
		_, err = cm.Connect(l.qp, netip.AddrPortFrom(e.peer.GID.Addr(), e.peer.Port), param, connectWait)
		return err
	}
	r, err := e.requests.GetRequest(connectWait)
	if err != nil {
		return err
	}
	_, err = r.Accept(l.qp, param, connectWait)
	return err
}
