package verbsapi

import (
	"errors"
	"fmt"
	"net/netip"
	"time"

	"github.com/fabrictest/fabrictest/conformance"
	"github.com/fabrictest/fabrictest/conformance/rig"
	"github.com/fabrictest/fabrictest/verbs"
)

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
