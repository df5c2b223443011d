package roce

import (
	"errors"
	"fmt"
	"time"

	"github.com/fabrictest/fabrictest/conformance"
	"github.com/fabrictest/fabrictest/conformance/model"
	"github.com/fabrictest/fabrictest/conformance/packet/ib"
	"github.com/fabrictest/fabrictest/verbs"
)

var cmCases = overCM.Cases([]conformance.Case{{
	ID: "cm/req/listener-answers-in-time", Cite: ibta("Table 106", "cm/1"),
	Title:   "A REQ for a service with a listener is answered within the timeout in the REQ",
	Sends:   "a REQ with a remote CM response timeout of 1.07 s, and an RTU",
	Expects: "a REP within that time, and a connection that carries a message",
	Defects: []string{"cm.IgnoreREQ"}, Run: onListener(func(p *Port, l verbs.Listener) {
		const code = 18
		asked := p.Now()
		k := p.cmOpen(l, 0, func(r *ib.REQ) { r.RemoteTimeout = new(uint8(code)) })
		took := p.Now() - asked
		p.Check(took <= ib.AckTimeout(code), fmt.Sprintf("a REP within %v", ib.AckTimeout(code)), "it took %v", took)
		k.establish()
		k.expectDelivery(0)
	}),
}, {
	ID: "cm/req/repeated-request-makes-no-second-connection", Cite: ibta("chapter 12", "cm/4"),
	Title:   "A duplicate REQ makes no second connection",
	Sends:   "a REQ twice before the application accepts, twice before the RTU, and once after it; one with the same communication ID and another QPN before the RTU",
	Expects: "REPs, if any, with the same communication ID and queue pair number, and none for the other QPN; one request for the application",
	Defects: []string{"cm.DuplicateREQSecondConn", "cm.OtherQPIsDuplicate"}, Run: onListener(func(p *Port, l verbs.Listener) {
		req, begun := ib.CM(0x40000000, p.cmRequest(cmPort, 0x40000000)), p.Now()
		p.SendPacket(req)
		p.SendPacket(req)
		p.Sync()
		k := &cmSession{acceptor: p.cmAccept(l), peerID: 0x40000000}
		k.expectREP(p.ResponseTimeout())
		p.SendPacket(req)
		k.expectSameREPs()
		other := p.cmRequest(cmPort, k.peerID)
		other.QPN = new(uint32(peerQPN + 1))
		p.SendPacket(ib.CM(0x40000000, other))
		for _, pkt := range p.Drain(shortWait) {
			_, m, err := pkt.CM()
			isLate := p.Now()-begun > 4*time.Second // perhaps a retransmission
			p.Check(err == nil && (ib.AttrOf(m) != ib.AttrREP || isLate), "no REP for a REQ of another queue pair", "%v", pkt)
		}
		k.establish()
		p.SendPacket(req)
		k.expectSameREPs()
		p.expectNoRequest(l)
	}),
}, {
	ID: "cm/req/lids-ignored", Cite: annexA17("CA17-34", "cm/5"),
	Title:   "The LIDs in a REQ are ignored",
	Sends:   "REQs whose LIDs are 0xffff, 0 and something else; the same with an alternate path that has these LIDs",
	Expects: "a REP for each",
	Defects: []string{"cm.RejectZeroLID"}, Run: onListener(func(p *Port, l verbs.Listener) {
		for n, lids := range [][2]uint16{{0xffff, 0xffff}, {0, 0}, {0x1234, 0x5678}, {0xc000, 0}} {
			p.cmOpen(l, uint32(2*n), func(r *ib.REQ) { r.LocalLID, r.RemoteLID = &lids[0], &lids[1] }).establish()
			p.cmOpen(l, uint32(2*n+1), func(r *ib.REQ) {
				r.AltLocalLID, r.AltRemoteLID = &lids[0], &lids[1]
				r.AltLocalGID, r.AltRemoteGID, r.AltHopLimit, r.AltAckTimeout = p.Peer, p.deviceAddr, new(uint8(64)), new(uint8(timeout67ms))
			}).establish()
		}
	}),
}, {
	ID: "cm/req/mra-while-the-consumer-is-slow", Cite: ibta("chapter 12", "cm/10"), Level: conformance.Should,
	Title:   "A duplicate REQ is answered by an MRA while the application has not decided",
	Sends:   "a REQ, and the same twice again while the application waits; then an RTU for its REP",
	Expects: "an MRA for each repeated REQ, then a REP",
	Defects: []string{"cm.NoMRA"}, Run: onListener(func(p *Port, l verbs.Listener) {
		const comm = 0x40000000
		req := ib.CM(comm, p.cmRequest(cmPort, comm))
		p.SendPacket(req)
		p.Sync() // the device may send an MRA at once
		for range 2 {
			p.SendPacket(req)
			p.cmExpect(ib.MRA{RemoteCommID: new(uint32(comm)), About: new(uint8(ib.AboutREQ))})
		}
		k := &cmSession{acceptor: p.cmAccept(l), peerID: comm}
		k.expectREP(p.ResponseTimeout())
		k.establish()
	}),
}, {
	ID: "cm/rep/repeated-until-rtu", Cite: ibta("chapter 12", "cm/3", "cm/19"),
	Title:   "A REP is retransmitted until the RTU arrives, with the timeout in the REQ; a DREQ then has all retries",
	Sends:   "a REQ with a timeout of 134 ms and three retries; the RTU after three REPs; no DREP for the DREQ of the device",
	Expects: "equal REPs at least 134 ms apart, and none after the RTU; the queue pair in ERR, four equal DREQs so far apart, and no fifth",
	Defects: []string{"cm.NoRetransmitREP", "cm.RetriesOfREPCount", "cm.DisconnectAwaitsDREP"}, Run: onListener(func(p *Port, l verbs.Listener) {
		const code = 15
		k := p.cmOpen(l, 0, func(r *ib.REQ) { r.LocalTimeout, r.MaxCMRetries = new(uint8(code)), new(uint8(3)) })
		for range 2 {
			p.expectCopy(k.rep, ib.AckTimeout(code))
		}
		k.establish()
		p.Sleep(5 * ib.AckTimeout(code))
		p.expectSilence(silencePeriod)
		closing := p.Go("disconnect", k.acceptor.established.Disconnect)
		_, dreq := p.cmExpect(ib.DREQ{LocalCommID: &k.deviceID, RemoteCommID: &k.peerID})
		for range 3 {
			p.expectCopy(dreq, ib.AckTimeout(code))
		}
		k.acceptor.conn.ExpectState(k.acceptor.conn.QP, verbs.QPStateErr)
		p.Sleep(5 * ib.AckTimeout(code))
		p.expectSilence(silencePeriod)
		p.Must("Disconnect without an answer", closing.Wait(p.ResponseTimeout()))
	}),
}, {
	ID: "cm/rep/each-mra-puts-off-a-copy", Cite: ibta("chapter 12", "cm/20", "cm/21"),
	Title:   "Each MRA puts off the next copy of a REP or REQ; one with other IDs, or about another message, does not",
	Sends:   "an MRA for a REP, and for its first copy; long MRAs with unknown IDs and about the REQ; the RTU, or nothing if the REQ allows three retries; in virtual time, the same for a REQ",
	Expects: "the first two copies after the service timeout of the MRA; one more in time, and a connection; no REP after three retries",
	Defects: []string{"cm.MRAOfREPOnce", "cm.MRAOfREPAnyID", "cm.MRAOfREQOnce", "cm.MRARestoresRetries"}, Run: onListener(func(p *Port, l verbs.Listener) {
		code := p.LongTimeout(14)
		for n, retries := range []uint8{15, 3} { // expectPutOff expects three copies
			k := p.cmOpen(l, uint32(n), func(r *ib.REQ) { r.LocalTimeout, r.MaxCMRetries = &code, &retries })
			p.expectPutOff(k.rep, code, ib.MRA{LocalCommID: &k.peerID, RemoteCommID: &k.deviceID, About: new(model.CMAboutREP)})
			if retries == 3 {
				p.Check(k.copiesUntilGivenUp(code) == 0, "no REP beyond the last retry", "more")
			} else {
				k.establish()
			}
		}
		if !p.Virtual { // the timeout of REQs is several seconds
			return
		}
		c := p.cmConnect(7, verbs.Forever)
		p.expectPutOff(c.req, *c.req.RemoteTimeout, ib.MRA{LocalCommID: &c.peerID, RemoteCommID: c.req.LocalCommID, About: new(uint8(ib.AboutREQ))})
		c.establish(cmReply(peerQPN + 1))
	}),
}, {
	ID: "cm/rep/given-up-when-the-retries-are-spent", Cite: ibta("chapter 12", "cm/3"),
	Title:   "A REP is retransmitted as often as the REQ allows, and no more",
	Sends:   "a REQ with a timeout of 67 ms and nine retries, and no RTU; the REQ again after five REPs",
	Expects: "ten REPs, at most one more for the second REQ, and no connection",
	Defects: []string{"cm.NoRetransmitREP", "cm.ManyRetriesCut", "cm.DuplicateREQRestoresRetries"}, Run: onListener(func(p *Port, l verbs.Listener) {
		const code = 14
		var req ib.REQ
		k := p.cmOpen(l, 0, func(r *ib.REQ) {
			r.LocalTimeout, r.MaxCMRetries = new(uint8(code)), new(uint8(9))
			req = *r
		})
		for range 4 {
			p.expectCopy(k.rep, ib.AckTimeout(code))
		}
		p.SendPacket(ib.CM(uint64(k.peerID), req))
		copies := k.copiesUntilGivenUp(code)
		p.Check(copies == 5 || copies == 6, "five more REPs, and at most one for the second REQ", "%d", copies)
	}),
}, {
	ID: "cm/rtu/first-message-stands-for-it", Cite: ibta("chapter 12", "cm/8", "qp/12"),
	Title:   "If the RTU is lost, the first message establishes the connection",
	Sends:   "a REQ, no RTU, and a SEND; the same with an MRA for the REP",
	Expects: "an ACK, a connection, and no more REPs, both times",
	Defects: []string{"cm.IgnoreCommEst", "cm.MRAHidesData"}, Run: onListener(func(p *Port, l verbs.Listener) {
		const code = 15
		for n := range uint32(2) {
			k := p.cmOpen(l, n, func(r *ib.REQ) { r.LocalTimeout = new(uint8(code)) })
			if n > 0 {
				p.SendPacket(ib.CM(1, ib.MRA{LocalCommID: &k.peerID, RemoteCommID: &k.deviceID, About: new(model.CMAboutREP), ServiceTimeout: new(uint8(code))}))
			}
			k.expectDelivery(n)
			k.acceptor.expectEstablished("the first message")
			p.Sleep(5 * ib.AckTimeout(code))
			p.expectSilence(silencePeriod)
		}
	}),
}, {
	ID: "cm/rtu/either-establishes-the-passive-side", Cite: ibta("chapter 12", "qp/12", "async/2"),
	Title:   "An RTU or the first message establishes the connection, in any order",
	Sends:   "on three connections: an RTU, then a SEND; a SEND, then the RTU; a WRITE and no RTU; on another one a REJ, then a SEND",
	Expects: "an ACK for each message, and three connections; the last message does no harm",
	Defects: []string{"cm.IgnoreCommEst"}, Run: onListener(func(p *Port, l verbs.Listener) {
		k := p.cmOpen(l, 0)
		k.establish()
		k.expectDelivery(0)

		k = p.cmOpen(l, 1)
		k.expectDelivery(1)
		k.acceptor.expectEstablished("the first message")
		k.sendRTU() // a late RTU has no effect
		p.expectSilence(shortWait)
		k.acceptor.conn.ExpectState(k.acceptor.conn.QP, verbs.QPStateRTS)

		k = p.cmOpen(l, 2)
		k.acceptor.conn.Send(k.acceptor.conn.peerWrite(0, 0))
		k.acceptor.conn.expectPacket(k.acceptor.conn.deviceAck(0, 1).To(peerQPN + 2))
		k.acceptor.expectEstablished("a WRITE")

		k = p.cmOpen(l, 3)
		k.acceptor.conn.SendPacket(ib.CM(uint64(k.peerID), ib.REJ{LocalCommID: &k.peerID, RemoteCommID: &k.deviceID, About: new(uint8(1)), Reason: new(ib.RejConsumer)}))
		k.acceptor.conn.Send(k.acceptor.conn.peerSend(0, 16))
		_ = k.acceptor.task.Wait(p.ResponseTimeout()) // in real time, the message may arrive before Accept returns
		p.Drain(shortWait)
		p.cmOpen(l, 4).establish()
	}),
}, {
	ID: "cm/family/ipv6-connection-is-managed-over-ipv6", Cite: annexA17("A17.6.1", "cm/12"), Setup: ipv6,
	Title:   "CM messages of a connection over IPv6 are sent over IPv6",
	Sends:   "REQs, one of them for a service without a listener, a DREQ, and a REP for the device's REQ",
	Expects: "REPs, a REJ, a DREP, a DREQ, a REQ and an RTU between the addresses of IPv6, which the REQ names",
	Defects: []string{"cm.OverIPv4"}, Run: onListener(func(p *Port, l verbs.Listener) {
		k := p.cmOpen(l, 0)
		k.establish()
		k.disconnect()
		p.SendPacket(ib.CM(1, p.cmRequest(cmClosedPort, 1)))
		p.cmExpect(ib.REJ{RemoteCommID: new(uint32(1))})
		k = p.cmOpen(l, 1)
		k.establish()
		closing := p.Go("disconnect", k.acceptor.established.Disconnect)
		dreq, _ := p.cmExpect(ib.DREQ{LocalCommID: &k.deviceID, RemoteCommID: &k.peerID})
		p.SendPacket(ib.CM(transactionOf(dreq), ib.DREP{LocalCommID: &k.peerID, RemoteCommID: &k.deviceID}))
		p.Must("a connection that has been disconnected", closing.Wait(p.ResponseTimeout()))

		c := p.cmConnect(0x77, p.ResponseTimeout())
		if d := ib.DiffCM(ib.REQ{ServiceID: new(ib.ServiceID(ib.PortSpaceTCP, cmConnectPort)), LocalGID: p.deviceAddr, RemoteGID: p.Peer}, c.req); d != nil {
			p.Fail("a REQ with "+d.Want(), "%s", d.Got())
		}
		h, _, err := ib.ParseAddrHeader(c.req.Private)
		p.Check(err == nil && h.Src == p.deviceAddr && h.Dst == p.Peer,
			fmt.Sprintf("private data with %v and %v", p.deviceAddr, p.Peer), "%v and %v (%v)", h.Src, h.Dst, err)
		c.establish(cmReply(0x12345))
	}),
}, {
	ID: "cm/rej/unknown-service-refused", Cite: ibta("chapter 12", "cm/2"),
	Title:   "A REQ for a service without a listener is rejected with reason 8",
	Sends:   "REQs for a port without listener, for the same port of another port space, and for a listener that was closed",
	Expects: "a REJ of the REQ with reason 8 for each",
	Defects: []string{"cm.IgnoreUnknownService"}, Run: onListener(func(p *Port, l verbs.Listener) {
		refused := func(comm uint32, service uint64) {
			req := p.cmRequest(cmPort, comm)
			req.ServiceID = &service
			p.SendPacket(ib.CM(uint64(comm), req))
			p.cmExpect(ib.REJ{Reason: new(ib.RejInvalidServiceID), About: new(uint8(ib.AboutREQ))})
		}
		refused(1, ib.ServiceID(ib.PortSpaceTCP, cmClosedPort))
		refused(2, ib.ServiceID(ib.PortSpaceIB, cmPort))
		p.Must("a listener that is closed", l.Close())
		refused(3, ib.ServiceID(ib.PortSpaceTCP, cmPort))
	}),
}, {
	ID: "cm/rej/names-the-refused-request", Cite: ibta("chapter 12", "cm/2"),
	Title:   "A REJ has the communication ID of the REQ as its remote ID, and local ID 0",
	Sends:   "REQs with different communication IDs for a service without a listener",
	Expects: "REJs with the ID of the REQ as the remote one, and 0 as the local one",
	Defects: []string{"cm.RejectWithoutCommID"}, Run: OnPort(func(p *Port) {
		for _, comm := range []uint32{0x01020304, 0xfffffffe, p.Rand.Uint32()} {
			p.SendPacket(ib.CM(0x1122, p.cmRequest(cmClosedPort, comm)))
			p.cmExpect(ib.REJ{RemoteCommID: &comm, LocalCommID: new(uint32(0))})
		}
	}),
}, {
	ID: "cm/rej/refusal-of-the-program-is-told", Cite: ibta("Table 106", "cm/1"),
	Title:   "A REQ that the application rejects is answered by a REJ with the private data of the application",
	Sends:   "a REQ that an application on the device refuses with private data, and the same again, as if the REJ was lost",
	Expects: "a REJ of the REQ with reason 28, that the consumer refuses, and these data, twice",
	Defects: []string{"cm.IgnoreREQ"}, Run: onListener(func(p *Port, l verbs.Listener) {
		const comm = 0x0a0b0c0d
		program := p.Go("refuse", func() error {
			req, err := l.GetRequest(verbs.Forever)
			for err == nil {
				if err = req.Reject([]byte("not today")); err == nil {
					req, err = l.GetRequest(verbs.Forever)
				}
			}
			return err
		})
		for range 2 {
			p.SendPacket(ib.CM(comm, p.cmRequest(cmPort, comm)))
			p.cmExpect(ib.REJ{
				RemoteCommID: new(uint32(comm)), About: new(uint8(ib.AboutREQ)), Reason: new(ib.RejConsumer), Private: []byte("not today"),
			})
		}
		p.Must("a listener that is closed", l.Close())
		p.MustFail("GetRequest of a closed listener", program.Wait(p.ResponseTimeout()), nil)
	}),
}, {
	ID: "cm/rej/lid-reasons-never-sent", Cite: annexA17("CA17-35", "cm/6"),
	Title:   "A REJ never has an invalid LID as its reason",
	Sends:   "200 REQs with random LIDs, paths, limits and keys, for services with and without a listener",
	Expects: "no REJ with reason 13 or 19",
	Defects: []string{"cm.RejectZeroLID"}, Run: onListener(func(p *Port, l verbs.Listener) {
		for n := range uint32(200) {
			p.SendPacket(ib.CM(uint64(n), p.cmRandomRequest(n)))
			if n%16 == 0 { // keep the backlog short, so that it causes no REJ
				p.cmRejectAll(l)
			}
			for _, pkt := range p.Drain(shortWait) {
				_, m, err := pkt.CM()
				p.Check(err == nil, "a message of the communication manager", "%v (%v)", pkt, err)
				rej, isREJ := m.(ib.REJ)
				p.Check(!isREJ || *rej.Reason != ib.RejInvalidLID && *rej.Reason != ib.RejInvalidAltLID,
					"a REJ with another reason than an invalid LID", "%v", pkt)
			}
		}
	}),
}, {
	ID: "cm/rej/other-private-header-refused", Cite: ibta("Annex A11", "cm/9"),
	Title:   "A REQ with another version of the address header in its private data is rejected",
	Sends:   "REQs with version 1 and 255 of the header, and with IP version 0, 5 and 15; then a correct one",
	Expects: "a REJ for each of the REQ, which the application never sees; then a REP",
	Defects: []string{"cm.AcceptAnyPrivateVersion"}, Run: onListener(func(p *Port, l verbs.Listener) {
		for n, h := range []ib.AddrHeader{{Version: 1}, {Version: 255}, {IPVersion: 5}, {IPVersion: 15}, {IPVersion: 16}} {
			comm := uint32(0x100 + n)
			h.SrcPort, h.Src, h.Dst = cmSourcePort, p.Peer, p.deviceAddr
			req := p.cmRequest(cmPort, comm)
			req.Private = h.Append(nil) // IP version 16 is 0 in its four bits
			p.SendPacket(ib.CM(uint64(comm), req))
			p.cmExpect(ib.REJ{RemoteCommID: &comm, About: new(uint8(ib.AboutREQ))})
		}
		p.expectNoRequest(l)
		p.cmOpen(l, 0).establish()
	}),
}, {
	ID: "cm/sidr/answered-with-qp-and-key", Cite: ibta("Tables 119, 120", "cm/11"), Needs: verbs.CapUD, Labels: labelUD,
	Title:   "A SIDR_REQ is answered with the QPN and the Q_Key of the service",
	Sends:   "a SIDR_REQ, then a datagram with the number and the key of the answer; in virtual time, the same again ten minutes later, when another queue pair serves",
	Expects: "a SIDR_REP with status 0, the queue pair's number and its Q_Key; the datagram received",
	Defects: []string{"cm.SIDRZeroQKey", "cm.SIDRAnswerNeverExpires"}, Run: OnPort(func(p *Port) {
		l := p.cmListen(verbs.PortSpaceUDP)
		for range byClock(p, 2, 1) {
			p.resolveAndSend(l)
			p.Sleep(byClock(p, 10*time.Minute, 0)) // the peer repeats no request for so long
		}
	}),
}, {
	ID: "cm/sidr/unknown-service-refused", Cite: ibta("Tables 119, 120", "cm/11"), Needs: verbs.CapUD, Labels: labelUD,
	Title:   "A SIDR_REQ for a service without a listener is answered with status 1",
	Sends:   "SIDR_REQs for a port without listener, and for one where a connected service listens",
	Expects: "SIDR_REPs with the IDs of the requests and status 1, that the service is not supported",
	Defects: []string{"cm.IgnoreUnknownService"}, Run: OnPort(func(p *Port) {
		p.cmListen(verbs.PortSpaceTCP)
		for n, tcpPort := range []uint16{cmClosedPort, cmPort} {
			id := uint32(0x500 + n)
			p.SendPacket(ib.CM(uint64(id), p.cmSIDRRequest(ib.ServiceID(ib.PortSpaceUDP, tcpPort), id)))
			p.cmExpect(ib.SIDRREP{RequestID: &id, Status: new(uint8(ib.SIDRUnsupported))})
		}
	}),
}, {
	ID: "cm/drep/answered-after-the-end", Cite: ibta("chapter 12", "cm/7"),
	Title:   "A DREQ is answered by a DREP, even after the connection has ended",
	Sends:   "a DREQ, and the same again; on another connection, which the device ends, a DREP and then a DREQ; an MRA for a REP, and a DREQ",
	Expects: "a DREP for each DREQ, and the connections ended",
	Defects: []string{"cm.NoDREPWhenDisconnected", "cm.DREQIgnoredAfterMRA"}, Run: onListener(func(p *Port, l verbs.Listener) {
		k := p.cmEstablish(l, 0)
		k.disconnect()
		p.Must("a connection that has been disconnected", k.acceptor.established.WaitDisconnect(p.ResponseTimeout()))
		k.acceptor.conn.AwaitState(k.acceptor.conn.QP, verbs.QPStateErr)
		k.disconnect()

		k = p.cmEstablish(l, 1)
		closing := p.Go("disconnect", k.acceptor.established.Disconnect)
		pkt, _ := p.cmExpect(ib.DREQ{LocalCommID: &k.deviceID, RemoteCommID: &k.peerID, RemoteQPN: new(uint32(peerQPN + 1))})
		mad, _, _ := pkt.CM()
		p.SendPacket(ib.CM(*mad.TID, ib.DREP{LocalCommID: &k.peerID, RemoteCommID: &k.deviceID}))
		p.Must("a connection that has been disconnected", closing.Wait(p.ResponseTimeout()))
		p.Sync()
		k.disconnect()

		k = p.cmOpen(l, 2) // the peer sends no RTU, as if it was lost
		p.SendPacket(ib.CM(uint64(k.peerID), ib.MRA{LocalCommID: &k.peerID, RemoteCommID: &k.deviceID, About: new(uint8(1))}))
		p.Sync()
		k.disconnect()
		_ = k.acceptor.task.Wait(p.ResponseTimeout()) // Accept may return a connection or an error
	}),
}, {
	ID: "cm/life/thousands-of-connections-leave-no-residue", Cite: ibta("", "cm/13"), Labels: []string{conformance.Slow},
	Title:   "After thousands of connections another can be established",
	Sends:   "REQ, RTU and DREQ for one connection after the other: 3,000 in virtual time, 1,200 in real time; after every fourth a REP and a DREP for a connection of the device",
	Expects: "a REP and a DREP, or a REQ, an RTU and a DREQ, for each",
	Defects: []string{"cm.StopAfterConns"}, Run: onListener(func(p *Port, l verbs.Listener) {
		for n := range byClock[uint32](p, 3000, 1200) {
			p.cmOpenAndClose(l, n)
			if n%4 == 3 {
				p.cmConnectAndClose(n)
			}
		}
	}),
}, {
	ID: "cm/life/queue-pair-number-reused-at-once", Cite: ibta("", "cm/24"),
	Title:   "A REQ may have the QPN of a connection that has just ended",
	Sends:   "REQ, RTU and DREQ; another REQ with the same QPN at once",
	Expects: "a connection each time",
	Defects: []string{"cm.QPNHeldInTimeWait"}, Run: onListener(func(p *Port, l verbs.Listener) {
		p.cmOpenAndClose(l, 0)
		again := p.cmOpen(l, 2, func(r *ib.REQ) { r.QPN = new(uint32(peerQPN)) })
		again.establish()
		again.disconnect()
	}),
}, {
	ID: "cm/life/time-wait-gives-its-connection-back", Cite: ibta("", "cm/13"),
	Title:   "After time wait the communication IDs of a connection can be used again",
	Sends:   "REQ, RTU and DREQ; the same again, with the same IDs, after time wait; on another connection likewise, with the same queue pair of the device and no RTU",
	Expects: "a connection each time; the first message establishes the last one",
	Defects: []string{"cm.LeakTimeWait", "cm.ReusedQPKeepsConnection"}, Run: onListener(func(p *Port, l verbs.Listener) {
		p.cmOpenAndClose(l, 0)
		k := p.cmEstablish(l, 1)
		k.disconnect()
		p.Must("a connection that has been disconnected", k.acceptor.established.WaitDisconnect(p.ResponseTimeout()))
		// Longer than time wait: twice the packet lifetime from the timeouts in the REQ.
		p.Sleep(byClock(p, 10*time.Minute, 3*time.Second))
		p.cmOpenAndClose(l, 0)

		k.acceptor.conn.ToState(k.acceptor.conn.QP, verbs.QPStateReset)
		k.acceptor.conn.Completions() // discards flushed receives
		k.acceptor.conn.ToInit(k.acceptor.conn.QP, allAccess&^verbs.AccessLocalWrite, 0)
		k.acceptor.conn.PostRecv(k.acceptor.conn.QP, 1, k.acceptor.conn.LocalMem.SGE(0, 64))
		k.acceptor.accept(l)
		req := p.cmRequest(cmPort, k.peerID)
		req.QPN = new(uint32(peerQPN + 1))
		p.SendPacket(ib.CM(uint64(k.peerID), req))
		k.expectREP(p.ResponseTimeout())
		k.expectDelivery(1)
		k.acceptor.expectEstablished("the first message")
	}),
}})

// expectSameREPs fails the case if the device sends anything but copies of its REP, and MRAs.
func (k *cmSession) expectSameREPs() {
	for _, pkt := range k.acceptor.conn.Drain(shortWait) {
		_, m, err := pkt.CM()
		k.acceptor.conn.Check(err == nil, "nothing, or the same REP", "%v", pkt)
		if ib.AttrOf(m) == ib.AttrMRA {
			continue
		}
		if d := ib.DiffCM(ib.REP{LocalCommID: &k.deviceID, RemoteCommID: &k.peerID, QPN: k.rep.QPN}, m); d != nil {
			k.acceptor.conn.Fail("nothing, or the same REP with "+d.Want(), "%v with %s", pkt, d.Got())
		}
	}
}

// copiesUntilGivenUp returns the number of further REPs, whose response timeout has this code. The
// case fails unless the device gives up and Accept fails; the device may also send a REJ.
func (k *cmSession) copiesUntilGivenUp(code uint8) (copies int) {
	err := k.acceptor.task.Wait(k.acceptor.conn.ResponseTimeout())
	k.acceptor.conn.Check(k.acceptor.done.Load(), "an error from Accept", "it still waits after %v", k.acceptor.conn.ResponseTimeout())
	k.acceptor.conn.Check(err != nil, "no connection without an RTU", "one")
	for _, pkt := range k.acceptor.conn.Drain(8 * ib.AckTimeout(code)) {
		_, m, err := pkt.CM()
		k.acceptor.conn.Check(err == nil, "a message of the communication manager", "%v", pkt)
		if ib.AttrOf(m) == ib.AttrREP {
			copies++
		}
	}
	return copies
}

// expectCopy fails the case unless the device retransmits a message, not before a time has passed.
// A tenth of it is allowed for a late reading of the clock. A REJ of an earlier message with unknown
// IDs is permitted.
func (p *Port) expectCopy(of ib.Message, after time.Duration) {
	begun := p.Now()
	pkt, m := p.cmNext(4*after+p.ResponseTimeout(), of)
	for ib.AttrOf(m) == attrREJ {
		pkt, m = p.cmNext(4*after+p.ResponseTimeout(), of)
	}
	p.cmCheck(of, pkt, m)
	pause := p.Now() - begun
	p.Check(pause >= after*9/10, fmt.Sprintf("a retransmission of the %v after %v", ib.AttrOf(of), after), "%v", pause)
}

// expectPutOff sends MRAs for a message of the device that has the timeout with this code. The case
// fails unless they put off the next copy, twice. Then it sends some that must not.
func (p *Port) expectPutOff(m ib.Message, code uint8, mra ib.MRA) {
	const tooLong = 26 // 4.6 minutes
	send := func(mra ib.MRA, service uint8) {
		mra.ServiceTimeout = &service
		p.SendPacket(ib.CM(1, mra))
	}
	for range 2 {
		send(mra, code+2)
		p.expectCopy(m, ib.AckTimeout(code+2))
	}
	other := mra
	other.RemoteCommID = new(*mra.RemoteCommID ^ 0x10000)
	send(other, tooLong)
	if *mra.About != ib.AboutREQ { // else the device does not know the ID of its peer
		other = mra
		other.LocalCommID = new(*mra.LocalCommID ^ 0x10000)
		send(other, tooLong)
	}
	other = mra
	other.About = new(*mra.About ^ 1)
	send(other, tooLong)
	p.expectCopy(m, ib.AckTimeout(code))
}

// expectNoRequest fails the case if the application gets a connection request within a second of
// virtual time, or 100 ms of real time.
func (p *Port) expectNoRequest(l verbs.Listener) {
	req, err := l.GetRequest(byClock(p, time.Second, 100*time.Millisecond))
	if errors.Is(err, verbs.ErrTimeout) {
		return
	}
	p.Must("a listener", err)
	p.Fail("no other request for the application", "one from %v", req.Remote())
}

// cmEstablish establishes the n-th connection of a case, with an ACK timeout of 67 ms.
func (p *Port) cmEstablish(l verbs.Listener, n uint32) *cmSession {
	k := p.cmOpen(l, n, func(r *ib.REQ) { r.AckTimeout = new(uint8(timeout67ms)) })
	k.establish()
	return k
}

// cmOpenAndClose establishes the n-th connection of a case, disconnects, and frees its resources.
func (p *Port) cmOpenAndClose(l verbs.Listener, n uint32) {
	k := p.cmEstablish(l, n)
	k.disconnect()
	p.Must(fmt.Sprintf("connection %d that has been disconnected", n), k.acceptor.established.WaitDisconnect(p.ResponseTimeout()))
	k.acceptor.conn.free()
}

// resolveAndSend has the application on the device accept a SIDR_REQ with a new queue pair, and the
// peer send a datagram to it. The IDs in the SIDR_REQ are the same in each call.
func (p *Port) resolveAndSend(l verbs.Listener) {
	d := p.newUDPort(1, nil)
	p.Must("the Q_Key of rdma_cm", d.QP.Modify(verbs.QPAttr{State: verbs.QPStateRTS, QKey: ib.UDQKey}, verbs.QPAttrState|verbs.QPAttrQKey))
	accept := p.Go("accept", func() error {
		req, err := l.GetRequest(verbs.Forever)
		if err == nil {
			_, err = req.Accept(d.QP, verbs.ConnParam{}, p.ResponseTimeout())
		}
		return err
	})
	service := ib.ServiceID(ib.PortSpaceUDP, cmPort)
	p.SendPacket(ib.CM(5, p.cmSIDRRequest(service, 0x0a0b0c0d)))
	_, m := p.cmExpect(ib.SIDRREP{
		RequestID: new(uint32(0x0a0b0c0d)), Status: new(uint8(ib.SIDRValid)), ServiceID: &service,
		QPN: new(uint32(d.QP.QPN())), QKey: new(uint32(ib.UDQKey)),
	})
	p.Must("a request that is accepted", accept.Wait(p.ResponseTimeout()))
	rep, _ := m.(ib.SIDRREP)
	p.SendPacket(ib.Datagram(9, *rep.QKey, peerQPN, Data(16)).To(*rep.QPN))
	d.ExpectRecv(1, verbs.GRHLen+16)
}

// cmConnectAndClose has the application make the n-th connection to the peer, disconnect, and free
// its resources.
func (p *Port) cmConnectAndClose(n uint32) {
	k := p.cmConnect(0x5000_0000+n, p.ResponseTimeout())
	k.establish(cmReply(0x200000 + n))
	closing := p.Go("disconnect", k.established.Disconnect)
	pkt, _ := p.cmExpect(ib.DREQ{LocalCommID: k.req.LocalCommID, RemoteCommID: &k.peerID})
	p.SendPacket(ib.CM(transactionOf(pkt), ib.DREP{LocalCommID: &k.peerID, RemoteCommID: k.req.LocalCommID}))
	p.Must("a connection that has been disconnected", closing.Wait(p.ResponseTimeout()))
	k.conn.free()
}

// free destroys the queue pair and deregisters its memory. It discards flushed receives.
func (c *Conn) free() {
	c.Must("a queue pair that is destroyed", c.QP.Close())
	c.Must("memory that is deregistered", c.TargetMem.Close())
	c.Must("memory that is deregistered", c.LocalMem.Close())
	c.Completions()
}

// cmSIDRRequest returns a SIDR_REQ of the peer for a service, with request ID id.
func (p *Port) cmSIDRRequest(service uint64, id uint32) ib.SIDRREQ {
	return ib.SIDRREQ{
		RequestID: &id, ServiceID: &service,
		Private: ib.AddrHeader{SrcPort: cmSourcePort, Src: p.Peer, Dst: p.deviceAddr}.Append(nil),
	}
}

// cmRandomRequest returns the n-th REQ of a case, with random LIDs. Each of several other groups of
// fields is random in one of four REQs, and every third REQ is for a port without a listener.
func (p *Port) cmRandomRequest(n uint32) ib.REQ {
	tcpPort := uint16(cmPort)
	if n%3 == 0 {
		tcpPort = cmClosedPort
	}
	req := p.cmRequest(tcpPort, 0x70000000+n)
	req.QPN = new(peerQPN + n)
	lid := func() *uint16 { return new([]uint16{0, 0xffff, uint16(p.Rand.Uint32())}[p.Rand.IntN(3)]) }
	small := func(bits int) *uint8 { return new(uint8(p.Rand.IntN(1 << bits))) }
	req.LocalLID, req.RemoteLID, req.AltLocalLID, req.AltRemoteLID = lid(), lid(), lid(), lid()
	for _, randomize := range []func(){
		func() { req.PathMTU = small(4) },
		func() { req.Transport = small(2) },
		func() { req.HopLimit, req.TrafficClass, req.SL = small(8), small(8), small(4) },
		func() { req.AltLocalGID, req.AltRemoteGID = p.deviceAddr, p.Peer },
		func() { req.RespResources, req.InitiatorDepth = small(8), small(8) },
		func() { req.RetryCount, req.RNRRetryCount, req.AckTimeout = small(3), small(3), small(5) },
		func() { req.PKey = new(uint16(p.Rand.Uint32())) },
		func() { req.RemoteGID = p.PeerAddr(1) },
	} {
		if p.Rand.IntN(4) == 0 {
			randomize()
		}
	}
	return req
}

// cmRejectAll makes the application reject all pending requests.
func (p *Port) cmRejectAll(l verbs.Listener) {
	for {
		req, err := l.GetRequest(0)
		if errors.Is(err, verbs.ErrTimeout) {
			return
		}
		p.Must("a listener", err)
		p.Must(fmt.Sprintf("a request of %v that can be rejected", req.Remote()), req.Reject(nil))
	}
}
