package roce

import (
	"bytes"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/fabrictest/fabrictest/conformance"
	"github.com/fabrictest/fabrictest/conformance/model"
	"github.com/fabrictest/fabrictest/conformance/packet/ib"
	"github.com/fabrictest/fabrictest/verbs"
)

// rejInvalidMTU is the reason of a REJ for an invalid path MTU.
const rejInvalidMTU ib.Reason = 26

// cmAppCases are about calls of the connection manager by an application on the device.
var cmAppCases = overCM.Cases([]conformance.Case{{
	ID: "cm/rej/invalid-path-mtu", Cite: ibta("chapter 12", "cm/25"), Setup: conformance.Setup{MTU: 1500},
	Title:   "A REQ with a path MTU that the port does not have is rejected",
	Sends:   "REQs with path MTU codes 0, 6 and 15, and one that is larger than the MTU of the port; then a correct one",
	Expects: "a REJ of the REQ for each, with reason 26, or 28 if the application could not accept; then a REP",
	Defects: []string{"cm.AnyPathMTU"}, Run: onListener(func(p *Port, l verbs.Listener) {
		app := p.cmAccept(l)
		for n, code := range []uint8{0, uint8(p.QueryPort().ActiveMTU) + 1, 6, 15} {
			comm := uint32(0x100 + n)
			req := p.cmRequest(cmPort, comm)
			req.PathMTU, req.QPN = &code, new(peerQPN+comm)
			p.SendPacket(ib.CM(uint64(comm), req))
			pkt, m := p.cmExpect(ib.REJ{RemoteCommID: &comm, About: new(model.CMAboutREQ)})
			rej, _ := m.(ib.REJ)
			p.Check(slices.Contains([]ib.Reason{rejInvalidMTU, ib.RejConsumer}, *rej.Reason), "a REJ with reason 26 or 28", "%v", pkt)
			if p.Sync(); app.done.Load() { // the application got the request
				app = p.cmAccept(l)
			}
		}
		k := &cmSession{acceptor: app, peerID: 0x40000000}
		p.SendPacket(ib.CM(uint64(k.peerID), p.cmRequest(cmPort, k.peerID)))
		k.expectREP(p.ResponseTimeout())
		k.establish()
	}),
}, {
	ID: "cm/rej/abandoned-connect-is-told", Cite: ibta("chapter 12", "cm/26"), Level: conformance.Should,
	Title:   "When the application no longer waits for the answer to its REQ, the device sends a REJ",
	Sends:   "nothing, or an MRA, for a REQ of the device; a REP after the application has given up",
	Expects: "ErrTimeout; a REJ with reason 4 and the device's GUID; then a REJ or nothing, and the queue pair not in RTS",
	Defects: []string{"cm.AbandonsSilently", "cm.TimeoutWithoutGUID"}, Run: OnPort(func(p *Port) {
		guid := p.QueryDevice().NodeGUID
		for n := range uint32(2) {
			k := p.cmConnect(0x77+n, cmPatience)
			if n > 0 {
				k.send(ib.MRA{About: new(model.CMAboutREQ)})
			}
			p.MustFail("Connect without an answer", k.task.Wait(p.ResponseTimeout()), verbs.ErrTimeout)
			pkt, m := p.cmExpect(model.CMRejectGUID(k.req.LocalCommID, nil, guid))
			rej, _ := m.(ib.REJ)
			p.Check(*rej.RemoteCommID == 0 || n > 0 && *rej.RemoteCommID == k.peerID, "a REJ without a remote ID, or with that of the MRA", "%v", pkt)
			k.send(cmReply(peerQPN + n))
			p.expectAbandoned(k.conn.QP)
		}
	}),
}, {
	ID: "cm/rej/given-up-is-told", Cite: ibta("chapter 12", "cm/26"), Level: conformance.Should, Labels: []string{conformance.Slow},
	Title:   "After the last retry of a REQ or REP, the device sends a REJ",
	Sends:   "nothing for a REQ and a REP of the device; for others an MRA after each copy",
	Expects: "copies of the message; then a REJ with reason 4 and the device's GUID, and an error of the verb",
	Defects: []string{"cm.GivesUpSilently", "cm.GivesUpREPSilently", "cm.GivesUpSilentlyAfterMRA", "cm.GivesUpREPSilentlyAfterMRA"}, Run: OnPort(func(p *Port) {
		guid := p.QueryDevice().NodeGUID
		for _, delayed := range []bool{false, true} {
			c := p.cmConnect(7, verbs.Forever)
			rej := model.CMRejectGUID(c.req.LocalCommID, nil, guid) // the device may know the ID in the MRA
			p.expectGivenUp(c.req, rej, delayed, ib.MRA{LocalCommID: &c.peerID, RemoteCommID: c.req.LocalCommID, About: new(model.CMAboutREQ)})
			p.MustFail("Connect without an answer", c.task.Wait(p.ResponseTimeout()), nil)
		}
		l := p.cmListen(verbs.PortSpaceTCP)
		for n := range uint32(2) {
			k := p.cmOpen(l, n, func(r *ib.REQ) { r.LocalTimeout, r.MaxCMRetries = new(uint8(14)), new(uint8(1)) })
			p.expectGivenUp(k.rep, model.CMRejectGUID(&k.deviceID, &k.peerID, guid), n > 0, ib.MRA{LocalCommID: &k.peerID, RemoteCommID: &k.deviceID, About: new(model.CMAboutREP)})
			p.MustFail("Accept without an RTU", k.acceptor.task.Wait(p.ResponseTimeout()), nil)
		}
	}),
}, {
	ID: "cm/msg/other-ids-change-nothing", Cite: ibta("chapter 12", "cm/21"),
	Title:   "A message with other communication IDs than those of a connection does not change it",
	Sends:   "before the REP, REJs that withdraw the REQ with another GUID or ID; RTUs, REJs, DREQs and DREPs with an unknown or no local ID, or an unknown remote ID: before the RTU, on the connection, and while the device disconnects; in the role of the passive side, REPs and REJs, and a REP with the ID of another connection",
	Expects: "a connection that waits for its RTU, lasts and delivers; copies of the DREQ until the right DREP; a REQ that waits for its REP; at most REJs and DREPs for the others",
	Defects: []string{"cm.DREPAnyID", "cm.LateREJOfREQ", "cm.REJAnyID", "cm.RTUAnyID", "cm.WithdrawnByAnyGUID", "cm.REPWithUsedID"}, Run: onListener(func(p *Port, l verbs.Listener) {
		first, id := p.cmRequest(cmPort, 0x5000_0000), uint32(0x5000_0000)
		first.QPN = new(uint32(peerQPN + 9))
		p.SendPacket(ib.CM(uint64(id), first))
		p.Sync()
		p.SendPacket(ib.CM(uint64(id), model.CMRejectGUID(&id, new(uint32(0)), *first.LocalCAGUID^1)))
		p.SendPacket(ib.CM(uint64(id), model.CMRejectGUID(new(id^0x10000), new(uint32(0)), *first.LocalCAGUID)))
		k := &cmSession{acceptor: p.cmAccept(l), peerID: id}
		k.expectREP(p.ResponseTimeout())
		k.establish()

		k = p.cmOpen(l, 0, func(r *ib.REQ) {
			r.LocalTimeout, r.MaxCMRetries, r.AckTimeout = new(p.LongTimeout(16)), new(uint8(15)), new(uint8(timeout67ms))
		})
		p.sendWithOtherIDs(k.peerID, k.deviceID, uint32(k.acceptor.conn.QP.QPN()))
		p.Check(!k.acceptor.done.Load(), "Accept waits", "it has returned: %v", k.acceptor.task.Wait(0))
		k.establish()
		p.sendWithOtherIDs(k.peerID, k.deviceID, uint32(k.acceptor.conn.QP.QPN()))
		k.expectDelivery(0)
		k.acceptor.conn.expectLasts(k.acceptor.established)

		closing := p.Go("disconnect", k.acceptor.established.Disconnect)
		pkt, dreq := p.cmExpect(ib.DREQ{LocalCommID: &k.deviceID, RemoteCommID: &k.peerID})
		p.sendWithOtherIDs(k.peerID, k.deviceID, uint32(k.acceptor.conn.QP.QPN()))
		p.expectCopy(dreq, 0)
		p.SendPacket(ib.CM(transactionOf(pkt), ib.DREP{LocalCommID: &k.peerID, RemoteCommID: &k.deviceID}))
		p.Must("a connection that has been disconnected", closing.Wait(p.ResponseTimeout()))

		c := p.cmConnect(7, verbs.Forever)
		rep := cmReply(peerQPN + 1)
		for _, m := range []ib.Message{rep, ib.REJ{About: new(model.CMAboutREQ), Reason: new(ib.RejConsumer)}} {
			other, _ := ib.WithCommIDs(m, c.peerID, *c.req.LocalCommID^0x10000)
			p.SendPacket(ib.CM(c.tid, other))
		}
		p.drainAnswers()
		c.establish(rep)
		p.sendWithOtherIDs(c.peerID, *c.req.LocalCommID, uint32(c.conn.QP.QPN()))
		again := p.cmConnect(c.peerID, cmPatience)
		again.send(cmReply(peerQPN + 2)) // with the ID of the other connection
		p.drainAnswers()
		p.MustFail("Connect without a REP with an ID of its own", again.task.Wait(p.ResponseTimeout()), nil)
		p.expectLasts(c.established)
	}),
}, {
	ID: "cm/life/backlog-has-pending-requests-only", Cite: ibta("", "cm/13"),
	Title:   "Requests that were accepted, rejected or withdrawn do not fill the backlog of a listener",
	Sends:   "REQs to a listener with a backlog of 1: some accepted, some rejected, some that the peer withdraws; SIDR_REQs to another such one, if the device has UD",
	Expects: "each request answered, and the last REQ with a REP",
	Defects: []string{"cm.AcceptedFillBacklog", "cm.AnsweredSIDRFillsBacklog"}, Run: OnPort(func(p *Port) {
		l, err := p.CM().Listen(netip.AddrPortFrom(p.deviceAddr, cmPort), verbs.PortSpaceTCP, 1)
		p.Must("a listener", err)
		for n := range uint32(3) {
			p.cmOpen(l, 3*n).establish()
			for k := 3*n + 1; k < 3*n+3; k++ {
				comm := 0x40000000 + k
				req := p.cmRequest(cmPort, comm)
				req.QPN = new(peerQPN + k)
				p.SendPacket(ib.CM(uint64(comm), req))
				if p.Sync(); k == 3*n+1 { // withdraw this one
					p.SendPacket(ib.CM(uint64(comm), model.CMRejectGUID(&comm, new(uint32(0)), *req.LocalCAGUID)))
					p.Sync()
				}
			}
			for req, err := l.GetRequest(0); err == nil; req, err = l.GetRequest(0) {
				_ = req.Reject(nil) // fails if the peer has withdrawn the request
			}
			p.Drain(shortWait)
		}
		p.cmOpen(l, 100).establish()
		if !p.Caps.Has(verbs.CapUD) {
			return
		}
		l, err = p.CM().Listen(netip.AddrPortFrom(p.deviceAddr, cmPort), verbs.PortSpaceUDP, 1)
		p.Must("a listener", err)
		for id := range uint32(3) {
			p.SendPacket(ib.CM(uint64(id), p.cmSIDRRequest(ib.ServiceID(ib.PortSpaceUDP, cmPort), id)))
			req, err := l.GetRequest(p.ResponseTimeout())
			p.Must("a request", err)
			p.Must("a request that can be rejected", req.Reject(nil))
			p.cmExpect(ib.SIDRREP{RequestID: &id})
		}
	}),
}, {
	ID: "cm/rej/abandoned-accept-is-told", Cite: ibta("chapter 12", "cm/26"), Level: conformance.Should,
	Title:   "When the application no longer waits for the RTU, the device sends a REJ",
	Sends:   "nothing, or an MRA, for a REP of the device; an RTU after the application has given up",
	Expects: "ErrTimeout; a REJ with both communication IDs about no message, and with the device's GUID if its reason is 4; then a REJ or nothing, and the queue pair not in RTS",
	Defects: []string{"cm.AbandonsSilently"}, Run: onListener(func(p *Port, l verbs.Listener) {
		guid := p.QueryDevice().NodeGUID
		for n := range uint32(2) {
			k := &cmSession{acceptor: &cmAcceptor{conn: p.connect(Setup{state: verbs.QPStateInit})}, peerID: 0x40000000 + n}
			call := p.Go("accept", func() error {
				req, err := l.GetRequest(verbs.Forever)
				if err == nil {
					_, err = req.Accept(k.acceptor.conn.QP, cmParam(), cmPatience)
				}
				return err
			})
			req := p.cmRequest(cmPort, k.peerID)
			req.QPN = new(peerQPN + n)
			p.SendPacket(ib.CM(uint64(k.peerID), req))
			k.expectREP(p.ResponseTimeout())
			if n > 0 {
				p.SendPacket(ib.CM(uint64(k.peerID), ib.MRA{LocalCommID: &k.peerID, RemoteCommID: &k.deviceID, About: new(model.CMAboutREP)}))
			}
			p.MustFail("Accept without an RTU", call.Wait(p.ResponseTimeout()), verbs.ErrTimeout)
			pkt, m := p.cmExpect(ib.REJ{LocalCommID: &k.deviceID, RemoteCommID: &k.peerID, About: new(model.CMAboutOther)})
			rej, _ := m.(ib.REJ)
			p.Check(slices.Contains([]ib.Reason{model.CMRejectTimeout, ib.RejConsumer}, *rej.Reason), "a REJ with reason 4 or 28", "%v", pkt)
			if *rej.Reason == model.CMRejectTimeout {
				p.cmCheckFields(model.CMRejectGUID(&k.deviceID, &k.peerID, guid), pkt, m)
			}
			k.sendRTU()
			p.expectAbandoned(k.acceptor.conn.QP)
		}
	}),
}, {
	ID: "cm/rej/ends-a-delayed-attempt", Cite: ibta("chapter 12", "cm/22"),
	Title:   "A REJ ends an attempt to connect that an MRA has delayed",
	Sends:   "an MRA for a REP and for a REQ of the device, and a REJ of it",
	Expects: "the applications get the rejection and its reason",
	Defects: []string{"cm.REJIgnoredAfterMRAOfREP", "cm.REJIgnoredAfterMRAOfREQ"}, Run: onListener(func(p *Port, l verbs.Listener) {
		k := p.cmOpen(l, 0)
		p.rejectDelayed(k.acceptor.task, k.peerID, k.deviceID, model.CMAboutREP)
		c := p.cmConnect(7, verbs.Forever)
		p.rejectDelayed(c.task, c.peerID, *c.req.LocalCommID, model.CMAboutREQ)
	}),
}, {
	ID: "cm/rej/names-the-reply-that-it-rejects", Cite: ibta("chapter 12", "cm/25"),
	Title:   "A REJ of a REP names the REP, also after an MRA",
	Sends:   "a REP, and the same twice, for REQs of queue pairs that the application has moved to ERR",
	Expects: "no RTU, and an error of Connect; each REJ has both communication IDs and is about the REP",
	Defects: []string{"cm.REJOfDelayedREPNamesNone"}, Run: OnPort(func(p *Port) {
		for n := range uint32(2) {
			k := p.cmConnect(7+n, verbs.Forever)
			k.conn.ToState(k.conn.QP, verbs.QPStateErr)
			for range n + 1 {
				k.send(cmReply(peerQPN + n))
			}
			p.MustFail("Connect of a queue pair in ERR", k.task.Wait(p.ResponseTimeout()), nil)
			want := ib.REJ{LocalCommID: k.req.LocalCommID, RemoteCommID: &k.peerID, About: new(model.CMAboutREP)}
			for _, pkt := range p.Drain(shortWait) {
				if _, m, _ := pkt.CM(); ib.AttrOf(m) != ib.AttrMRA {
					p.cmCheck(want, pkt, m)
				}
			}
		}
	}),
}, {
	ID: "cm/rej/closed-listener-rejects-pending", Cite: ibta("Table 106", "cm/1"),
	Title:   "Requests that the application has not taken are rejected when it closes the listener",
	Sends:   "two REQs to a listener, the second of them twice; then the application closes the listener",
	Expects: "a REJ with reason 8 or 28 for each, perhaps after an MRA for the second",
	Defects: []string{"cm.ClosedListenerIsSilent", "cm.ClosedListenerIsSilentAfterMRA"}, Run: onListener(func(p *Port, l verbs.Listener) {
		comms := []uint32{0x100, 0x101}
		for n, comm := range comms {
			req := p.cmRequest(cmPort, comm)
			req.QPN = new(peerQPN + uint32(n))
			for range n + 1 {
				p.SendPacket(ib.CM(uint64(comm), req))
			}
		}
		p.Sync()
		p.Must("a listener that is closed", l.Close())
		for range comms {
			pkt, m := p.cmExpect(ib.REJ{About: new(model.CMAboutREQ)})
			rej, _ := m.(ib.REJ)
			i := slices.Index(comms, *rej.RemoteCommID)
			p.Check(i >= 0 && transactionOf(pkt) == uint64(comms[i]), "a REJ of a request, once", "%v", pkt)
			p.Check(slices.Contains([]ib.Reason{ib.RejInvalidServiceID, ib.RejConsumer}, *rej.Reason), "a REJ with reason 8 or 28", "%v", pkt)
			comms[i] = 0
		}
	}),
}, {
	ID: "cm/req/listener-has-its-address", Cite: ibta("Annex A11", "cm/27"), Setup: conformance.Setup{TwoAddresses: true},
	Title:   "A listener gets the requests for its own address only, or for all addresses if it has none",
	Sends:   "REQs to two addresses of the device, with a listener at one of them, one at each, and one at all",
	Expects: "a REJ with reason 8 or 28 from the address without a listener; else a REP from the address of the REQ, and a connection that uses this address",
	Defects: []string{"cm.ListenerAnyAddress", "cm.AcceptsAtFirstAddress"}, Run: OnPort(func(p *Port) {
		listen := func(a netip.Addr) verbs.Listener {
			l, err := p.CM().Listen(netip.AddrPortFrom(a, cmPort), verbs.PortSpaceTCP, 4)
			p.Must("a listener", err)
			return l
		}
		opened := uint32(0)
		open := func(l verbs.Listener, to netip.Addr) {
			p.deviceAddr = to
			k := p.cmOpen(l, opened)
			k.establish()
			k.expectDelivery(opened)
			opened++
		}
		first := listen(p.Local[0])
		open(first, p.Local[0])
		p.deviceAddr = p.Local[1]
		req := p.cmRequest(cmPort, 1)
		req.QPN = new(uint32(peerQPN + 9))
		p.SendPacket(ib.CM(1, req))
		_, m := p.cmExpect(ib.REJ{RemoteCommID: new(uint32(1))})
		rej := m.(ib.REJ)
		p.Check(*rej.Reason == ib.RejInvalidServiceID || *rej.Reason == ib.RejConsumer, "reason 8 or 28", "%v", *rej.Reason)
		second := listen(p.Local[1])
		open(second, p.Local[1])
		open(first, p.Local[0])
		p.Must("a listener that is closed", first.Close())
		p.Must("a listener that is closed", second.Close())
		unspecified := netip.IPv4Unspecified()
		if p.Local[0].Is6() {
			unspecified = netip.IPv6Unspecified()
		}
		all := listen(unspecified)
		open(all, p.Local[0])
		open(all, p.Local[1])
	}),
}, {
	ID: "cm/sidr/request-repeated-until-answered", Cite: ibta("chapter 12", "cm/28"), Level: conformance.Should, Needs: verbs.CapUD, Labels: labelUD,
	Title:   "A SIDR_REQ is retransmitted until it is answered, and given up after a limited number of retries",
	Sends:   "a SIDR_REP for the third copy of a SIDR_REQ, in real time for the second; in virtual time, nothing for another SIDR_REQ",
	Expects: "equal copies, none after the SIDR_REP or when the application no longer waits; an error of Resolve for the other one",
	Defects: []string{"cm.SIDRREQOnce"}, Run: OnPort(func(p *Port) {
		resolve := func() (call conformance.Task, first Arrival, request ib.SIDRREQ) {
			call = p.Go("resolve", func() error {
				_, err := p.CM().Resolve(netip.AddrPortFrom(p.Peer, cmConnectPort), nil, time.Hour)
				return err
			})
			first, m := p.cmExpect(ib.SIDRREQ{})
			request, _ = m.(ib.SIDRREQ)
			return call, first, request
		}
		call, first, request := resolve()
		for range byClock(p, 2, 1) {
			pkt, _ := p.cmNext(cmRetryTimeout, ib.SIDRREQ{})
			p.Check(bytes.Equal(pkt.Payload, first.Payload), "the same SIDR_REQ", "%v", pkt)
		}
		p.SendPacket(ib.CM(transactionOf(first), ib.SIDRREP{RequestID: request.RequestID, QPN: new(uint32(9)), QKey: new(uint32(ib.UDQKey))}))
		p.Must("a service that is found", call.Wait(p.ResponseTimeout()))
		_, err := p.CM().Resolve(netip.AddrPortFrom(p.Peer, cmConnectPort), nil, cmPatience)
		p.MustFail("Resolve without an answer in time", err, verbs.ErrTimeout)
		p.cmExpect(ib.SIDRREQ{})
		p.expectSilence(byClock(p, time.Minute, silencePeriod))
		if p.Virtual {
			call, _, _ = resolve()
			p.MustFail("Resolve without an answer", call.Wait(30*time.Minute), nil)
		}
	}),
}, {
	ID: "cm/req/transport-of-the-queue-pair", Cite: ibta("chapter 12", "cm/29"), Needs: verbs.CapUC, Labels: labelUC,
	Title:   "A REQ has the transport of the queue pair, and connects UC as well",
	Sends:   "a REP for the REQ of a UC queue pair, and a REQ for UC that the application accepts, or the CM rejects; nothing to UD and XRC queue pairs that the application connects, if supported",
	Expects: "a REQ with transport 1 and an RTU; a REP and a delivered message, or a REJ; no REQ for UD, and none but that of XRC for XRC",
	Defects: []string{"cm.UCRequestedAsRC"}, Run: onListener(func(p *Port, l verbs.Listener) {
		setup := ucSetup(1)
		setup.state = verbs.QPStateInit
		c := p.cmConnect(7, p.ResponseTimeout(), setup)
		p.Check(*c.req.Transport == cmTransportUC, "a REQ with transport 1", "%d", *c.req.Transport)
		c.establish(cmReply(peerQPN))
		c.conn.Attr.RQPSN = uint32(*c.req.StartingPSN)
		c.conn.Send(ucSendOnly(c.conn.PeerPSN(0), 48))
		c.conn.ExpectRecv(1, 48)

		k := &cmSession{acceptor: p.cmAccept(l, setup), peerID: 0x40000000}
		request := p.cmRequest(cmPort, k.peerID)
		request.QPN, request.Transport = new(uint32(peerQPN+1)), new(uint8(cmTransportUC))
		p.SendPacket(ib.CM(uint64(k.peerID), request))
		if _, m := p.cmNext(p.ResponseTimeout(), ib.REP{}); ib.AttrOf(m) == ib.AttrREP {
			rep := m.(ib.REP)
			k.rep, k.deviceID, k.acceptor.conn.Attr.RQPSN = rep, *rep.LocalCommID, uint32(*rep.StartingPSN)
			k.establish()
			k.acceptor.conn.Send(ucSendOnly(k.acceptor.conn.PeerPSN(0), 48))
			k.acceptor.conn.ExpectRecv(1, 48)
		}
		p.expectNoOtherTransport(verbs.QPTypeUD)
		p.expectNoOtherTransport(verbs.QPTypeXRCSend)
	}),
}, {
	ID: "cm/qp/reads-within-responder-resources", Cite: ibta("chapter 12", "cm/23"),
	Title:   "A connected queue pair has no more READs outstanding than the responder resources of its peer",
	Sends:   "REQs, and REPs for REQs of the device, with responder resources 1, 2, 4 and 8; the application has an initiator depth of 4, and posts six READs",
	Expects: "1, 2, 4 and 4 READ requests",
	Defects: []string{"cm.PassiveDepthNotLimited", "cm.ActiveDepthNotLimited"}, Run: onListener(func(p *Port, l verbs.Listener) {
		for n, resources := range []uint8{1, 2, 4, 8} {
			k := p.cmOpen(l, uint32(2*n), func(r *ib.REQ) { r.RespResources = &resources })
			k.establish()
			k.acceptor.conn.expectReads(int(min(resources, cmParam().InitiatorDepth)))

			c, rep := p.cmConnect(uint32(7+n), p.ResponseTimeout()), cmReply(peerQPN+uint32(2*n+1))
			rep.RespResources = &resources
			c.establish(rep)
			c.conn.expectReads(int(min(resources, cmParam().InitiatorDepth)))
		}
	}),
}})

// expectGivenUp fails the case unless the device sends m and later rej, with which it gives up
// waiting for an answer; between them it may send copies of m. If delayed, the peer sends mra after
// m and each copy, which makes the device wait longer.
func (p *Port) expectGivenUp(m ib.Message, rej ib.REJ, delayed bool, mra ib.MRA) {
	mra.ServiceTimeout = new(uint8(16)) // the code of 268 ms
	pkt, got := p.cmNext(cmRetryTimeout, m)
	for p.cmCheck(m, pkt, got); ib.AttrOf(got) == ib.AttrOf(m); pkt, got = p.cmNext(cmRetryTimeout, rej) {
		if delayed {
			p.SendPacket(ib.CM(1, mra))
		}
	}
	p.cmCheck(rej, pkt, got)
}

// rejectDelayed has the peer send an MRA about a message of the device, and a REJ. The case fails
// unless the call of the application returns the rejection.
func (p *Port) rejectDelayed(call conformance.Task, local, remote uint32, about uint8) {
	p.SendPacket(ib.CM(1, ib.MRA{LocalCommID: &local, RemoteCommID: &remote, About: &about, ServiceTimeout: new(uint8(20))}))
	p.SendPacket(ib.CM(1, ib.REJ{LocalCommID: &local, RemoteCommID: &remote, About: &about, Reason: new(ib.RejConsumer)}))
	err := call.Wait(p.ResponseTimeout())
	var rejected *verbs.RejectError
	p.Check(errors.As(err, &rejected) && rejected.Reason == uint16(ib.RejConsumer), fmt.Sprintf("a RejectError with reason %v", ib.RejConsumer), "%v", err)
}

// sendWithOtherIDs sends messages about the connection with these communication IDs and this QP of
// the device, but with an unknown or no local ID, or an unknown remote one.
func (p *Port) sendWithOtherIDs(local, remote, qpn uint32) {
	messages := []ib.Message{ib.RTU{}, ib.DREQ{RemoteQPN: &qpn}, ib.DREP{}}
	for _, about := range []uint8{model.CMAboutREQ, model.CMAboutREP, model.CMAboutOther} {
		messages = append(messages, ib.REJ{About: &about, Reason: new(ib.RejConsumer)})
	}
	for _, m := range messages {
		for _, ids := range [][2]uint32{{local ^ 0x10000, remote}, {0, remote}, {local, remote ^ 0x10000}} {
			other, _ := ib.WithCommIDs(m, ids[0], ids[1])
			p.SendPacket(ib.CM(uint64(local), other))
		}
	}
	p.drainAnswers()
}

// drainAnswers receives the answers of the device to the messages with unknown IDs that were sent:
// REJs, DREPs, or none. The device may also retransmit a REQ, REP or DREQ; an RTU fails the case.
// To find the last answer, drainAnswers sends a REQ that the device must reject, and waits for the
// REJ.
func (p *Port) drainAnswers() {
	last := p.cmRequest(cmClosedPort, 0x6000_0000)
	last.QPN = new(uint32(peerQPN + 0x100))
	p.SendPacket(ib.CM(uint64(*last.LocalCommID), last))
	for rejected := false; !rejected; {
		pkt, m := p.cmNext(p.ResponseTimeout(), ib.REJ{})
		p.Check(ib.AttrOf(m) != attrRTU, "nothing, a REJ or a DREP", "%v", pkt)
		rejected = ib.DiffCM(ib.REJ{RemoteCommID: last.LocalCommID}, m) == nil
	}
}

// expectLasts fails the case if a connection has ended.
func (p *Port) expectLasts(c verbs.Conn) {
	err := c.WaitDisconnect(byClock(p, time.Second, 100*time.Millisecond))
	p.Check(errors.Is(err, verbs.ErrTimeout), "a connection that lasts", "WaitDisconnect returns %v", err)
}

// expectReads has the application post six READs, and fails the case unless the device sends want
// of them. It then moves the queue pair to ERR and discards the completions.
func (c *Conn) expectReads(want int) {
	for id := range uint64(6) {
		c.PostSend(c.QP, c.ReadWR(id, 8))
	}
	sent := c.Drain(sentSoFar)
	c.Check(len(sent) == want, fmt.Sprintf("%d READ requests", want), "%d: %v", len(sent), sent)
	for _, pkt := range sent {
		c.checkPacket(ib.Op(ib.OpReadRequest), pkt)
	}
	c.Must("a queue pair that goes to ERR", c.QP.Modify(verbs.QPAttr{State: verbs.QPStateErr}, verbs.QPAttrState))
	c.Completions()
}

// expectNoOtherTransport has the application connect a UD or XRC queue pair, if the device has
// such. The case fails if the device sends a REQ, except one with the extended transport XRC for
// XRC.
func (p *Port) expectNoOtherTransport(kind verbs.QPType) {
	if !p.Caps.Has(capOf[kind]) {
		return
	}
	c := p.connect(Setup{qpType: kind, state: verbs.QPStateInit})
	call := p.Go("connect", func() error {
		_, err := p.CM().Connect(c.QP, netip.AddrPortFrom(p.Peer, cmConnectPort), cmParam(), cmPatience)
		return err
	})
	p.MustFail(fmt.Sprintf("Connect of %v without an answer", kind), call.Wait(p.ResponseTimeout()), nil)
	for _, pkt := range p.Drain(shortWait) {
		_, m, _ := pkt.CM()
		req, isREQ := m.(ib.REQ)
		if !isREQ {
			continue
		}
		ofXRC := kind == verbs.QPTypeXRCSend && *req.Transport == cmTransportExt && *req.ExtTransport == cmExtXRC
		p.Check(ofXRC, fmt.Sprintf("no REQ with another transport than that of %v", kind), "%v with transport %d", pkt, *req.Transport)
	}
}

// Transports in a REQ, and the timeout of an application.
const (
	cmTransportUC  = 1
	cmTransportExt = 3 // the field ExtTransport has the transport
	cmExtXRC       = 1
	// cmPatience is the timeout of Connect, Accept and Resolve in cases about applications that
	// give up: shorter than the timeouts of the CM.
	cmPatience = 500 * time.Millisecond
)

// expectAbandoned fails the case if the device sends anything but REJs, or the queue pair is in
// RTS.
func (p *Port) expectAbandoned(qp verbs.QP) {
	for _, pkt := range p.Drain(shortWait) {
		_, m, err := pkt.CM()
		p.Check(err == nil && ib.AttrOf(m) == attrREJ, "nothing, or a REJ", "%v", pkt)
	}
	state := p.QueryQP(qp).State
	p.Check(state != verbs.QPStateRTS, "a queue pair that is not in RTS", "%v", state)
}

// transactionOf returns the transaction ID of a packet that cmExpect has returned.
func transactionOf(pkt Arrival) uint64 {
	mad, _, _ := pkt.CM()
	return *mad.TID
}
