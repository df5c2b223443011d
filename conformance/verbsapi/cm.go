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

var listenCases = conformance.Group{Needs: verbs.CapCM}.Cases([]conformance.Case{{
	ID: "verbs/cm/listen-at-any-port", Cite: cite("rdma_bind_addr(3)", "verbs/cm/1"),
	Title:   "A listener at port 0 gets a free port, and returns it",
	Expects: "three listeners with the requested address, at three different ports",
	Defects: []string{"ListenAddrZero"}, Run: rig.Body(func(r *rig.Rig) {
		ports := make(map[uint16]bool)
		for range 3 {
			at := listen(r).Addr()
			r.Check(at.Addr() == r.Local[0] && at.Port() != 0 && !ports[at.Port()], fmt.Sprintf("another port at %v", r.Local[0]), "%v", at)
			ports[at.Port()] = true
		}
	}),
}, {
	ID: "verbs/cm/port-in-use", Cite: cite("rdma_bind_addr(3)", "verbs/cm/2"),
	Title:   "A port in use cannot be listened to again until its listener is closed",
	Expects: "a refusal of a second listener; a listener at the same port when the first is closed",
	Defects: []string{"PortsShared"}, Run: rig.Body(func(r *rig.Rig) {
		first := listen(r)
		r.MustFail("a second listener at a port", errorOf(r.CM().Listen(first.Addr(), verbs.PortSpaceTCP, 1)), nil)
		at := first.Addr()
		r.Must("a listener that can be closed", first.Close())
		again := rig.Result(r.CM().Listen(at, verbs.PortSpaceTCP, 1))(r, "a listener at a port that is free again")
		r.Check(again.Addr() == at, at.String(), "%v", again.Addr())
	}),
}, {
	ID: "verbs/cm/listen-at-all-addresses", Cite: cite("rdma_bind_addr(3)", "verbs/cm/1"),
	Needs: verbs.CapRC, Labels: []string{"service:rc"}, Setup: conformance.Setup{TwoAddresses: true},
	Title:   "A listener at the unspecified address gets the requests to every address of the device",
	Sends:   "a request of the peer to each of two addresses",
	Expects: "a connection for each",
	Defects: []string{"ListensAtFirstAddress"}, Run: rig.Body(func(r *rig.Rig) {
		unspecified := netip.IPv4Unspecified()
		if r.Local[0].Is6() {
			unspecified = netip.IPv6Unspecified()
		}
		l := listenAt(r, unspecified)
		for _, addr := range r.Local[:2] {
			d := newHandshake(r, false)
			d.task = r.Go("connect", func() (err error) {
				d.conn, err = d.active.CM().Connect(d.active.qp, netip.AddrPortFrom(addr, l.Addr().Port()), connParam, r.ResponseTimeout())
				return err
			})
			d.accept(rig.Result(l.GetRequest(r.ResponseTimeout()))(r, "a request to "+addr.String()), connParam)
		}
	}),
}})

// cmCases test connections of RC queue pairs.
var cmCases = conformance.Group{Needs: verbs.CapCM | verbs.CapRC, Labels: []string{"service:rc"}}.Cases([]conformance.Case{{
	ID: "verbs/cm/connects", Cite: cite("rdma_accept(3)", "verbs/cm/3"),
	Title:   "An accepted connection leaves both queue pairs in RTS, and each side has the other's address",
	Sends:   "a request and its acceptance, in each direction; messages both ways",
	Expects: "RTS on both sides, the messages, and the peer's address",
	Defects: []string{"RemoteUnknown"}, Run: onHandshake(func(d *handshake) {
		d.startConnect(connParam, d.DUT.ResponseTimeout())
		req := d.nextRequest()
		d.DUT.Check(d.dutIsActive() || req.Remote().Addr() == d.Partner.GIDEntry().GID.Addr(), "the requester's address", "%v", req.Remote())
		d.accept(req, connParam)
		d.DUT.ExpectState(d.active.qp, rts)
		d.DUT.AwaitState(d.passive.qp, rts)
		if d.dutIsActive() {
			d.DUT.Check(d.conn.Remote() == d.listener.Addr(), fmt.Sprintf("a peer at %v", d.listener.Addr()), "%v", d.conn.Remote())
		}
		// Over iWARP the active side may have to send first.
		expectDelivery(d.active, d.passive, 24)
		expectDelivery(d.passive, d.active, 40)
	}),
}, {
	ID: "verbs/cm/what-was-asked-for", Cite: cite("rdma_connect(3)", "verbs/cm/4"),
	Title:   "A connection request carries responder resources and initiator depth of its sender",
	Sends:   "a request of the peer for depths of 3 and 5",
	Expects: "these in the request",
	Defects: []string{"ConnParamLost"}, Run: onPassive(func(d *handshake) {
		d.startConnect(verbs.ConnParam{ResponderResources: 3, InitiatorDepth: 5, RetryCount: 6, RNRRetryCount: 5}, d.DUT.ResponseTimeout())
		req := d.nextRequest()
		p := req.Param()
		d.DUT.Check(p.ResponderResources == 3 && p.InitiatorDepth == 5, "responder resources 3, initiator depth 5", "%d, %d", p.ResponderResources, p.InitiatorDepth)
		d.accept(req, connParam)
	}),
}, {
	ID: "verbs/cm/private-data", Cite: cite("rdma_connect(3)", "verbs/cm/5"),
	Title:   "A request and its reply carry private data, up to the limits of rdma_cm and the transport",
	Sends:   "private data of the maximum length with a request and its reply, in each direction",
	Expects: "the same at the other side; zeros may follow if the transport's messages have a fixed size",
	Defects: []string{"PrivateDataLost"}, Run: onHandshake(func(d *handshake) {
		most := privateLimits(d.DUT)
		ask, answer := rig.Pattern(most.request, 1), rig.Pattern(most.reply, 7)
		param := connParam
		param.PrivateData = ask
		d.startConnect(param, d.DUT.ResponseTimeout())
		req := d.nextRequest()
		param.PrivateData = answer
		d.accept(req, param)
		d.DUT.CheckPrivateData("the request", req.Param().PrivateData, ask)
		d.DUT.CheckPrivateData("the answer", d.conn.Param().PrivateData, answer)
	}),
}, {
	ID: "verbs/cm/private-data-too-long", Cite: cite("rdma_connect(3)", "verbs/cm/6"),
	Title:   "Too much private data is refused, and the queue pair is unchanged",
	Sends:   "nothing: the device connects with one byte too much",
	Expects: "EINVAL; then a connection without private data",
	Defects: []string{"PrivateDataUnchecked"}, Run: onActive(func(d *handshake) {
		param := connParam
		param.PrivateData = make([]byte, privateLimits(d.DUT).tooLong)
		_, err := d.active.CM().Connect(d.active.qp, d.listener.Addr(), param, d.DUT.ResponseTimeout())
		d.DUT.MustFail("a connection with too much private data", err, verbs.ErrInvalid)
		d.connect()
	}),
}, {
	ID: "verbs/cm/rejected", Cite: cite("rdma_reject(3)", "verbs/cm/7", "verbs/cm/18"),
	Title:   "A rejected connection returns an error with the private data of the rejecting side",
	Sends:   "a request of the device that the partner rejects, and the reverse",
	Expects: "a RejectError with the private data; queue pairs that can be connected afterwards",
	Defects: []string{"RejectIsTimeout", "PrivateDataLost"}, Run: onHandshake(func(d *handshake) {
		why := rig.Pattern(20, 5)
		d.startConnect(connParam, d.DUT.ResponseTimeout())
		d.DUT.Must("a request that can be rejected", d.nextRequest().Reject(why))
		err := d.task.Wait(d.DUT.ResponseTimeout())
		var rejected *verbs.RejectError
		d.DUT.Check(errors.Is(err, verbs.ErrRejected) && errors.As(err, &rejected), "a RejectError", "%v", err)
		d.DUT.CheckPrivateData("the refusal", rejected.PrivateData, why)
		if d.active.QueryQP(d.active.qp).State == errState { // rdma_cm fails the queue pair
			d = newHandshake(d.DUT, d.dutIsActive())
		}
		d.connect()
	}),
}, {
	ID: "verbs/cm/nobody-listens", Cite: cite("rdma_connect(3)", "verbs/cm/8"),
	Title:   "A connection to a port without a listener is rejected",
	Sends:   "a request of the device to a closed port of the partner",
	Expects: "ErrRejected, and the queue pair not in RTS",
	Defects: []string{"RejectIsTimeout"}, Run: onActive(func(d *handshake) {
		at := d.listener.Addr()
		d.DUT.Must("a listener that can be closed", d.listener.Close())
		_, err := d.active.CM().Connect(d.active.qp, at, connParam, d.DUT.ResponseTimeout())
		d.DUT.MustFail("a connection to a port without a listener", err, verbs.ErrRejected)
		d.DUT.Check(d.DUT.QueryQP(d.active.qp).State != rts, "a queue pair that is not in RTS", "RTS")
	}),
}})

// cmLifeCases test pending requests and the end of connections.
var cmLifeCases = conformance.Group{Needs: verbs.CapCM | verbs.CapRC, Labels: []string{"service:rc"}}.Cases([]conformance.Case{{
	ID: "verbs/cm/patience", Cite: cite(packageVerbs, "verbs/cm/9"),
	Title:   "Connect and GetRequest end at their timeouts",
	Sends:   "a request that is not answered for 300 ms, and is accepted then; a wait for a request for 100 ms",
	Expects: "ErrTimeout, not before its time and not long after; no connection of the request",
	Defects: []string{"CMTimeoutsTenfold", "TimedOutConnects"}, Run: rig.Body(func(r *rig.Rig) {
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
			return errorOf(d.active.CM().Connect(d.active.qp, d.listener.Addr(), connParam, 300*time.Millisecond))
		})
		if req, err := d.listener.GetRequest(shortWait); err == nil { // it may have been withdrawn
			_, _ = req.Accept(d.passive.qp, connParam, shortWait)
		}
		r.Check(r.QueryQP(d.active.qp).State != rts, "a queue pair that is not in RTS", "RTS")
		takes("a wait for a request", 100*time.Millisecond, func() error {
			return errorOf(listen(r).GetRequest(100 * time.Millisecond))
		})
	}),
}, {
	ID: "verbs/cm/several-requests", Cite: cite("rdma_listen(3)", "verbs/cm/10"),
	Title:   "A listener returns every request, also those that arrived while it was busy with another",
	Sends:   "three requests of the peer, before the application gets the first, to a listener with a backlog of four; then three others",
	Expects: "three requests each time, distinguished by their private data, and three connections",
	Defects: []string{"ListenerServesOne", "TakenFillBacklog"}, Run: onPassive(func(d *handshake) {
		s := setup{qpType: verbs.QPTypeRC}
		for range 2 {
			tasks, clients := make([]conformance.Task, 0, 3), make([]*endpoint, 3)
			for i := range 3 {
				client := newEndpoint(d.Partner, &s)
				clients[i] = client
				param := connParam
				param.PrivateData = []byte{byte(i + 1)}
				tasks = append(tasks, d.DUT.Go(fmt.Sprintf("client %d", i), func() error {
					return errorOf(client.CM().Connect(client.qp, d.listener.Addr(), param, d.DUT.ResponseTimeout()))
				}))
			}
			d.DUT.Sleep(shortWait)
			seen := make(map[byte]bool)
			for range 3 {
				req := d.nextRequest()
				private := req.Param().PrivateData // the number of the client
				d.DUT.Check(len(private) > 0 && !seen[private[0]] && private[0] >= 1 && private[0] <= 3, "a request of another client", "private data % x", private)
				seen[private[0]] = true
				newEndpoint(d.DUT, &s).accept(req, connParam, clients[private[0]-1])
			}
			for _, t := range tasks {
				d.DUT.Must("a connection", t.Wait(d.DUT.ResponseTimeout()))
			}
		}
	}),
}, {
	ID: "verbs/cm/answered-once", Cite: cite("rdma_reject(3)", "verbs/cm/11"),
	Title:   "A request is answered once",
	Sends:   "a request of the peer that is accepted, then refused, and accepted with another queue pair; one that is refused, and then accepted",
	Expects: "the second answers are refused, and the connection continues",
	Defects: []string{"AnswersTwice", "SecondAcceptEndsConn"}, Run: rig.Body(func(r *rig.Rig) {
		d := newHandshake(r, false)
		d.startConnect(connParam, r.ResponseTimeout())
		req := d.nextRequest()
		d.accept(req, connParam)
		r.MustFail("refusing a request that was accepted", req.Reject(nil), nil)
		_, err := req.Accept(newEndpoint(r, &setup{qpType: verbs.QPTypeRC}).qp, connParam, r.ResponseTimeout())
		r.MustFail("accepting a request that was accepted", err, nil)
		d.pair().expectBothDeliver()
		d = newHandshake(r, false)
		d.startConnect(connParam, r.ResponseTimeout())
		req = d.nextRequest()
		r.Must("a request that can be rejected", req.Reject(nil))
		err = d.task.Wait(r.ResponseTimeout())
		r.Check(errors.Is(err, verbs.ErrRejected), "a request that was refused", "%v", err)
		_, err = req.Accept(d.passive.qp, connParam, r.ResponseTimeout())
		r.MustFail("accepting a request that was refused", err, nil)
	}),
}, {
	ID: "verbs/cm/queue-pair-in-use", Cite: cite(packageVerbs, "verbs/cm/12"),
	Title:   "A queue pair that is being connected, is connected or has failed cannot be connected again, and its connection continues",
	Sends:   "second connects of a queue pair while the first waits for its answer, and after it; then messages over the first, and a connect after its end",
	Expects: "refusals, and the messages",
	Defects: []string{"CMTakesAnyQP", "ConnectsTwice", "ConnectsFailedQP"}, Run: onActive(func(d *handshake) {
		expectRefused := func(what string) {
			_, err := d.active.CM().Connect(d.active.qp, d.listener.Addr(), connParam, shortWait)
			d.DUT.MustFail("connecting a queue pair that "+what, err, nil)
			d.DUT.Check(!errors.Is(err, verbs.ErrTimeout), "a refusal at once", "%v", err)
		}
		d.startConnect(connParam, d.DUT.ResponseTimeout())
		req := d.nextRequest()
		expectRefused("is being connected")
		d.accept(req, connParam)
		expectRefused("is connected")
		d.pair().expectBothDeliver()
		d.active.Must("a connection that can be ended", d.active.conn.Disconnect())
		d.DUT.Must("the end of the connection", d.passive.conn.WaitDisconnect(d.DUT.ResponseTimeout()))
		d.active.AwaitState(d.active.qp, errState)
		expectRefused("has failed")
	}),
}, {
	ID: "verbs/cm/disconnect", Cite: cite("rdma_disconnect(3)", "verbs/cm/13"),
	Title:   "A disconnect ends the connection on both sides: both queue pairs go to ERR, and posted work is flushed",
	Sends:   "a disconnect of the device",
	Expects: "the disconnect at the partner; ERR and flushed receives on both sides",
	Defects: []string{"DisconnectSilent"}, Run: onHandshake(func(d *handshake) {
		l := d.establish()
		l.expectDisconnect(l.dut, l.partner)
	}),
}, {
	ID: "verbs/cm/disconnected-by-the-peer", Cite: cite("rdma_disconnect(3)", "verbs/cm/14"),
	Title:   "A disconnect of the peer is reported, and the queue pair goes to ERR",
	Sends:   "a disconnect of the partner",
	Expects: "the disconnect; ERR and flushed receives on both sides",
	Defects: []string{"EndUnnoticed"}, Run: onHandshake(func(d *handshake) {
		l := d.establish()
		l.expectDisconnect(l.partner, l.dut)
	}),
}, {
	ID: "verbs/cm/no-end-before-the-end", Cite: cite(packageVerbs, "verbs/cm/15"),
	Title:   "Waiting for a disconnect of an established connection times out",
	Sends:   "a wait of 100 ms on a connection in use",
	Expects: "ErrTimeout, not before its time, and a connection that works",
	Defects: []string{"WaitImpatient"}, Run: onActive(func(d *handshake) {
		d.connect()
		expectTimeout(d.DUT, 100*time.Millisecond, d.conn.WaitDisconnect)
		d.pair().expectBothDeliver()
	}),
}})

// cmOtherCases test listeners that are closed, and datagram services.
var cmOtherCases = conformance.Group{Needs: verbs.CapCM}.Cases([]conformance.Case{{
	ID: "verbs/cm/close-ends-listening", Cite: cite(packageVerbs, "verbs/cm/16"),
	Title:   "Closing a listener ends a wait on it",
	Sends:   "a task that waits for ever for a request; the listener is closed meanwhile",
	Expects: "the wait ends with ErrClosed",
	Defects: []string{"CloseLeavesWaiting"}, Run: rig.Body(func(r *rig.Rig) {
		l := listen(r)
		expectCloseEndsWaits(r, "a listener", l, func() error { return errorOf(l.GetRequest(verbs.Forever)) })
	}),
}, {
	ID:   "verbs/cm/datagram-service",
	Cite: cite("rdma_connect(3)", "verbs/cm/17"), Needs: verbs.CapUD, Labels: []string{"service:ud"},
	Title:   "A datagram service can be resolved by its address, and datagrams reach it",
	Sends:   "a SIDR request of the device for a service of the partner, and a datagram to the result",
	Expects: "number, key and private data of the service; the datagram",
	Defects: []string{"ResolvedKeyLost", "PrivateDataLost"}, Run: rig.Body(func(r *rig.Rig) {
		l := newPair(rig.NewPair(r), setup{qpType: verbs.QPTypeUD})
		addr := netip.AddrPortFrom(l.partner.GIDEntry().GID.Addr(), 0)
		listener := rig.Result(l.partner.CM().Listen(addr, verbs.PortSpaceUDP, 1))(r, "a datagram service")
		service := r.Go("service", func() error {
			req, err := listener.GetRequest(r.ResponseTimeout())
			if err != nil {
				return err
			}
			return errorOf(req.Accept(l.partner.qp, verbs.ConnParam{PrivateData: []byte("here")}, r.ResponseTimeout()))
		})
		peer := rig.Result(l.dut.CM().Resolve(listener.Addr(), []byte("where"), r.ResponseTimeout()))(r, "a service that is found")
		r.Must("a service that answers", service.Wait(r.ResponseTimeout()))
		r.CheckPrivateData("the answer", peer.PrivateData, []byte("here"))
		ah := rig.Result(r.PD.CreateAH(peer.AH))(r, "a handle of the service's address")
		wr := l.dut.sendWR(2, 0, 24)
		wr.UD = verbs.UD{AH: ah, QPN: peer.QPN, QKey: peer.QKey}
		l.dut.expectArrives(l.partner, wr, l.dut.mem.Buf[:24])
	}),
}})
