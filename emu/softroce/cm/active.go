package cm

import (
	"github.com/fabrictest/fabrictest/emu/mono"
	"github.com/fabrictest/fabrictest/emu/softroce/mad"
)

// Connect asks a peer's service for a connection. It ends in EventReply,
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
	// The peer's time to answer, and a packet's lifetime there and back, which
	// is what the local ACK timeout allows for.
	c.packetsLive = mad.Timeout(p.Path.LocalAckTimeout)
	c.timeout = c.packetsLive + mad.Timeout(a.cfg.ResponseTimeout)
	c.maxRetries = a.cfg.MaxRetries
	req.LocalCommID = uint32(c.id)
	c.keep(mad.AttrREQ, c.tid, req)
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

// handleREP takes the answer to a REQ, or finds that it had it already.
func (a *Agent) handleREP(in *incoming, m *mad.REP) {
	c := a.conns[ConnID(m.RemoteCommID)]
	if c == nil || !c.active || c.isLookup() {
		a.counters.UnknownConn++
		a.disown(in, m.RemoteCommID, m.LocalCommID, mad.AboutREP)
		return
	}
	if c.madRoute.remote != in.from {
		a.counters.BadSource++
		return
	}
	switch c.state {
	case StateREQSent, StateMRAREQRcvd:
		a.takeREP(in, c, m)
		return
	}
	if c.remoteID != m.LocalCommID {
		// Another connection that the peer made of the same REQ.
		a.counters.UnknownConn++
		a.disown(in, m.RemoteCommID, m.LocalCommID, mad.AboutREP)
		return
	}
	a.counters.Duplicates.count(mad.AttrREP)
	switch c.state {
	case StateREPRcvd:
		a.autoMRA(c)
	case StateMRAREPSent, StateEstablished:
		a.repeat(c)
	case StateTimeWait:
		a.disown(in, m.RemoteCommID, m.LocalCommID, mad.AboutREP)
	}
}

// takeREP takes the first REP of a connection.
func (a *Agent) takeREP(in *incoming, c *conn, m *mad.REP) {
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
	c.packetsLive += a.cfg.peerTimeout(m.TargetAckDelay)
	a.remember(c)
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

// ConfirmReply completes a connection on its active side with an RTU, after
// its queue pair is ready to send. private is up to 224 bytes. There is no
// event: the connection is established when the call returns.
func (a *Agent) ConfirmReply(now mono.Time, id ConnID, private []byte) error {
	c, err := a.lookUp("confirm reply of", id, StateREPRcvd, StateMRAREPSent)
	if err != nil {
		return err
	}
	rtu := mad.RTU{LocalCommID: uint32(c.id), RemoteCommID: c.remoteID}
	if err := mad.Fill(rtu.PrivateData[:], private); err != nil {
		return err
	}
	c.keep(mad.AttrRTU, c.tid, &rtu)
	a.transmit(c)
	a.establish(c)
	return nil
}
