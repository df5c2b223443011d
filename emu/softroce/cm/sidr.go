package cm

import (
	"time"

	"github.com/fabrictest/fabrictest/emu/mono"
	"github.com/fabrictest/fabrictest/emu/softroce/wire"
)

// SIDRRequest asks for the UD QP of a service. The result is EventSIDRReply or EventTimedOut.
func (a *Agent) SIDRRequest(now mono.Time, p SIDRParam) (ConnID, error) {
	p.Path.normalize()
	if err := p.Path.check("SIDR request", &a.cfg); err != nil {
		return 0, err
	}
	if p.ServiceID.IsIP() && p.Path.FlowLabel == 0 {
		p.Path.FlowLabel = wire.FlowLabel(p.SrcPort, p.ServiceID.Port())
	}
	req := wire.SIDRREQ{PKey: p.Path.PKey, ServiceID: p.ServiceID}
	if err := fillRequest(req.PrivateData[:], p.ServiceID, &p.Path, p.SrcPort, p.PrivateData); err != nil {
		return 0, err
	}
	c, err := a.newConn("SIDR request", StateSIDRREQSent)
	if err != nil {
		return 0, err
	}
	c.active = true
	c.madRoute = p.Path.route()
	c.timeout = wire.CMTimeout(a.cfg.ResponseTimeout)
	c.maxRetries = a.cfg.MaxRetries
	req.RequestID = uint32(c.id)
	c.storeMessage(wire.AttrSIDRREQ, c.tid, &req)
	a.sendAndAwait(now, c, StateSIDRREQSent)
	return c.id, nil
}

// handleSIDRREQ queues EventSIDRRequest, retransmits an earlier SIDR_REP, or rejects the request.
// It drops a duplicate of a request that is not answered yet, and a request if the backlog is full.
func (a *Agent) handleSIDRREQ(in *incoming, m *wire.SIDRREQ) {
	key := sidrKey{in.from, m.RequestID}
	if a.sidrRequests[key] != nil {
		a.counters.Duplicates.count(wire.AttrSIDRREQ) // not answered yet
		return
	}
	l := a.listenerFor(m.ServiceID, in.to)
	if l != nil && a.resendSIDRREP(in, key) {
		return
	}
	ip, user, ok := a.userData(in, m.ServiceID, m.PrivateData[:])
	switch {
	case l == nil:
		a.rejectSIDR(in, m, wire.SIDRUnsupportedService)
		return
	case !ok || !a.cfg.memberOf(m.PKey):
		a.rejectSIDR(in, m, wire.SIDRRejected)
		return
	case l.pending >= l.backlog:
		a.counters.BacklogFull++
		return
	}
	c, err := a.newConn("SIDR request", StateSIDRREQRcvd)
	if err != nil {
		a.counters.ConnLimit++
		a.rejectSIDR(in, m, wire.SIDRNoQP)
		return
	}
	c.peer.id = m.RequestID
	c.serviceID = m.ServiceID
	c.tid = in.tid
	c.madRoute = a.replyRoute(in)
	c.listener = l
	l.pending++
	a.sidrRequests[key] = c
	a.notify(c, Event{Kind: EventSIDRRequest, PrivateData: user, SIDRRequest: &SIDRRequest{
		Listen: l.id, ServiceID: m.ServiceID, Local: in.to, Remote: in.from, PKey: m.PKey,
		SrcPort: ip.SrcPort, SrcAddr: ip.SrcAddr(),
	}})
}

// rejectSIDR answers a SIDR_REQ with a status other than success.
func (a *Agent) rejectSIDR(in *incoming, m *wire.SIDRREQ, status wire.SIDRStatus) {
	a.counters.Refused++
	rep := wire.SIDRREP{RequestID: m.RequestID, Status: status, ServiceID: m.ServiceID}
	a.sendOnce(a.replyRoute(in), wire.AttrSIDRREP, in.tid, &rep)
}

// sidrAnswer is a SIDR_REP kept for retransmission, because the request itself is
// deleted when the consumer answers.
type sidrAnswer struct {
	key sidrKey
	tid uint64
	at  mono.Time
	to  Route
	msg [wire.MADLen]byte
}

const (
	// maxSIDRAnswers is the number of SIDR_REPs kept.
	maxSIDRAnswers = 64
	// sidrAnswerLife is how long a SIDR_REP is kept. A peer retransmits for at most a
	// minute; a later request with the same ID is a new one.
	sidrAnswerLife = mono.Time(time.Minute)
)

// sendSIDRREP sends a SIDR_REP, and keeps it for resendSIDRREP, in place of the oldest if
// maxSIDRAnswers are kept.
func (a *Agent) sendSIDRREP(now mono.Time, c *conn, rep *wire.SIDRREP) {
	c.storeMessage(wire.AttrSIDRREP, c.tid, rep)
	a.transmit(c)
	if len(a.sidrAnswers) == maxSIDRAnswers {
		a.sidrAnswers = a.sidrAnswers[:copy(a.sidrAnswers, a.sidrAnswers[1:])]
	}
	a.sidrAnswers = append(a.sidrAnswers, sidrAnswer{
		key: sidrKey{c.madRoute.Remote, c.peer.id}, tid: c.tid, at: now, to: c.madRoute, msg: c.msg,
	})
}

// resendSIDRREP retransmits the SIDR_REP to a duplicate request. It reports false if none was kept.
func (a *Agent) resendSIDRREP(in *incoming, key sidrKey) bool {
	for i := range a.sidrAnswers {
		answer := &a.sidrAnswers[i]
		if answer.key == key && answer.tid == in.tid && in.now-answer.at < sidrAnswerLife {
			a.counters.Duplicates.count(wire.AttrSIDRREQ)
			a.counters.Resent.count(wire.AttrSIDRREP)
			a.post(answer.to, wire.AttrSIDRREP, &answer.msg)
			return true
		}
	}
	return false
}

// SIDRReply sends the SIDR REP for a request that EventSIDRRequest reported, and frees its ConnID.
// The agent answers retransmitted requests itself.
func (a *Agent) SIDRReply(now mono.Time, id ConnID, p SIDRReplyParam) error {
	c, err := a.lookUp("SIDR reply of", id, StateSIDRREQRcvd)
	if err != nil {
		return err
	}
	return a.answerSIDR(now, c, p)
}

// answerSIDR sends the SIDR_REP for the received request c, and deletes c.
func (a *Agent) answerSIDR(now mono.Time, c *conn, p SIDRReplyParam) error {
	if p.QPN >= 1<<24 {
		return badParam("SIDR reply", "QPN exceeds 24 bits:", p.QPN)
	}
	rep := wire.SIDRREP{RequestID: c.peer.id, Status: p.Status, QPN: p.QPN, ServiceID: c.serviceID, QKey: p.QKey}
	if err := wire.FillField(rep.Info[:], p.Info); err != nil {
		return err
	}
	if err := wire.FillField(rep.PrivateData[:], p.PrivateData); err != nil {
		return err
	}
	rep.InfoLen = uint8(len(p.Info))
	a.sendSIDRREP(now, c, &rep)
	a.release(c)
	return nil
}

// handleSIDRREP completes the SIDR request of this agent that the SIDR_REP answers. It ignores one
// that answers no request, or comes from another source than the request was sent to.
func (a *Agent) handleSIDRREP(in *incoming, m *wire.SIDRREP) {
	c := a.conns[ConnID(m.RequestID)]
	if c == nil || c.state != StateSIDRREQSent {
		a.counters.UnknownConn++
		return
	}
	if c.madRoute.Remote != in.from {
		a.counters.BadSource++
		return
	}
	a.notify(c, Event{Kind: EventSIDRReply, Final: true, PrivateData: m.PrivateData[:], SIDRReply: &SIDRReply{
		Status: m.Status, ServiceID: m.ServiceID, QPN: m.QPN, QKey: m.QKey,
		Info: m.Info[:min(int(m.InfoLen), wire.SIDRREPInfoLen)],
	}})
	a.release(c)
}
