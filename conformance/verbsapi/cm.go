package verbsapi

import (
	"bytes"
	"errors"
	"fmt"

	"github.com/fabrictest/fabrictest/conformance"
	"github.com/fabrictest/fabrictest/conformance/rig"
	"github.com/fabrictest/fabrictest/verbs"
)

var cmCases = conformance.Group{Needs: verbs.CapCM}.Cases([]conformance.Case{{
	ID: "verbs/cm/listen-at-any-port", Cite: manual("rdma_bind_addr(3)", "verbs/cm/1"),
	Run: rig.Body(func(r *rig.Rig) {
		ports := make(map[uint16]bool)
		for range 3 {
			at := listen(r).Addr()
			r.Check(at.Addr() == r.Local[0] && at.Port() != 0 && !ports[at.Port()], fmt.Sprintf("another port at %v", r.Local[0]), "%v", at)
			ports[at.Port()] = true
		}
	}),
}, {
	ID: "verbs/cm/port-in-use", Cite: manual("rdma_bind_addr(3)", "verbs/cm/2"),
	Run: rig.Body(func(r *rig.Rig) {
		first := listen(r)
		_, err := r.CM().Listen(first.Addr(), verbs.PortSpaceTCP, 1)
		r.MustFail("a second listener at a port", err, nil)
		at := first.Addr()
		r.Must("a listener that can be closed", first.Close())
		again, err := r.CM().Listen(at, verbs.PortSpaceTCP, 1)
		r.Must("a listener at a port that is free again", err)
		r.Check(again.Addr() == at, at.String(), "%v", again.Addr())
	}),
}, {
	ID:   "verbs/cm/connects",
	Cite: manual("rdma_accept(3)", "verbs/cm/3"), Needs: verbs.CapRC, Labels: []string{"service:rc"},
	Run: onHandshake(func(d *handshake) {
		d.startConnect(connParam, d.dut.ResponseTimeout())
		req := d.nextRequest()
		d.dut.Check(d.dutIsActive() || req.Remote().Addr() == d.partner.GIDEntry().GID.Addr(), "the requester's address", "%v", req.Remote())
		d.accept(req, connParam)
		d.dut.ExpectState(d.active.qp, rts)
		d.dut.AwaitState(d.passive.qp, rts)
		if d.dutIsActive() {
			d.dut.Check(d.conn.Remote() == d.listener.Addr(), fmt.Sprintf("a peer at %v", d.listener.Addr()), "%v", d.conn.Remote())
		}
		l := d.pair()
		// Over iWARP the active side may have to send first.
		l.expectDelivery(d.active, d.passive, 24)
		l.expectDelivery(d.passive, d.active, 40)
	}),
}, {
	ID:   "verbs/cm/what-was-asked-for",
	Cite: manual("rdma_connect(3)", "verbs/cm/4"), Needs: verbs.CapRC, Labels: []string{"service:rc"},
	Run: rig.Body(func(r *rig.Rig) {
		d := newHandshake(r, false)
		d.startConnect(verbs.ConnParam{ResponderResources: 3, InitiatorDepth: 5, RetryCount: 6, RNRRetryCount: 5}, r.ResponseTimeout())
		req := d.nextRequest()
		p := req.Param()
		r.Check(p.ResponderResources == 3 && p.InitiatorDepth == 5, "responder resources 3, initiator depth 5", "%d, %d", p.ResponderResources, p.InitiatorDepth)
		d.accept(req, connParam)
	}),
}, {
	ID:   "verbs/cm/private-data",
	Cite: manual("rdma_connect(3)", "verbs/cm/5"), Needs: verbs.CapRC, Labels: []string{"service:rc"},
	Run: onHandshake(func(d *handshake) {
		most := privateLimits(d.dut)
		ask, answer := rig.Pattern(most.request, 1), rig.Pattern(most.reply, 7)
		param := connParam
		param.PrivateData = ask
		d.startConnect(param, d.dut.ResponseTimeout())
		req := d.nextRequest()
		param.PrivateData = answer
		d.accept(req, param)
		checkPrivateData(d.dut, "the request", req.Param().PrivateData, ask)
		checkPrivateData(d.dut, "the answer", d.conn.Param().PrivateData, answer)
	}),
}, {
	ID:   "verbs/cm/private-data-too-long",
	Cite: manual("rdma_connect(3)", "verbs/cm/6"), Needs: verbs.CapRC, Labels: []string{"service:rc"},
	Run: rig.Body(func(r *rig.Rig) {
		d := newHandshake(r, true)
		param := connParam
		param.PrivateData = make([]byte, privateLimits(r).tooLong)
		_, err := d.active.CM().Connect(d.active.qp, d.listener.Addr(), param, r.ResponseTimeout())
		r.MustFail("a connection with too much private data", err, verbs.ErrInvalid)
		d.connect()
	}),
}, {
	ID:   "verbs/cm/rejected",
	Cite: manual("rdma_reject(3)", "verbs/cm/7"), Needs: verbs.CapRC, Labels: []string{"service:rc"},
	Run: onHandshake(func(d *handshake) {
		why := rig.Pattern(20, 5)
		d.startConnect(connParam, d.dut.ResponseTimeout())
		d.dut.Must("a request that can be rejected", d.nextRequest().Reject(why))
		err := d.task.Wait(d.dut.ResponseTimeout())
		var rejected *verbs.RejectError
		d.dut.Check(errors.Is(err, verbs.ErrRejected) && errors.As(err, &rejected), "a RejectError", "%v", err)
		checkPrivateData(d.dut, "the refusal", rejected.PrivateData, why)
		again := newHandshake(d.dut, d.dutIsActive())
		again.connect()
	}),
}, {
	ID:   "verbs/cm/nobody-listens",
	Cite: manual("rdma_connect(3)", "verbs/cm/8"), Needs: verbs.CapRC, Labels: []string{"service:rc"},
	Run: rig.Body(func(r *rig.Rig) {
		d := newHandshake(r, true)
		at := d.listener.Addr()
		r.Must("a listener that can be closed", d.listener.Close())
		_, err := d.active.CM().Connect(d.active.qp, at, connParam, r.ResponseTimeout())
		r.MustFail("a connection to a port without a listener", err, verbs.ErrRejected)
		r.Check(r.QueryQP(d.active.qp).State != rts, "a queue pair that is not in RTS", "RTS")
	}),
}})

// checkPrivateData fails the case unless got is want, with or without zeros after it.
func checkPrivateData(r *rig.Rig, what string, got, want []byte) {
	ok := bytes.HasPrefix(got, want) && len(bytes.Trim(got[min(len(want), len(got)):], "\x00")) == 0
	r.Check(ok, fmt.Sprintf("%d bytes of private data with %s, % .8x …", len(want), what, want), "%d bytes, % .8x …", len(got), got)
}
