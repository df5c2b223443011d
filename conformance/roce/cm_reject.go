package roce

import (
	"errors"
	"fmt"

	"github.com/fabrictest/fabrictest/conformance"
	"github.com/fabrictest/fabrictest/conformance/packet/ib"
	"github.com/fabrictest/fabrictest/verbs"
)

var cmRefuseCases = overCM.Cases([]conformance.Case{{
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
	Sends:   "a REQ that an application on the device refuses with private data",
	Expects: "a REJ of the REQ with reason 28, that the consumer refuses, and these data",
	Defects: []string{"cm.IgnoreREQ"}, Run: onListener(func(p *Port, l verbs.Listener) {
		const comm = 0x0a0b0c0d
		program := p.Go("refuse", func() error {
			req, err := l.GetRequest(verbs.Forever)
			if err == nil {
				err = req.Reject([]byte("not today"))
			}
			return err
		})
		p.SendPacket(ib.CM(comm, p.cmRequest(cmPort, comm)))
		p.cmExpect(ib.REJ{
			RemoteCommID: new(uint32(comm)), About: new(uint8(ib.AboutREQ)), Reason: new(ib.RejConsumer), Private: []byte("not today"),
		})
		p.Must("a connection request that can be rejected", program.Wait(p.ResponseTimeout()))
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
	Sends:   "a SIDR_REQ, then a datagram with the number and the key of the answer",
	Expects: "a SIDR_REP with status 0, the queue pair's number and its Q_Key; the datagram received",
	Defects: []string{"cm.SIDRZeroQKey"}, Run: OnPort(func(p *Port) {
		l := p.cmListen(verbs.PortSpaceUDP)
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
		p.ExpectRecv(1, verbs.GRHLen+16)
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
}})

// cmSIDRRequest returns a SIDR_REQ.
func (p *Port) cmSIDRRequest(service uint64, id uint32) ib.SIDRREQ {
	return ib.SIDRREQ{
		RequestID: &id, ServiceID: &service,
		Private: ib.AddrHeader{SrcPort: cmSourcePort, Src: p.Peer, Dst: p.deviceAddr}.Append(nil),
	}
}

// cmRandomRequest returns the n-th of several REQs, with random LIDs and some other random
// fields. Every third is for a port without a listener.
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
