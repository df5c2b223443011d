package cm

import (
	"time"

	"github.com/fabrictest/fabrictest/emu/mono"
	"github.com/fabrictest/fabrictest/emu/softroce/mad"
)

// SIDRRequest asks a peer which datagram queue pair serves a service. It ends
// in EventSIDRReply or EventTimedOut.
func (a *Agent) SIDRRequest(now mono.Time, p SIDRParam) (ConnID, error) {
	p.Path.normalize()
	if err := p.Path.check("SIDR request", &a.cfg); err != nil {
		return 0, err
	}
	if p.ServiceID.IsIP() && p.Path.FlowLabel == 0 {
		p.Path.FlowLabel = mad.FlowLabel(p.SrcPort, p.ServiceID.Port())
	}
	req := mad.SIDRREQ{PKey: p.Path.PKey, ServiceID: p.ServiceID}
	if err := fillRequest(req.PrivateData[:], p.ServiceID, &p.Path, p.SrcPort, p.PrivateData); err != nil {
		return 0, err
	}
	c, err := a.newConn("SIDR request", StateSIDRREQSent)
	if err != nil {
		return 0, err
	}
	c.active = true
	c.serviceID = p.ServiceID
	c.madRoute = p.Path.route()
	c.timeout = mad.Timeout(a.cfg.ResponseTimeout)
	c.maxRetries = a.cfg.MaxRetries
	req.RequestID = uint32(c.id)
	c.keep(mad.AttrSIDRREQ, c.tid, &req)
	a.await(now, c, StateSIDRREQSent)
	return c.id, nil
}

// handleSIDRREQ tells a listener's consumer of a lookup.
func (a *Agent) handleSIDRREQ(in *incoming, m *mad.SIDRREQ) {
	key := sidrKey{in.from, m.RequestID}
	if a.lookups[key] != nil {
		a.counters.Duplicates.count(mad.AttrSIDRREQ) // its answer is to come
		return
	}
	l := a.listenerFor(m.ServiceID, in.to)
	if l != nil && a.answerAgain(in, key) {
		return
	}
	ip, user, ok := a.userData(in, m.ServiceID, m.PrivateData[:])
	switch {
	case l == nil:
		a.refuseSIDR(in, m, mad.SIDRUnsupportedService)
		return
	case !ok || !a.cfg.memberOf(m.PKey):
		a.refuseSIDR(in, m, mad.SIDRRejected)
		return
	case l.pending >= l.backlog:
		a.counters.BacklogFull++
		return
	}
	c, err := a.newConn("SIDR request", StateSIDRREQRcvd)
	if err != nil {
		a.counters.ConnLimit++
		a.refuseSIDR(in, m, mad.SIDRNoQP)
		return
	}
	c.remoteID = m.RequestID
	c.serviceID = m.ServiceID
	c.tid = in.tid
	c.madRoute = a.reply(in)
	c.listener = l
	l.pending++
	a.lookups[key] = c
	a.notify(c, Event{Kind: EventSIDRRequest, PrivateData: user, SIDRRequest: &SIDRRequest{
		Listen: l.id, ServiceID: m.ServiceID, Local: in.to, Remote: in.from, PKey: m.PKey,
		SrcPort: ip.SrcPort, SrcAddr: ip.SrcAddr(),
	}})
}

func (a *Agent) refuseSIDR(in *incoming, m *mad.SIDRREQ, status mad.SIDRStatus) {
	a.counters.Refused++
	rep := mad.SIDRREP{RequestID: m.RequestID, Status: status, ServiceID: m.ServiceID}
	a.sendOnce(a.reply(in), mad.AttrSIDRREP, in.tid, &rep)
}

// sidrAnswer is an answer that may have been lost. Its consumer has given it, and
// expects to be asked no more.
type sidrAnswer struct {
	key sidrKey
	tid uint64
	at  mono.Time
	to  route
	msg [mad.Len]byte
}

const (
	// maxSIDRAnswers is how many answers are kept, the newest of all.
	maxSIDRAnswers = 64
	// sidrAnswerLife is for how long: a peer repeats its question for a minute at most,
	// and later one of the same name is another.
	sidrAnswerLife = mono.Time(time.Minute)
)

// keepAnswer sends an answer, and keeps it.
func (a *Agent) keepAnswer(now mono.Time, c *conn, rep *mad.SIDRREP) {
	c.keep(mad.AttrSIDRREP, c.tid, rep)
	a.transmit(c)
	if len(a.sidrAnswers) == maxSIDRAnswers {
		a.sidrAnswers = a.sidrAnswers[:copy(a.sidrAnswers, a.sidrAnswers[1:])]
	}
	a.sidrAnswers = append(a.sidrAnswers, sidrAnswer{sidrKey{c.madRoute.remote, c.remoteID}, c.tid, now, c.madRoute, c.msg})
}

// answerAgain repeats the answer to a question that is asked again, if it is kept.
func (a *Agent) answerAgain(in *incoming, key sidrKey) bool {
	for i := range a.sidrAnswers {
		k := &a.sidrAnswers[i]
		if k.key == key && k.tid == in.tid && in.now-k.at < sidrAnswerLife {
			a.counters.Duplicates.count(mad.AttrSIDRREQ)
			a.counters.Resent.count(mad.AttrSIDRREP)
			a.post(k.to, mad.AttrSIDRREP, &k.msg)
			return true
		}
	}
	return false
}

// SIDRReply answers EventSIDRRequest. The ID means nothing afterwards: a peer
// that misses the answer and asks again is given it again.
func (a *Agent) SIDRReply(now mono.Time, id ConnID, p SIDRReplyParam) error {
	c, err := a.lookUp("SIDR reply of", id, StateSIDRREQRcvd)
	if err != nil {
		return err
	}
	return a.answerSIDR(now, c, p)
}

func (a *Agent) answerSIDR(now mono.Time, c *conn, p SIDRReplyParam) error {
	if p.QPN >= 1<<24 {
		return badParam("SIDR reply", "QPN exceeds 24 bits:", p.QPN)
	}
	rep := mad.SIDRREP{RequestID: c.remoteID, Status: p.Status, QPN: p.QPN, ServiceID: c.serviceID, QKey: p.QKey}
	if err := mad.Fill(rep.Info[:], p.Info); err != nil {
		return err
	}
	if err := mad.Fill(rep.PrivateData[:], p.PrivateData); err != nil {
		return err
	}
	rep.InfoLen = uint8(len(p.Info))
	a.keepAnswer(now, c, &rep)
	a.release(c)
	return nil
}

// handleSIDRREP takes the answer to a lookup.
func (a *Agent) handleSIDRREP(in *incoming, m *mad.SIDRREP) {
	c := a.conns[ConnID(m.RequestID)]
	if c == nil || c.state != StateSIDRREQSent {
		a.counters.UnknownConn++
		return
	}
	if c.madRoute.remote != in.from {
		a.counters.BadSource++
		return
	}
	a.notify(c, Event{Kind: EventSIDRReply, Final: true, PrivateData: m.PrivateData[:], SIDRReply: &SIDRReply{
		Status: m.Status, ServiceID: m.ServiceID, QPN: m.QPN, QKey: m.QKey,
		Info: m.Info[:min(int(m.InfoLen), mad.SIDRREPInfoLen)],
	}})
	a.release(c)
}
