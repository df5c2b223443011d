package cm

import (
	"github.com/fabrictest/fabrictest/emu/mono"
	"github.com/fabrictest/fabrictest/emu/softroce/mad"
)

// Connect sends a REQ to a service of a peer. The result is EventReply,
// EventRejected or EventTimedOut.
func (a *Agent) Connect(now mono.Time, p ConnectParam) (ConnID, error) {
	p.Path.normalize()
	if err := p.check(&a.cfg); err != nil {
		return 0, err
	}
	if p.ServiceID.IsIP() && p.Path.FlowLabel == 0 {
		p.Path.FlowLabel = mad.FlowLabel(p.SrcPort, p.ServiceID.Port())
	}
	req := a.newREQ(&p)
	if err := fillRequest(req.PrivateData[:], p.ServiceID, &p.Path, p.SrcPort, p.PrivateData); err != nil {
		return 0, err
	}
	c, err := a.newConn("connect", StateREQSent)
	if err != nil {
		return 0, err
	}
	c.active = true
	c.serviceID = p.ServiceID
	c.transport = p.Transport
	c.localQPN = p.QPN
	c.madRoute = p.Path.route()
	// The peer's response time plus the round trip, for which the local ACK timeout is
	// an upper bound.
	c.packetLifetime = mad.Timeout(p.Path.LocalAckTimeout)
	c.timeout = c.packetLifetime + mad.Timeout(a.cfg.ResponseTimeout)
	c.maxRetries = a.cfg.MaxRetries
	req.LocalCommID = uint32(c.id)
	c.storeMessage(mad.AttrREQ, c.tid, req)
	a.await(now, c, StateREQSent)
	return c.id, nil
}

func (a *Agent) newREQ(p *ConnectParam) *mad.REQ {
	req := &mad.REQ{
		ServiceID: p.ServiceID, LocalCAGUID: a.cfg.CAGUID, LocalQPN: p.QPN, RespRes: p.RespRes, InitDepth: p.InitDepth,
		RemoteRespTimeout: a.cfg.ResponseTimeout, LocalRespTimeout: a.cfg.ResponseTimeout,
		E2EFlow: p.E2EFlow, StartPSN: p.StartPSN, RetryCount: p.RetryCount, PKey: p.Path.PKey, MTU: p.Path.MTU,
		RNRRetry: p.RNRRetry, MaxCMRetries: a.cfg.MaxRetries, SRQ: p.SRQ,
		Primary: mad.Path{
			LocalLID: mad.LIDNone, RemoteLID: mad.LIDNone,
			LocalGID: mad.GIDOf(p.Path.Local), RemoteGID: mad.GIDOf(p.Path.Remote),
			FlowLabel: p.Path.FlowLabel, Rate: p.Path.Rate, TrafficClass: p.Path.TrafficClass,
			HopLimit: p.Path.HopLimit, SL: p.Path.SL, AckTimeout: p.Path.LocalAckTimeout,
		},
	}
	switch p.Transport {
	case UC:
		req.Transport = mad.TransportUC
	case XRC:
		req.Transport, req.ExtTransport = mad.TransportExt, mad.ExtXRC
	}
	return req
}

// handleREP handles a REP or a duplicate of it.
func (a *Agent) handleREP(in *incoming, m *mad.REP) {
	c := a.conns[ConnID(m.RemoteCommID)]
	if c == nil || !c.active || c.isLookup() {
		a.counters.UnknownConn++
		a.rejectUnknown(in, m.RemoteCommID, m.LocalCommID, mad.AboutREP)
		return
	}
	if c.madRoute.remote != in.from {
		a.counters.BadSource++
		return
	}
	switch c.state {
	case StateREQSent, StateMRAREQRcvd:
		a.acceptREP(in, c, m)
		return
	}
	if c.remoteID != m.LocalCommID {
		// The peer created another connection for the same REQ.
		a.counters.UnknownConn++
		a.rejectUnknown(in, m.RemoteCommID, m.LocalCommID, mad.AboutREP)
		return
	}
	a.counters.Duplicates.count(mad.AttrREP)
	switch c.state {
	case StateREPRcvd:
		a.autoMRA(c)
	case StateMRAREPSent, StateEstablished:
		a.repeat(c)
	case StateTimeWait:
		a.rejectUnknown(in, m.RemoteCommID, m.LocalCommID, mad.AboutREP)
	}
}

// acceptREP handles the first REP of a connection.
func (a *Agent) acceptREP(in *incoming, c *conn, m *mad.REP) {
	qpn := m.LocalQPN
	if c.transport == XRC {
		qpn = m.LocalEECN
	}
	reason := mad.Reason(0)
	switch old := a.byQP[remoteKey{m.LocalCAGUID, qpn}]; {
	case m.LocalCommID == 0:
		reason = mad.ReasonInvalidCommID
	case a.byRemote[remoteKey{m.LocalCAGUID, m.LocalCommID}] != nil:
		reason = mad.ReasonDuplicateCommID
	case old != nil:
		reason = mad.ReasonStale
		a.endStale(in, old)
	}
	if reason != 0 {
		rej := mad.REJ{LocalCommID: uint32(c.id), RemoteCommID: m.LocalCommID, About: mad.AboutREP, Reason: reason}
		a.sendOnce(c.madRoute, mad.AttrREJ, in.tid, &rej)
		a.notify(c, Event{Kind: EventRejected, Reason: reason, About: mad.AboutREP, ByUs: true, Final: true})
		a.release(c)
		return
	}
	c.remoteID, c.remoteGUID, c.remoteQPN = m.LocalCommID, m.LocalCAGUID, qpn
	c.packetLifetime += a.cfg.peerTimeout(m.TargetAckDelay)
	a.register(c)
	a.timers.stop(c)
	c.state = StateREPRcvd
	a.notify(c, Event{Kind: EventReply, PrivateData: m.PrivateData[:], Reply: &Reply{
		RemoteCAGUID:   m.LocalCAGUID,
		RemoteQPN:      qpn,
		StartPSN:       m.StartPSN,
		RespRes:        m.RespRes,
		InitDepth:      m.InitDepth,
		TargetAckDelay: m.TargetAckDelay,
		Failover:       m.Failover,
		RNRRetry:       m.RNRRetry,
		SRQ:            m.SRQ,
		E2EFlow:        m.E2EFlow,
	}})
}

// ConfirmReply sends the RTU and establishes the connection on the active side. The
// QP must be in RTS. private is up to 224 bytes. There is no event.
func (a *Agent) ConfirmReply(now mono.Time, id ConnID, private []byte) error {
	c, err := a.lookUp("confirm reply of", id, StateREPRcvd, StateMRAREPSent)
	if err != nil {
		return err
	}
	rtu := mad.RTU{LocalCommID: uint32(c.id), RemoteCommID: c.remoteID}
	if err := mad.Fill(rtu.PrivateData[:], private); err != nil {
		return err
	}
	c.storeMessage(mad.AttrRTU, c.tid, &rtu)
	a.transmit(c)
	a.establish(c)
	return nil
}
