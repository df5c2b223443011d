package verbsapi

import (
	"bytes"
	"errors"
	"fmt"
	"net/netip"
	"time"

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

// cmLifeCases test pending requests and the end of connections.
var cmLifeCases = conformance.Group{Needs: verbs.CapCM}.Cases([]conformance.Case{{
	ID:   "verbs/cm/patience",
	Cite: manual(packageVerbs, "verbs/cm/9"), Needs: verbs.CapRC, Labels: []string{"service:rc"},
	Run: rig.Body(func(r *rig.Rig) {
		// The upper limit is generous for a busy machine.
		takes := func(what string, limit time.Duration, call func() error) {
			began := r.Now()
			err := call()
			took := r.Now() - began
			r.MustFail(what, err, verbs.ErrTimeout)
			r.Check(took >= limit && took < 5*limit, fmt.Sprintf("%s to end after %v", what, limit), "after %v", took)
		}
		d := newHandshake(r, true)
		takes("a request that is not answered", 300*time.Millisecond, func() error {
			_, err := d.active.CM().Connect(d.active.qp, d.listener.Addr(), connParam, 300*time.Millisecond)
			return err
		})
		takes("a wait for a request", 100*time.Millisecond, func() error {
			_, err := listen(r).GetRequest(100 * time.Millisecond)
			return err
		})
	}),
}, {
	ID:   "verbs/cm/several-requests",
	Cite: manual("rdma_listen(3)", "verbs/cm/10"), Needs: verbs.CapRC, Labels: []string{"service:rc"},
	Run: rig.Body(func(r *rig.Rig) {
		d := newHandshake(r, false)
		s := setup{qpType: verbs.QPTypeRC}
		tasks, callers := make([]conformance.Task, 0, 3), make([]*endpoint, 3)
		for i := range 3 {
			caller := newEndpoint(d.partner, &s)
			callers[i] = caller
			param := connParam
			param.PrivateData = []byte{byte(i + 1)}
			tasks = append(tasks, r.Go(fmt.Sprintf("caller %d", i), func() error {
				_, err := caller.CM().Connect(caller.qp, d.listener.Addr(), param, r.ResponseTimeout())
				return err
			}))
		}
		r.Sleep(shortWait)
		seen := make(map[byte]bool)
		for range 3 {
			req := d.nextRequest()
			who := req.Param().PrivateData
			r.Check(len(who) > 0 && !seen[who[0]] && who[0] >= 1 && who[0] <= 3, "a request of another caller", "private data % x", who)
			seen[who[0]] = true
			newEndpoint(r, &s).accept(req, connParam, callers[who[0]-1])
		}
		for _, t := range tasks {
			r.Must("a connection", t.Wait(r.ResponseTimeout()))
		}
	}),
}, {
	ID:   "verbs/cm/answered-once",
	Cite: manual("rdma_reject(3)", "verbs/cm/11"), Needs: verbs.CapRC, Labels: []string{"service:rc"},
	Run: rig.Body(func(r *rig.Rig) {
		d := newHandshake(r, false)
		d.startConnect(connParam, r.ResponseTimeout())
		req := d.nextRequest()
		d.accept(req, connParam)
		r.MustFail("refusing a request that was accepted", req.Reject(nil), nil)
		d.pair().expectBothDeliver()
		d = newHandshake(r, false)
		d.startConnect(connParam, r.ResponseTimeout())
		req = d.nextRequest()
		r.Must("a request that can be rejected", req.Reject(nil))
		err := d.task.Wait(r.ResponseTimeout())
		r.Check(errors.Is(err, verbs.ErrRejected), "a request that was refused", "%v", err)
		_, err = req.Accept(d.passive.qp, connParam, r.ResponseTimeout())
		r.MustFail("accepting a request that was refused", err, nil)
	}),
}, {
	ID:   "verbs/cm/queue-pair-in-use",
	Cite: manual(packageVerbs, "verbs/cm/12"), Needs: verbs.CapRC, Labels: []string{"service:rc"},
	Run: rig.Body(func(r *rig.Rig) {
		d := newHandshake(r, true)
		d.connect()
		_, err := d.active.CM().Connect(d.active.qp, d.listener.Addr(), connParam, shortWait)
		r.MustFail("connecting a connected queue pair", err, nil)
		r.Check(!errors.Is(err, verbs.ErrTimeout), "a refusal at once", "%v", err)
		d.pair().expectBothDeliver()
	}),
}, {
	ID:   "verbs/cm/disconnect",
	Cite: manual("rdma_disconnect(3)", "verbs/cm/13"), Needs: verbs.CapRC, Labels: []string{"service:rc"},
	Run: onHandshake(func(d *handshake) {
		l := d.establish(2)
		l.dut.Must("a connection that can be ended", l.dut.conn.Disconnect())
		l.dut.Must("the end of the connection at the partner", l.partner.conn.WaitDisconnect(l.dut.ResponseTimeout()))
		l.expectFlushed(2)
	}),
}, {
	ID:   "verbs/cm/disconnected-by-the-peer",
	Cite: manual("rdma_disconnect(3)", "verbs/cm/14"), Needs: verbs.CapRC, Labels: []string{"service:rc"},
	Run: onHandshake(func(d *handshake) {
		l := d.establish(2)
		l.partner.Must("a connection that can be ended", l.partner.conn.Disconnect())
		l.dut.Must("the end of the connection", l.dut.conn.WaitDisconnect(l.dut.ResponseTimeout()))
		l.expectFlushed(2)
	}),
}, {
	ID:   "verbs/cm/no-end-before-the-end",
	Cite: manual(packageVerbs, "verbs/cm/15"), Needs: verbs.CapRC, Labels: []string{"service:rc"},
	Run: rig.Body(func(r *rig.Rig) {
		d := newHandshake(r, true)
		d.connect()
		const while = 100 * time.Millisecond
		began := r.Now()
		r.MustFail("waiting for the end", d.conn.WaitDisconnect(while), verbs.ErrTimeout)
		r.Check(r.Now()-began >= while, fmt.Sprintf("a timeout after %v", while), "after %v", r.Now()-began)
		d.pair().expectBothDeliver()
	}),
}, {
	ID: "verbs/cm/close-ends-listening", Cite: manual(packageVerbs, "verbs/cm/16"),
	Run: rig.Body(func(r *rig.Rig) {
		l := listen(r)
		waiter := r.Go("wait", func() error { _, err := l.GetRequest(verbs.Forever); return err })
		r.Sleep(shortWait)
		r.Must("a listener that can be closed", l.Close())
		err := waiter.Wait(r.ResponseTimeout())
		r.Check(errors.Is(err, verbs.ErrClosed), "a wait that ends with ErrClosed", "%v", err)
	}),
}, {
	ID:   "verbs/cm/datagram-service",
	Cite: manual("rdma_connect(3)", "verbs/cm/17"), Needs: verbs.CapUD, Labels: []string{"service:ud"},
	Run: rig.Body(func(r *rig.Rig) {
		l := newPair(r, setup{qpType: verbs.QPTypeUD})
		listener, err := l.partner.CM().Listen(netip.AddrPortFrom(l.partner.GIDEntry().GID.Addr(), 0), verbs.PortSpaceUDP, 1)
		r.Must("a datagram service", err)
		service := r.Go("service", func() error {
			req, err := listener.GetRequest(r.ResponseTimeout())
			if err != nil {
				return err
			}
			_, err = req.Accept(l.partner.qp, verbs.ConnParam{PrivateData: []byte("here")}, r.ResponseTimeout())
			return err
		})
		peer, err := l.dut.CM().Resolve(listener.Addr(), []byte("where"), r.ResponseTimeout())
		r.Must("a service that is found", err)
		r.Must("a service that answers", service.Wait(r.ResponseTimeout()))
		checkPrivateData(r, "the answer", peer.PrivateData, []byte("here"))
		ah, err := r.PD.CreateAH(peer.AH)
		r.Must("a handle of the service's address", err)
		l.partner.postRecv(1, recvOffset, 64)
		wr := l.dut.sendWR(2, 0, 24)
		wr.UD = verbs.UD{AH: ah, QPN: peer.QPN, QKey: peer.QKey}
		l.dut.PostSend(l.dut.qp, wr)
		l.partner.expectMessage(1, recvOffset, l.dut.mem.Buf[:24])
	}),
}})
