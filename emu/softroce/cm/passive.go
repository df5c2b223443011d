package cm

import (
	"github.com/fabrictest/fabrictest/emu/mono"
	"github.com/fabrictest/fabrictest/emu/softroce/wire"
)

// handleREQ handles a new or duplicate REQ. A REQ with the QP of an existing connection shows that
// this connection is stale: handleREQ rejects the REQ and ends the connection.
func (a *Agent) handleREQ(in *incoming, m *wire.REQ) {
	if c := a.byRemote[remoteKey{m.LocalCAGUID, m.LocalCommID}]; c != nil {
		a.handleDuplicateREQ(in, c, m)
		return
	}
	if c := a.byQP[remoteKey{m.LocalCAGUID, m.LocalQPN}]; c != nil {
		a.rejectREQ(in, m.LocalCommID, wire.ReasonStale, nil)
		a.endStale(in, c)
		return
	}
	l, fault := a.checkREQ(in, m)
	if fault.reason != 0 {
		a.rejectREQ(in, m.LocalCommID, fault.reason, fault.info)
		return
	}
	if l.pending >= l.backlog {
		a.counters.BacklogFull++ // the peer retransmits
		return
	}
	c, err := a.newConn("request", StateREQRcvd)
	if err != nil {
		a.counters.ConnLimit++
		a.rejectREQ(in, m.LocalCommID, wire.ReasonNoResources, nil)
		return
	}
	a.initFromREQ(in, c, m)
	c.listener = l
	l.pending++
	a.notifyRequest(in, c, l, m)
}

// initFromREQ initializes a passive connection from its REQ, and registers it by the peer's IDs.
func (a *Agent) initFromREQ(in *incoming, c *conn, m *wire.REQ) {
	c.peer.id = m.LocalCommID
	c.peer.guid = m.LocalCAGUID
	c.peer.qpn = m.LocalQPN
	c.transport = transportOf(m)
	c.tid = in.tid
	c.timeout = a.cfg.peerTimeout(m.LocalRespTimeout)
	c.packetLifetime = a.cfg.peerTimeout(m.Primary.AckTimeout) // an upper bound: it includes two packet lifetimes
	c.maxRetries = m.MaxCMRetries
	c.madRoute = a.replyRoute(in)
	c.madRoute.FlowLabel = m.Primary.FlowLabel
	c.madRoute.TrafficClass = m.Primary.TrafficClass
	if m.Alternate.LocalGID != (wire.GID{}) { // the REQ has an alternate path
		c.failover = wire.FailoverUnsupported
	}
	a.register(c)
}

// notifyRequest queues EventRequest for the listener of a REQ.
func (a *Agent) notifyRequest(in *incoming, c *conn, l *listener, m *wire.REQ) {
	ip, user, _ := a.userData(in, m.ServiceID, m.PrivateData[:])
	a.notify(c, Event{Kind: EventRequest, PrivateData: user, Request: &Request{
		REQ:    m,
		Listen: l.id,
		Path: Path{
			Local: in.to, Remote: m.Primary.LocalGID.Addr(),
			FlowLabel: m.Primary.FlowLabel, TrafficClass: m.Primary.TrafficClass, HopLimit: m.Primary.HopLimit,
			PKey: m.PKey, MTU: m.MTU, Rate: m.Primary.Rate, SL: m.Primary.SL, LocalAckTimeout: m.Primary.AckTimeout,
		},
		Transport: c.transport,
		RemoteQPN: m.LocalQPN,
		SrcPort:   ip.SrcPort,
		SrcAddr:   ip.SrcAddr(),
	}})
}

// handleDuplicateREQ retransmits the answer to a REQ, or sends an MRA if the consumer has not
// answered yet. It rejects a REQ of a connection in time wait, and one that is no duplicate. It
// only counts a duplicate for a connection that is established or disconnects, and a REQ from
// another address.
func (a *Agent) handleDuplicateREQ(in *incoming, c *conn, m *wire.REQ) {
	if c.madRoute.Remote != in.from {
		a.counters.BadSource++
		return
	}
	if c.active || c.peer.qpn != m.LocalQPN {
		// Not a retransmission: the peer reused an ID that is in use.
		a.rejectREQ(in, m.LocalCommID, wire.ReasonDuplicateCommID, nil)
		return
	}
	a.counters.Duplicates.count(wire.AttrREQ)
	switch c.state {
	case StateREQRcvd:
		a.sendMRA(c)
	case StateMRAREQSent, StateREPSent, StateMRAREPRcvd:
		a.resend(c)
	case StateTimeWait:
		a.rejectREQ(in, m.LocalCommID, wire.ReasonStale, nil)
	}
}

// endStale ends c, which is stale: the peer has sent a message (in) to start another connection
// with the same queue pair. It only increments counters if this message is from another host, or if
// the consumer has not yet answered the REP that c received.
func (a *Agent) endStale(in *incoming, c *conn) {
	a.counters.Stale++
	if c.madRoute.Remote != in.from {
		a.counters.BadSource++ // another host cannot end the connection
		return
	}
	switch c.state {
	case StateEstablished:
		a.startDREQ(in.now, c, nil)
	case StateDREQSent: // the DREP was lost, but the peer has disconnected
		a.notify(c, Event{Kind: EventDisconnected})
		a.enterTimeWait(in.now, c)
	case StateREPSent, StateMRAREPRcvd:
		a.notify(c, Event{Kind: EventRejected, Reason: wire.ReasonStale, About: wire.AboutOther, ByUs: true})
		a.enterTimeWait(in.now, c)
	case StateREQRcvd, StateMRAREQSent:
		a.notify(c, Event{Kind: EventRejected, Reason: wire.ReasonStale, About: wire.AboutREQ, ByUs: true, Final: true})
		a.release(c)
	}
}

// Accept answers a request with a REP. The queue pair must be in RTR before the
// call. EventEstablished follows when the peer is ready.
func (a *Agent) Accept(now mono.Time, id ConnID, p AcceptParam) error {
	c, err := a.lookUp("accept", id, StateREQRcvd, StateMRAREQSent)
	if err != nil {
		return err
	}
	if err := p.check(); err != nil {
		return err
	}
	rep := wire.REP{
		LocalCommID: uint32(c.id), RemoteCommID: c.peer.id, LocalQPN: p.QPN, StartPSN: p.StartPSN,
		RespRes: p.RespRes, InitDepth: p.InitDepth, TargetAckDelay: p.TargetAckDelay, Failover: c.failover,
		E2EFlow: p.E2EFlow, RNRRetry: p.RNRRetry, SRQ: p.SRQ, LocalCAGUID: a.cfg.CAGUID,
	}
	if c.transport == XRC { // the XRC target is in the EECN field and always has an SRQ
		rep.LocalQPN, rep.LocalEECN, rep.SRQ = 0, p.QPN, true
	}
	if err := wire.FillField(rep.PrivateData[:], p.PrivateData); err != nil {
		return err
	}
	c.leaveBacklog()
	c.localQPN = p.QPN
	c.storeMessage(wire.AttrREP, c.tid, &rep)
	a.sendAndAwait(now, c, StateREPSent)
	return nil
}

// Established establishes a connection because data arrived on its queue pair before the RTU
// (COMM_EST). It may be called more than once, and does nothing with Config.RequireRTU.
func (a *Agent) Established(now mono.Time, id ConnID) error {
	c, err := a.lookUp("establish", id, StateREPSent, StateMRAREPRcvd, StateEstablished)
	if err != nil || c.state == StateEstablished || a.cfg.RequireRTU {
		return err
	}
	a.establish(c)
	a.notify(c, Event{Kind: EventEstablished, ByData: true})
	return nil
}

// establish stops the timer of c and moves c to StateEstablished.
func (a *Agent) establish(c *conn) {
	a.timers.Stop(&c.timer)
	c.state = StateEstablished
	c.established = true
}

// handleRTU establishes a connection on the passive side. It rejects the RTU of a connection that
// is unknown, or in time wait without having been established.
func (a *Agent) handleRTU(in *incoming, m *wire.RTU) {
	c, mayAnswer := a.findConn(in, m.RemoteCommID, m.LocalCommID)
	if c == nil {
		if mayAnswer {
			a.rejectUnknown(in, m.RemoteCommID, m.LocalCommID, wire.AboutOther)
		}
		return
	}
	switch {
	case c.active:
		a.counters.WrongState++
	case c.state == StateREPSent || c.state == StateMRAREPRcvd:
		a.establish(c)
		a.notify(c, Event{Kind: EventEstablished, PrivateData: m.PrivateData[:]})
	case c.state == StateTimeWait && !c.established:
		// The peer did not receive our REJ and considers itself connected.
		a.rejectUnknown(in, m.RemoteCommID, m.LocalCommID, wire.AboutOther)
	case c.established:
		a.counters.Duplicates.count(wire.AttrRTU)
	default:
		a.counters.WrongState++
	}
}
