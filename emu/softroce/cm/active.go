package cm

import (
	"github.com/fabrictest/fabrictest/emu/mono"
	"github.com/fabrictest/fabrictest/emu/softroce/wire"
)

// Connect sends a REQ to a service. The result is EventReply, EventRejected or EventTimedOut.
func (a *Agent) Connect(now mono.Time, p ConnectParam) (ConnID, error) {
	p.Path.normalize()
	if err := p.check(&a.cfg); err != nil {
		return 0, err
	}
	if p.ServiceID.IsIP() && p.Path.FlowLabel == 0 {
		p.Path.FlowLabel = wire.FlowLabel(p.SrcPort, p.ServiceID.Port())
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
	c.transport = p.Transport
	c.localQPN = p.QPN
	c.madRoute = p.Path.route()
	// An upper bound of the packet lifetime: the local ACK timeout includes two packet lifetimes.
	c.packetLifetime = wire.CMTimeout(p.Path.LocalAckTimeout)
	c.timeout = c.packetLifetime + wire.CMTimeout(a.cfg.ResponseTimeout)
	c.maxRetries = a.cfg.MaxRetries
	req.LocalCommID = uint32(c.id)
	c.storeMessage(wire.AttrREQ, c.tid, req)
	a.sendAndAwait(now, c, StateREQSent)
	return c.id, nil
}

// newREQ returns a REQ with the parameters of Connect, without communication ID and private data.
func (a *Agent) newREQ(p *ConnectParam) *wire.REQ {
	req := &wire.REQ{
		ServiceID: p.ServiceID, LocalCAGUID: a.cfg.CAGUID, LocalQPN: p.QPN, RespRes: p.RespRes, InitDepth: p.InitDepth,
		RemoteRespTimeout: a.cfg.ResponseTimeout, LocalRespTimeout: a.cfg.ResponseTimeout,
		E2EFlow: p.E2EFlow, StartPSN: p.StartPSN, RetryCount: p.RetryCount, PKey: p.Path.PKey, MTU: p.Path.MTU,
		RNRRetry: p.RNRRetry, MaxCMRetries: a.cfg.MaxRetries, SRQ: p.SRQ,
		Primary: wire.CMPath{
			LocalLID: wire.LIDNone, RemoteLID: wire.LIDNone,
			LocalGID: wire.GIDOf(p.Path.Local), RemoteGID: wire.GIDOf(p.Path.Remote),
			FlowLabel: p.Path.FlowLabel, Rate: p.Path.Rate, TrafficClass: p.Path.TrafficClass,
			HopLimit: p.Path.HopLimit, SL: p.Path.SL, AckTimeout: p.Path.LocalAckTimeout,
		},
	}
	switch p.Transport {
	case UC:
		req.Transport = wire.CMTransportUC
	case XRC:
		req.Transport, req.ExtTransport = wire.CMTransportExt, wire.ExtXRC
	}
	return req
}

// handleREP accepts the first REP of a connection. It answers a duplicate with an MRA if the
// consumer has not answered yet, or repeats its answer (an MRA or the RTU). It rejects a REP of an
// unknown or ended connection, and drops one that another host sent.
func (a *Agent) handleREP(in *incoming, m *wire.REP) {
	c := a.conns[ConnID(m.RemoteCommID)]
	if c == nil || !c.active || c.isSIDR() {
		a.counters.UnknownConn++
		a.rejectUnknown(in, m.RemoteCommID, m.LocalCommID, wire.AboutREP)
		return
	}
	if c.madRoute.Remote != in.from {
		a.counters.BadSource++
		return
	}
	switch c.state {
	case StateREQSent, StateMRAREQRcvd:
		a.acceptREP(in, c, m)
		return
	}
	if c.peer.id != m.LocalCommID {
		// The peer created another connection for the same REQ.
		a.counters.UnknownConn++
		a.rejectUnknown(in, m.RemoteCommID, m.LocalCommID, wire.AboutREP)
		return
	}
	a.counters.Duplicates.count(wire.AttrREP)
	switch c.state {
	case StateREPRcvd:
		a.sendMRA(c)
	case StateMRAREPSent, StateEstablished:
		a.resend(c)
	case StateTimeWait:
		a.rejectUnknown(in, m.RemoteCommID, m.LocalCommID, wire.AboutREP)
	}
}

// acceptREP handles the first REP of a connection, and reports it to the application. It rejects a
// REP whose communication ID is invalid or in use, or whose QP has another connection; that
// connection it ends as stale.
func (a *Agent) acceptREP(in *incoming, c *conn, m *wire.REP) {
	qpn := m.LocalQPN
	if c.transport == XRC {
		qpn = m.LocalEECN
	}
	reason := wire.REJReason(0)
	switch old := a.byQP[remoteKey{m.LocalCAGUID, qpn}]; {
	case m.LocalCommID == 0:
		reason = wire.ReasonInvalidCommID
	case a.byRemote[remoteKey{m.LocalCAGUID, m.LocalCommID}] != nil:
		reason = wire.ReasonDuplicateCommID
	case old != nil:
		reason = wire.ReasonStale
		a.endStale(in, old)
	}
	if reason != 0 {
		rej := wire.REJ{LocalCommID: uint32(c.id), RemoteCommID: m.LocalCommID, About: wire.AboutREP, Reason: reason}
		a.sendOnce(c.madRoute, wire.AttrREJ, in.tid, &rej)
		a.notify(c, Event{Kind: EventRejected, Reason: reason, About: wire.AboutREP, ByUs: true, Final: true})
		a.release(c)
		return
	}
	c.peer.id, c.peer.guid, c.peer.qpn = m.LocalCommID, m.LocalCAGUID, qpn
	c.packetLifetime += a.cfg.peerTimeout(m.TargetAckDelay) // for time wait: the peer may acknowledge so late
	a.register(c)
	a.timers.Stop(&c.timer)
	c.state = StateREPRcvd
	a.notify(c, Event{Kind: EventReply, PrivateData: m.PrivateData[:], Reply: &Reply{REP: m, RemoteQPN: qpn}})
}

// ConfirmReply sends the RTU and establishes the connection on the active side, without an
// EventEstablished. The QP must be in RTS. private is up to 224 bytes.
func (a *Agent) ConfirmReply(now mono.Time, id ConnID, private []byte) error {
	c, err := a.lookUp("confirm reply of", id, StateREPRcvd, StateMRAREPSent)
	if err != nil {
		return err
	}
	rtu := wire.RTU{LocalCommID: uint32(c.id), RemoteCommID: c.peer.id}
	if err := wire.FillField(rtu.PrivateData[:], private); err != nil {
		return err
	}
	c.storeMessage(wire.AttrRTU, c.tid, &rtu)
	a.transmit(c)
	a.establish(c)
	return nil
}
