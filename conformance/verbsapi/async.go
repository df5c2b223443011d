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
	Sends:   "a message of the peer to a queue pair in RTR",
	Expects: "COMM_EST that names the queue pair, and the message",
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
	}),
}, {
	ID: "verbs/async/port-goes-and-comes", Cite: cite("ibv_get_async_event(3)", "verbs/async/4"),
	Title:   "A port raises events when its link goes down and up, and its state agrees",
	Sends:   "nothing: the link goes down and up",
	Expects: "PORT_ERR of port 1 and another state than ACTIVE; PORT_ACTIVE of port 1 and ACTIVE",
	Defects: []string{"AsyncEventsLost", "AsyncNamesNothing"}, Run: rig.Body(func(r *rig.Rig) {
		for _, step := range []struct {
			up   bool
			want verbs.AsyncEventType
		}{{false, verbs.EventPortErr}, {true, verbs.EventPortActive}} {
			if err := r.SetLink(step.up); err != nil {
				rig.Abort(err)
			}
			e := r.ExpectEvent(step.want, verbs.EventGIDChange) // a host may remove addresses while the link is down
			r.Check(e.Port == 1, "an event of port 1", "of port %d", e.Port)
			p := r.QueryPort()
			r.Check((p.State == verbs.PortActive) == step.up, fmt.Sprintf("port active: %v", step.up), "%v", p.State)
		}
	}),
}}

var asyncPeerCases = alsoOverRD([]conformance.Case{{
	ID: "verbs/async/access-error", Cite: cite("ibv_get_async_event(3)", "verbs/async/3"),
	Title:   "A queue pair that fails because of an access error of its peer raises an event",
	Sends:   "a READ of the partner with an invalid key",
	Expects: "QP_ACCESS_ERR, QP_REQ_ERR or QP_FATAL that names the queue pair, and ERR",
	Defects: []string{"AsyncEventsLost", "AsyncNamesNothing", "QueryStale"}, Run: onPair(setup{}, func(l *qpPair) {
		// The event depends on the transport: InfiniBand has one for access errors
		// and one for requests, iWARP providers also use QP_FATAL.
		m := l.dut.Memory(64, verbs.AccessRemoteRead)
		at := m.Remote(0)
		l.dut.Must("a region that can be closed", m.Close())
		l.expectRefused("read a closed region", l.partner.readWR(1, 16, at))
		for {
			e := rig.Result(l.dut.Device.WaitAsync(l.dut.ResponseTimeout()))(l.dut, "an event of the failed queue pair")
			if e.Type == verbs.EventCommEst { // from the connection setup
				continue
			}
			l.dut.Check(e.Type == verbs.EventQPAccessErr || e.Type == verbs.EventQPReqErr || e.Type == verbs.EventQPFatal,
				"QP_ACCESS_ERR, QP_REQ_ERR or QP_FATAL", "%v", e.Type)
			l.dut.Check(e.QP == l.dut.qp, "an event that names the queue pair", "%v", e.QP)
			break
		}
		l.dut.AwaitState(l.dut.qp, errState)
	}),
}})

// expectNoEvent fails the case if an asynchronous event other than COMM_EST arrives soon.
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
