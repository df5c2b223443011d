package softroce

import (
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/fabrictest/fabrictest/emu/internal/device"
	"github.com/fabrictest/fabrictest/emu/internal/drive"
	"github.com/fabrictest/fabrictest/emu/softroce/cm"
	"github.com/fabrictest/fabrictest/emu/softroce/wire"
	"github.com/fabrictest/fabrictest/verbs"
)

// listener implements verbs.Listener.
type listener struct {
	m      *manager
	id     cm.ListenID
	addr   netip.AddrPort
	cond   drive.Cond
	queue  []cm.Event
	closed bool
}

// Listen implements verbs.CM. Port 0 chooses an ephemeral port, and an unspecified address all
// addresses of the device; a backlog of 0 means the default.
func (m *manager) Listen(addr netip.AddrPort, space verbs.PortSpace, backlog int) (verbs.Listener, error) {
	l := &listener{m: m}
	err := m.d.Control("listen", func() error {
		if addr.Port() == 0 {
			addr = netip.AddrPortFrom(addr.Addr(), m.ephemeralPort())
		}
		if backlog <= 0 {
			backlog = defaultBacklog
		}
		local := addr.Addr()
		if local.IsUnspecified() {
			local = netip.Addr{}
		}
		id, err := m.activateAgent().Listen(serviceID(space, addr.Port()), local, backlog)
		if err != nil {
			return connError("listen", addr, err)
		}
		l.id, l.addr = id, addr
		l.cond = m.d.Driver().NewCond(drive.WaitReason(fmt.Sprintf("connection request to %v", addr)))
		m.listeners[id] = l
		return nil
	})
	if err != nil {
		return nil, err
	}
	return l, nil
}

func (l *listener) Addr() netip.AddrPort { return l.addr }

// GetRequest implements verbs.Listener: it waits for a connection request or a SIDR request.
func (l *listener) GetRequest(timeout time.Duration) (verbs.ConnRequest, error) {
	if err := l.m.d.Enter("get_request", drive.CallWait); err != nil {
		return nil, err
	}
	defer l.m.d.Leave()
	err := l.m.d.Wait("get_request", l.cond, timeout, func() bool { return len(l.queue) > 0 || l.closed })
	if err != nil {
		return nil, err
	}
	if l.closed {
		return nil, &verbs.OpError{Op: "get_request", Obj: l.addr.String(), Err: verbs.ErrClosed}
	}
	e := l.queue[0]
	l.queue = l.queue[1:]
	return &request{m: l.m, e: e}, nil
}

// Close implements verbs.Listener. It rejects queued requests and wakes blocked calls.
func (l *listener) Close() error {
	return l.m.d.Control("close_listener", func() error {
		if l.closed {
			return &verbs.OpError{Op: "close_listener", Obj: l.addr.String(), Err: verbs.ErrClosed}
		}
		l.closed = true
		delete(l.m.listeners, l.id)
		for _, e := range l.queue {
			_ = l.m.activateAgent().Close(l.m.d.Driver().Now(), e.Conn)
		}
		l.cond.Notify()
		return l.m.activateAgent().CloseListen(l.id)
	})
}

// request implements verbs.ConnRequest.
type request struct {
	m *manager
	e cm.Event
}

// Remote implements verbs.ConnRequest.
func (r *request) Remote() netip.AddrPort {
	if s := r.e.SIDRRequest; s != nil {
		return netip.AddrPortFrom(s.Remote, s.SrcPort)
	}
	return netip.AddrPortFrom(r.e.Request.Path.Remote, r.e.Request.SrcPort)
}

// Param implements verbs.ConnRequest. A SIDR request has private data only.
func (r *request) Param() verbs.ConnParam {
	p := verbs.ConnParam{PrivateData: r.e.PrivateData}
	if q := r.e.Request; q != nil {
		p.ResponderResources, p.InitiatorDepth = q.RespRes, q.InitDepth
		p.RetryCount, p.RNRRetryCount, p.FlowControl = q.RetryCount, q.RNRRetry, q.E2EFlow
	}
	return p
}

// Reject implements verbs.ConnRequest: it sends a REJ, or a SIDR_REP that rejects.
func (r *request) Reject(private []byte) error {
	return r.m.d.Control("reject", func() error {
		now := r.m.d.Driver().Now()
		var err error
		if r.e.SIDRRequest != nil {
			err = r.m.activateAgent().SIDRReply(now, r.e.Conn, cm.SIDRReplyParam{Status: wire.SIDRRejected, PrivateData: private})
		} else {
			err = r.m.activateAgent().Reject(now, r.e.Conn, wire.ReasonConsumer, nil, private)
		}
		if err != nil {
			return connError("reject", r.Remote(), err)
		}
		return nil
	})
}

// Accept implements verbs.ConnRequest. It answers a REQ and connects qp. It answers a SIDR request
// with the QP number and Q_Key of qp, and then returns no connection.
func (r *request) Accept(qp verbs.QP, param verbs.ConnParam, timeout time.Duration) (verbs.Conn, error) {
	const op = "accept"
	if err := r.m.d.Enter(op, drive.CallControl); err != nil {
		return nil, err
	}
	defer r.m.d.Leave()
	q, err := device.CheckHandle[*queuePair](&r.m.d.shared, op, "QP", qp)
	if err != nil {
		return nil, err
	}
	if r.e.SIDRRequest != nil {
		err := r.m.activateAgent().SIDRReply(r.m.d.Driver().Now(), r.e.Conn, cm.SIDRReplyParam{
			QPN: q.q.Num(), QKey: q.q.Query().QKey, PrivateData: param.PrivateData,
		})
		if err != nil {
			return nil, connError(op, r.Remote(), err)
		}
		return nil, nil
	}
	c, err := r.connect(q.qpState, param, timeout)
	if err != nil {
		return nil, connError(op, r.Remote(), err)
	}
	return c, nil
}

// connect moves the queue pair to INIT and RTR, sends the REP, waits for the RTU, and moves the
// queue pair to RTS. If one of the steps after RTR fails, it closes the connection.
func (r *request) connect(q *qpState, param verbs.ConnParam, timeout time.Duration) (*connection, error) {
	m, req := r.m, r.e.Request
	if m.conns[r.e.Conn] != nil {
		return nil, fmt.Errorf("%w: the request is accepted already", verbs.ErrInvalid)
	}
	isLocal := func(g verbs.GIDEntry) bool { return g.GID.Addr() == req.Path.Local }
	gidIndex := uint8(max(0, slices.IndexFunc(m.d.nic.Config().GIDs, isLocal))) // 0 if no GID is the address
	c := &connection{
		m: m, id: r.e.Conn, qp: q, remote: r.Remote(), recvPSN: m.startPSN(), param: r.Param(),
		gidIndex: gidIndex, timeoutCode: req.Path.LocalAckTimeout,
	}
	c.cond = m.d.Driver().NewCond(drive.WaitReason(fmt.Sprintf("confirmation of %v", c.remote)))
	if err := c.toInit(); err != nil {
		return nil, err
	}
	mtu := min(verbs.MTU(req.Path.MTU), m.d.nic.MTU())
	if err := c.toRTR(req.RemoteQPN, req.StartPSN, mtu, min(param.ResponderResources, req.InitDepth)); err != nil {
		return nil, err
	}
	m.conns[c.id] = c
	q.conn = c
	err := m.activateAgent().Accept(m.d.Driver().Now(), c.id, cm.AcceptParam{
		QPN: q.q.Num(), StartPSN: c.recvPSN, RespRes: param.ResponderResources, InitDepth: param.InitiatorDepth,
		RNRRetry: param.RNRRetryCount, TargetAckDelay: targetAckDelay, SRQ: q.srq, E2EFlow: param.FlowControl,
		PrivateData: param.PrivateData,
	})
	if err != nil {
		m.closeConn(c)
		return nil, err
	}
	m.d.Driver().Pump() // sends the REP
	_, err = c.awaitEvent(cm.EventEstablished, timeout)
	if err == nil {
		err = c.toRTS(req.RetryCount, req.RNRRetry, min(param.InitiatorDepth, req.RespRes))
	}
	if err != nil {
		m.closeConn(c)
		return nil, err
	}
	return c, nil
}
