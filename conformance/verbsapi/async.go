package verbsapi

import (
	"errors"
	"fmt"
	"time"

	"github.com/fabrictest/fabrictest/conformance"
	"github.com/fabrictest/fabrictest/conformance/rig"
	"github.com/fabrictest/fabrictest/verbs"
)

var asyncCases = []conformance.Case{{
	ID: "verbs/async/wait-waits", Cite: cite("ibv_get_async_event(3)", "verbs/async/1"),
	Title:   "A wait for an asynchronous event ends at its timeout, or as soon as there is an event",
	Sends:   "a wait without an event; a wait for a CQ overrun 30 ms later",
	Expects: "a timeout, not before its time; then the event, not before the overrun and within a second of it",
	Defects: []string{"WaitImpatient", "AsyncEventsLost"}, Run: rig.Body(func(r *rig.Rig) {
		expectTimeout(r, waitTime, func(timeout time.Duration) error { return errorOf(r.Device.WaitAsync(timeout)) })
		cq := newCQ(r, 1, nil)
		s := newFlushSource(r, cq)
		s.postReceives(cq.Depth() + 2)
		expectPromptly(r, "an overrun", s.flush, func() { r.ExpectEvent(verbs.EventCQErr) })
	}),
}, {
	ID:   "verbs/async/communication-established",
	Cite: cite("ibv_get_async_event(3)", "verbs/async/2"), Needs: verbs.CapRC, Labels: []string{"service:rc"},
	Title:   "A queue pair in RTR raises COMM_EST when its peer sends",
	Sends:   "two messages of the peer to a queue pair in RTR",
	Expects: "COMM_EST that names the queue pair, once, and the messages",
	Defects: []string{"AsyncEventsLost", "AsyncNamesNothing"}, Run: rig.Body(func(r *rig.Rig) {
		requireModifyConnect(r)
		d := rig.NewPair(r)
		s := setup{qpType: verbs.QPTypeRC}
		l := &qpPair{dut: newEndpoint(d.DUT, &s), partner: newEndpoint(d.Partner, &s)}
		attr := connectionAttrs
		attr.DestQPN, attr.AH = l.partner.qp.QPN(), l.dut.PathTo(l.partner.Rig)
		r.ToRTR(l.dut.qp, attr)
		l.partner.connectTo(l.dut, connectionAttrs)
		l.dut.postRecv(1, recvOffset, 64)
		l.partner.PostSend(l.partner.qp, l.partner.sendWR(2, 0, 16))
		l.dut.expectMessage(1, recvOffset, l.partner.mem.Buf[:16])
		e := r.ExpectEvent(verbs.EventCommEst)
		r.Check(e.QP == l.dut.qp, "an event that names the queue pair", "%v", e.QP)
		l.partner.ExpectCompletion(2, verbs.WCSuccess)
		expectDelivery(l.partner, l.dut, 24)
		r.ExpectNoEvent()
	}),
}, {
	ID: "verbs/async/port-goes-and-comes", Cite: cite("ibv_get_async_event(3)", "verbs/async/4"),
	Title:   "A port raises events when its link goes down and up, and its state agrees",
	Sends:   "nothing: the link goes down and up, twice",
	Expects: "PORT_ERR of port 1 and another state than ACTIVE; PORT_ACTIVE of port 1 and ACTIVE; both times",
	Defects: []string{"AsyncEventsLost", "AsyncNamesNothing", "PortErrOnce"}, Run: rig.Body(func(r *rig.Rig) {
		for _, step := range []struct {
			up   bool
			want verbs.AsyncEventType
		}{{false, verbs.EventPortErr}, {true, verbs.EventPortActive}, {false, verbs.EventPortErr}, {true, verbs.EventPortActive}} {
			if err := r.SetLink(step.up); err != nil {
				rig.Abort(err)
			}
			e := r.ExpectEvent(step.want, verbs.EventGIDChange) // a host may remove addresses while the link is down
			r.Check(e.Port == 1, "an event of port 1", "of port %d", e.Port)
			p := r.QueryPort()
			r.Check((p.State == verbs.PortActive) == step.up, fmt.Sprintf("port active: %v", step.up), "%v", p.State)
		}
		r.Sleep(shortWait)
		r.ExpectNoEvent(verbs.EventGIDChange)
	}),
}, {
	ID: "verbs/async/closed-objects-have-no-events", Cite: cite("ibv_get_async_event(3)", "verbs/async/5"), Needs: verbs.CapSRQ,
	Title:   "Closing an object removes its asynchronous events, and leaves those of others",
	Sends:   "overruns of three completion queues, and two queue pairs of a shared receive queue that fail; then all but one of each are closed",
	Expects: "CQ_ERR and QP_LAST_WQE_REACHED of those that are left, and no other event",
	Defects: []string{"ClosedObjectsReport"}, Run: rig.Body(func(r *rig.Rig) {
		srq := r.CreateSRQ(srqInit(r))
		var qps []verbs.QP
		for range 2 {
			qp := r.CreateQP(verbs.QPInit{Type: rig.DefaultQPType(r), PD: r.PD, SendCQ: r.CQ, RecvCQ: r.CQ, Caps: smallCaps, SRQ: srq})
			r.ToInit(qp, 0, qKey)
			r.ToState(qp, errState)
			qps = append(qps, qp)
		}
		var sources []*flushSource
		for range 3 {
			s := newFlushSource(r, newCQ(r, 1, nil))
			s.addCompletions(s.cq.Depth() + 1)
			sources = append(sources, s)
		}
		r.Sleep(shortWait)
		r.Must("a queue pair that can be closed", qps[0].Close())
		for _, s := range []*flushSource{sources[0], sources[2]} {
			r.Must("a queue pair that can be closed", s.qp.Close())
			r.Must("a completion queue that can be closed", s.cq.Close())
		}
		e := r.ExpectEvent(verbs.EventQPLastWQEReached)
		r.Check(e.QP == qps[1], "an event of the queue pair that is left", "%v", e.QP)
		e = r.ExpectEvent(verbs.EventCQErr, verbs.EventQPFatal, verbs.EventQPReqErr)
		r.Check(e.CQ == sources[1].cq, "an event of the completion queue that is left", "%v", e.CQ)
		for e, err := r.Device.WaitAsync(0); err == nil; e, err = r.Device.WaitAsync(0) {
			r.Check(e.QP == sources[1].qp, "no event of another object", "%v", e.Type) // the queue pair may fail
		}
	}),
}}

var asyncPeerCases = alsoOverRD([]conformance.Case{{
	ID: "verbs/async/access-error", Cite: cite("ibv_get_async_event(3)", "verbs/async/3"),
	Title:   "A queue pair that fails because of an access error of its peer raises an event",
	Sends:   "a READ of the partner with an invalid key",
	Expects: "QP_ACCESS_ERR, QP_REQ_ERR or QP_FATAL that names the queue pair, and ERR",
	Defects: []string{"AsyncEventsLost", "AsyncNamesNothing", "QueryStale"}, Run: onPair(setup{}, func(l *qpPair) {
		m := l.dut.Memory(64, verbs.AccessRemoteRead)
		at := m.Remote(0)
		l.dut.Must("a region that can be closed", m.Close())
		l.expectRefused("read a closed region", l.partner.readWR(1, 16, at))
		l.expectAccessEvent()
		l.dut.AwaitState(l.dut.qp, errState)
	}),
}})

// expectAccessEvent fails the case unless the next event but COMM_EST is about the failure of the
// device's queue pair. Its type depends on the transport: InfiniBand has one for access errors and
// one for requests, iWARP providers also use QP_FATAL.
func (l *qpPair) expectAccessEvent() {
	e := rig.Result(l.dut.Device.WaitAsync(l.dut.ResponseTimeout()))(l.dut, "an event of the failed queue pair")
	for e.Type == verbs.EventCommEst {
		e = rig.Result(l.dut.Device.WaitAsync(l.dut.ResponseTimeout()))(l.dut, "an event of the failed queue pair")
	}
	l.dut.Check(e.Type == verbs.EventQPAccessErr || e.Type == verbs.EventQPReqErr || e.Type == verbs.EventQPFatal,
		"QP_ACCESS_ERR, QP_REQ_ERR or QP_FATAL", "%v", e.Type)
	l.dut.Check(e.QP == l.dut.qp, "an event that names the queue pair", "%v", e.QP)
}

// expectNoEvent fails the case if an asynchronous event other than COMM_EST arrives within
// shortWait.
func (l *qpPair) expectNoEvent() {
	for {
		e, err := l.dut.Device.WaitAsync(shortWait)
		switch {
		case errors.Is(err, verbs.ErrTimeout):
			return
		case err != nil:
			l.dut.Must("events", err)
		case e.Type != verbs.EventCommEst:
			l.dut.Fail("no event", "%v", e.Type)
		}
	}
}
